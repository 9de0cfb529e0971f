"""Small programs, one for each kind that some method is for, with their data and what is known.

Every program has scalar observations `y` in a plate of rows, except where that kind of program has
none, so that a predictive density can be summed over outcomes; and a deterministic site.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.distributions import constraints

import lowerbound as lb

Arguments = Mapping[str, Any]
Draws = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Example:
    """A program, its data, and facts that its author knows.

    shapes: of the latent sites. derived: the deterministic sites, from draws of the latent ones.
    outcomes: values of `y` that the predictive mass is spread over, and the width of each.
    local: the latent sites of the rows. parameters: those of `numpyro.param`.
    settings: the arguments that are not data. streamed: whether the data come in batches of a
    table. drawn: whether new rows draw latent sites of their own, having no exact factor of these.
    """

    model: Callable[..., Any]
    data: Arguments
    shapes: Mapping[str, tuple[int, ...]]
    derived: Mapping[str, Callable[[Draws], np.ndarray]]
    outcomes: np.ndarray
    width: float = 1.0
    local: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    settings: Arguments = field(default_factory=dict)
    streamed: bool = False
    drawn: bool = False

    @property
    def name(self) -> str:
        """The name of the program."""
        return self.model.__name__

    @property
    def call(self) -> dict[str, Any]:
        """The arguments of a fit."""
        if not self.streamed:
            return {**self.data, **self.settings}
        names = {name: name for name in self.data}
        return {**lb.stream(pd.DataFrame(dict(self.data)), **names), **self.settings}

    @property
    def at(self) -> dict[str, Any]:
        """New rows: one for each outcome, else as the first row of the data; none without rows."""
        count = len(self.outcomes)
        if not count:
            return {}
        rows = {n: np.repeat(np.asarray(a)[:1], count, axis=0) for n, a in self.data.items()}
        return {**rows, "y": self.outcomes}


def line(x, y=None):
    """Linear regression with a Normal-Gamma prior: one factor, and exact."""
    tau = numpyro.sample("tau", dist.Gamma(3.0, 2.0))
    with numpyro.plate("columns", x.shape[1]):
        beta = numpyro.sample("beta", dist.Normal(0.0, 1 / jnp.sqrt(tau)))
    numpyro.deterministic("gap", beta[1] - beta[0])
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ beta, 1 / jnp.sqrt(tau)), obs=y)


def clusters(y, K=2):
    """A mixture: assignments of the rows are local, and the ELBO has several optima."""
    pi = numpyro.sample("pi", dist.Dirichlet(2.0 * jnp.ones(K)))
    with numpyro.plate("components", K):
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    numpyro.deterministic("gap", mu[1] - mu[0])
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Categorical(pi))
        numpyro.sample("y", dist.Normal(mu[z], 0.7), obs=y)


def schools(sigma, y=None):
    """Effects of schools around an unknown mean, with an unknown spread."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(5.0))
    numpyro.deterministic("ratio", mu / (1.0 + tau))
    with numpyro.plate("rows", len(sigma)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def groups(g, y=None, G=3):
    """Effects of groups: their spread and that of the rows are both unknown."""
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("groups", G):
        a = numpyro.sample("a", dist.Normal(0.0, tau))
    numpyro.deterministic("gap", a[1] - a[0])
    with numpyro.plate("rows", len(g)):
        numpyro.sample("y", dist.Normal(a[g], sigma), obs=y)


def shares(n, y=None):
    """Shares of rows, conjugate given two shapes that they have in common."""
    with numpyro.plate("ends", 2):
        shape = numpyro.sample("shape", dist.Gamma(4.0, 1.0))
    numpyro.deterministic("whole", shape[0] + shape[1])
    with numpyro.plate("rows", len(n)):
        theta = numpyro.sample("theta", dist.Beta(shape[0], shape[1]))
        numpyro.sample("y", dist.Binomial(n, theta), obs=y)


def logistic(x, y=None):
    """Logistic regression: a Gaussian by quadrature, or exact given auxiliary variables."""
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    numpyro.deterministic("gap", beta[1] - beta[0])
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)


def bend(x, y=None):
    """A curve that no rule expresses."""
    a = numpyro.sample("a", dist.Normal(0.5, 0.5).expand([2]).to_event(1))
    numpyro.deterministic("gap", a[1] - a[0])
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(jnp.tanh(a[0] * x + jnp.sin(a[1] * x)), 0.3), obs=y)


def counts(x, y=None):
    """Poisson counts whose rows vary by an unknown scale, and effects that are no Gaussians."""
    level = numpyro.sample("level", dist.Uniform(-3.0, 3.0))
    slope = numpyro.sample("slope", dist.Uniform(-3.0, 3.0))
    curve = numpyro.sample("curve", dist.Uniform(-3.0, 3.0))
    sigma = numpyro.sample("sigma", dist.Uniform(0.0, 2.0))
    numpyro.deterministic("sum", level + slope)
    with numpyro.plate("rows", len(x)):
        eps = numpyro.sample("eps", dist.Normal(0.0, sigma))
        rate = jnp.exp(level + slope * x + curve * x**2 + eps)
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def chain(y):
    """Levels that follow one another: a sparse precision. There are no rows."""
    drift = numpyro.sample("drift", dist.Normal(0.0, 1.0))
    flat = dist.ImproperUniform(dist.constraints.real, (), (len(y),))
    level = numpyro.sample("level", flat)
    numpyro.deterministic("last", level[-1])
    numpyro.factor("first", dist.Normal(0.0, 1.0).log_prob(level[0]))
    numpyro.factor("walk", dist.Normal(0.9 * level[:-1] + drift, 0.3).log_prob(level[1:]).sum())
    numpyro.sample("y", dist.Normal(level, 0.5).to_event(1), obs=y)


def tails(y):
    """A mixture of Student laws: its assignments can be summed out, and have no factor."""
    w = numpyro.sample("w", dist.Beta(2.0, 2.0))
    mu = numpyro.sample("mu", dist.Normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    numpyro.deterministic("gap", mu[1] - mu[0])
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(w))
        numpyro.sample("y", dist.StudentT(4.0, mu[z], sigma), obs=y)


def switches(x, y=None):
    """Twelve switches in one rate: too many states to sum over, and no factor of a switch."""
    with numpyro.plate("switches", 12):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
    numpyro.deterministic("on", z.sum())
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Poisson(jnp.exp(0.5 * (x @ z))), obs=y)


def spikes(x, y=None):
    """Twelve switches and a loop: given the rate the switches have exact factors."""
    rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0).expand([1]).to_event(1))
    with numpyro.plate("switches", 12):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
    numpyro.deterministic("on", z.sum())
    _, curve = jax.lax.scan(lambda h, _: (h * jnp.exp(-0.1 * rate[0]), h), 1.0, None, length=4)
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal((x @ z) * curve[-1], 0.5), obs=y)


def culprit(y):
    """What witnesses have seen, and say: all that is latent is discrete."""
    who = numpyro.sample("who", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
    numpyro.deterministic("first", who == 0)
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(jnp.array([0.2, 0.5, 0.9])[who]))
        numpyro.sample("y", dist.Poisson(jnp.array([1.0, 6.0])[z]), obs=y)


def factors(y, K=2):
    """Counts with a rate that is a sum of products, and more numbers than a Gaussian is for."""
    beta = numpyro.sample("beta", dist.Gamma(2.0, 1.0).expand([K]).to_event(1))
    numpyro.deterministic("gap", beta[1] - beta[0])
    with numpyro.plate("rows", len(y)):
        theta = numpyro.sample("theta", dist.Gamma(1.0, 1.0).expand([K]).to_event(1))
        numpyro.sample("y", dist.Poisson(theta @ beta), obs=y)


def shrunk(y):
    """Effects of rows around a parameter, with a maximised spread: exact variational EM."""
    mu = numpyro.param("mu", 0.0)
    s = numpyro.param("s", 1.0, constraint=constraints.positive)
    with numpyro.plate("rows", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, s))
        numpyro.sample("y", dist.Normal(theta, 0.5), obs=y)
    numpyro.deterministic("mid", theta.mean())


def doubled(y):
    """The same with two parameters of which the sum alone matters: the ELBO is flat along one."""
    shift = numpyro.param("shift", 0.0)
    mu = numpyro.param("mu", 0.0)
    with numpyro.plate("rows", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu + shift, 1.0))
        numpyro.sample("y", dist.Normal(theta, 0.5), obs=y)
    numpyro.deterministic("mid", theta.mean())


def decoder(y):
    """Rows that a function of parameters makes of two latent numbers each: no exact update."""
    w = numpyro.param("w", 0.5)
    b = numpyro.param("b", 0.0)
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("y", dist.Poisson(jnp.exp(b + w * jnp.tanh(z[:, 0] * z[:, 1]))), obs=y)
    numpyro.deterministic("mid", z.mean())


RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 2))
U = np.linspace(-1.0, 1.0, 24)
GROUPS = np.arange(24) % 3
HALVES = np.where(np.arange(24) % 3 == 0, -2.0, 2.0)
SPREADS = np.array([1.5, 1.0, 1.6, 1.1, 0.9, 1.1])
DESIGN = RNG.normal(size=(20, 12)) * 0.6
COUNTS = np.arange(60)


def _gap(site: str) -> Mapping[str, Callable[[Draws], np.ndarray]]:
    return {"gap": lambda draws: draws[site][:, 1] - draws[site][:, 0]}


def _grid(reach: float, count: int = 401) -> dict[str, Any]:
    values = np.linspace(-reach, reach, count)
    return {"outcomes": values, "width": float(values[1] - values[0])}


LINE = Example(
    line,
    {"x": X, "y": X @ [1.0, -2.0] + 0.5 * RNG.normal(size=24)},
    {"tau": (), "beta": (2,)},
    _gap("beta"),
    **_grid(20.0),
)
CLUSTERS = Example(
    clusters,
    {"y": HALVES + 0.7 * RNG.normal(size=24)},
    {"pi": (2,), "mu": (2,), "z": (24,)},
    _gap("mu"),
    local=("z",),
    settings={"K": 2},
    **_grid(15.0),
)
SCHOOLS = Example(
    schools,
    {"sigma": SPREADS, "y": np.array([2.8, 0.8, -0.3, 0.7, -0.1, 1.8])},
    {"mu": (), "tau": (), "theta": (6,)},
    {"ratio": lambda draws: draws["mu"] / (1.0 + draws["tau"])},
    local=("theta",),
    **_grid(60.0),
)
SPREAD = Example(
    groups,
    {"g": GROUPS, "y": np.array([-1.0, 0.2, 1.5])[GROUPS] + 0.5 * RNG.normal(size=24)},
    {"tau": (), "sigma": (), "a": (3,)},
    _gap("a"),
    **_grid(15.0),
)
SHARES = Example(
    shares,
    {"n": np.full(12, 6), "y": np.array([1, 3, 2, 5, 4, 0, 2, 3, 6, 4, 2, 3])},
    {"shape": (2,), "theta": (12,)},
    {"whole": lambda d: d["shape"].sum(axis=1)},
    np.arange(7),
    local=("theta",),
    drawn=True,
)
LOGISTIC = Example(
    logistic,
    {"x": X, "y": (RNG.random(24) < 1 / (1 + np.exp(-X @ [1.0, -1.5]))).astype(int)},
    {"beta": (2,)},
    _gap("beta"),
    outcomes=np.array([0, 1]),
)
BEND = Example(
    bend,
    {"x": U, "y": np.tanh(0.8 * U + np.sin(0.4 * U)) + 0.3 * RNG.normal(size=24)},
    {"a": (2,)},
    _gap("a"),
    **_grid(5.0),
)
OVERDISPERSED = Example(
    counts,
    {"x": U, "y": RNG.poisson(np.exp(0.5 + 0.5 * U + 0.4 * RNG.normal(size=24)))},
    {"level": (), "slope": (), "curve": (), "sigma": (), "eps": (24,)},
    {"sum": lambda draws: draws["level"] + draws["slope"]},
    outcomes=np.arange(400),
    local=("eps",),
    drawn=True,
)
CHAIN = Example(
    chain,
    {"y": np.cumsum(RNG.normal(0.1, 0.3, 12)) + RNG.normal(0, 0.5, 12)},
    {"drift": (), "level": (12,)},
    {"last": lambda draws: draws["level"][:, -1]},
    outcomes=np.zeros(0),
)
TAILS = Example(
    tails,
    {"y": 0.5 * RNG.standard_t(4, 24) + HALVES},
    {"w": (), "mu": (2,), "sigma": (), "z": (24,)},
    _gap("mu"),
    local=("z",),
    **_grid(60.0, 2401),
)
CULPRIT = Example(
    culprit,
    {"y": np.array([5, 1, 0, 4, 2, 0, 6, 8])},
    {"who": (), "z": (8,)},
    {"first": lambda draws: draws["who"] == 0},
    outcomes=COUNTS,
    local=("z",),
)
SWITCHES = Example(
    switches,
    {"x": DESIGN, "y": RNG.poisson(np.exp(0.5 * DESIGN @ (np.arange(12) % 3 == 0)))},
    {"z": (12,)},
    {"on": lambda draws: draws["z"].sum(axis=1)},
    outcomes=COUNTS,
)
SPIKES = Example(
    spikes,
    {"x": DESIGN, "y": 0.8 * DESIGN @ (np.arange(12) % 3 == 0) + 0.5 * RNG.normal(size=20)},
    {"rate": (1,), "z": (12,)},
    {"on": lambda draws: draws["z"].sum(axis=1)},
    **_grid(12.0),
)
FACTORS = Example(
    factors,
    {"y": RNG.poisson(3.0, size=101)},
    {"beta": (2,), "theta": (101, 2)},
    _gap("beta"),
    outcomes=COUNTS,
    local=("theta",),
    settings={"K": 2},
    drawn=True,
)
SHRUNK = Example(
    shrunk,
    {"y": 1.0 + 1.2 * RNG.normal(size=24)},
    {"theta": (24,)},
    {"mid": lambda draws: draws["theta"].mean(axis=1)},
    local=("theta",),
    parameters=("mu", "s"),
    **_grid(12.0),
)
DOUBLED = replace(SHRUNK, model=doubled, parameters=("mu", "shift"))
STREAMED = replace(CLUSTERS, streamed=True)
DECODER = Example(
    decoder,
    {"y": RNG.poisson(np.exp(0.9 * np.tanh(RNG.normal(size=24)) + 0.5))},
    {"z": (24, 2)},
    {"mid": lambda draws: draws["z"].mean(axis=(1, 2))},
    outcomes=COUNTS,
    local=("z",),
    parameters=("w", "b"),
    drawn=True,
)
