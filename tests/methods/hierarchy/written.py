"""Hierarchies as people write them: programs, their data, and what is integrated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

RNG = np.random.default_rng(7)
GROUP = np.repeat(np.arange(5), 6)
OTHER = np.tile(np.arange(3), 10)
X = RNG.normal(size=30)
Y = 0.5 + 0.8 * X + RNG.normal(size=5)[GROUP] + 0.5 * RNG.normal(size=30)
COUNTS = RNG.poisson(np.exp(0.3 + 0.4 * X))
BINARY = (Y > 0).astype(float)
LEVELS = np.digitize(Y, [-0.5, 0.5, 1.5])


@dataclass(frozen=True)
class Written:
    """A program with its arguments, and the sites that are integrated."""

    program: Callable[..., Any]
    data: dict[str, Any]
    theta: tuple[str, ...]
    quadratic: bool = False


def centred(x, group, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(mu, tau))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a[group] + slope * x, sigma), obs=y)


def noncentred(x, group, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    with numpyro.plate("groups", 5):
        u = numpyro.sample("u", dist.Normal(0, 1))
    a = numpyro.deterministic("a", mu + tau * u)
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a[group] + slope * x, sigma), obs=y)


def by_matrix(Z, x, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    a = numpyro.sample("a", dist.Normal(mu, tau).expand([5]).to_event(1))
    numpyro.sample("y", dist.Normal(Z @ a + slope * x, sigma).to_event(1), obs=y)


def by_loop(x, group, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    for g in range(5):
        a = numpyro.sample(f"a{g}", dist.Normal(mu, tau))
        rows = np.flatnonzero(group == g)
        numpyro.sample(f"y{g}", dist.Normal(a + slope * x[rows], sigma), obs=y[rows])


def slopes(x, group, y=None):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([2]).to_event(1))
    chol = numpyro.sample("chol", dist.LKJCholesky(2, 2.0))
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("groups", 5):
        b = numpyro.sample("b", dist.MultivariateNormal(beta, scale_tril=scale[:, None] * chol))
    numpyro.sample("y", dist.Normal(b[group, 0] + b[group, 1] * x, sigma), obs=y)


def slopes_noncentred(x, group, y=None):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0).expand([2]).to_event(1))
    chol = numpyro.sample("chol", dist.LKJCholesky(2, 2.0))
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("groups", 5):
        u = numpyro.sample("u", dist.Normal(0, 1).expand([2]).to_event(1))
    b = beta + u @ (scale[:, None] * chol).T
    numpyro.sample("y", dist.Normal(b[group, 0] + b[group, 1] * x, sigma), obs=y)


def logistic(x, group, other, y=None):
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([2]).to_event(1))
    s1 = numpyro.sample("s1", dist.HalfNormal(1))
    s2 = numpyro.sample("s2", dist.Exponential(1))
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(0, s1))
    with numpyro.plate("others", 3):
        b = numpyro.sample("b", dist.Normal(0, s2))
    logits = beta[0] + beta[1] * x + a[group] + b[other]
    numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def overdispersed(x, group, y=None):
    log_s = numpyro.sample("log_s", dist.Normal(0, 1))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([2]).to_event(1))
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(0, tau))
    with numpyro.plate("rows", len(x)):
        e = numpyro.sample("e", dist.Normal(0, jnp.exp(log_s)))
        rate = jnp.exp(beta[0] + beta[1] * x + a[group] + e)
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def negative_binomial(x, group, offset, y=None):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    k = numpyro.sample("k", dist.Gamma(2, 0.5))
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    with numpyro.plate("groups", 5):
        u = numpyro.sample("u", dist.Normal(0, 1))
    rate = jnp.exp(mu + tau * u[group] + offset)
    numpyro.sample("y", dist.NegativeBinomial2(rate, k), obs=y)


def ordinal(x, group, y=None):
    cuts = numpyro.sample(
        "cuts",
        dist.TransformedDistribution(
            dist.Normal(0, 2).expand([3]), dist.transforms.OrderedTransform()
        ),
    )
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(0, tau))
    numpyro.sample("y", dist.OrderedLogistic(slope * x + a[group], cuts), obs=y)


def student(x, group, y=None):
    nu = numpyro.sample("nu", dist.Gamma(2, 0.1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(mu, tau))
    numpyro.sample("y", dist.StudentT(nu, a[group], sigma), obs=y)


def gamma_counts(x, group, y=None):
    shape = numpyro.sample("shape", dist.Gamma(2, 0.5))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(0, tau))
    mean = jnp.exp(mu + a[group])
    numpyro.sample("y", dist.Gamma(shape, shape / mean), obs=y)


def walk(y=None):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    steps = numpyro.sample("steps", dist.Normal(0, 1).expand([30]).to_event(1))
    level = jnp.cumsum(tau * steps)
    numpyro.sample("y", dist.Normal(level, sigma).to_event(1), obs=y)


def random_walk(y=None):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    level = numpyro.sample("level", dist.GaussianRandomWalk(tau, num_steps=30))
    numpyro.sample("y", dist.Normal(level, sigma).to_event(1), obs=y)


def autoregressive(y=None):
    phi = numpyro.sample("phi", dist.Uniform(-1, 1))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([30]).to_event(1))
    numpyro.factor("chain", dist.Normal(phi * z[:-1], tau).log_prob(z[1:]).sum())
    numpyro.sample("y", dist.Normal(z, sigma).to_event(1), obs=y)


def censored(x, group, over, y=None):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(mu, tau))
    law = dist.Normal(a[group], sigma)
    beyond = jnp.log1p(-jnp.minimum(law.cdf(y), 1 - 1e-6))
    numpyro.factor("rows", jnp.where(over, beyond, law.log_prob(y)).sum())


def measured(y, s):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("obs", dist.Normal(theta, s), obs=y)


def chain(y=None):
    """A chain by NumPyro's scan, whose states are sites."""
    phi = numpyro.sample("phi", dist.Uniform(-1, 1))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))

    def step(before, y):
        now = numpyro.sample("z", dist.Normal(phi * before, tau))
        numpyro.sample("y", dist.Normal(now, sigma), obs=y)
        return now, None

    scan(step, jnp.zeros(()), y)


def chain_by_factor(y=None):
    """The same, as one vector."""
    phi = numpyro.sample("phi", dist.Uniform(-1, 1))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real_vector, (), (30,)))
    before = jnp.concatenate([jnp.zeros(1), z[:-1]])
    numpyro.factor("chain", dist.Normal(phi * before, tau).log_prob(z).sum())
    numpyro.sample("y", dist.Normal(z, sigma).to_event(1), obs=y)


def recurrence(y=None):
    """The same, of innovations."""
    phi = numpyro.sample("phi", dist.Uniform(-1, 1))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    e = numpyro.sample("e", dist.Normal(0, 1).expand([30]).to_event(1))

    def step(before, e):
        now = phi * before + tau * e
        return now, now

    z = jax.lax.scan(step, jnp.zeros(()), e)[1]
    numpyro.sample("y", dist.Normal(z, sigma).to_event(1), obs=y)


def filtered(X, y=None):
    """What rows say lasts: every step of a loop has the coefficients of all before it."""
    s = numpyro.sample("s", dist.HalfNormal(1))
    rate = numpyro.sample("rate", dist.Beta(2, 2))
    c = numpyro.sample("c", dist.Normal(0, 2))
    beta = numpyro.sample("beta", dist.Normal(0, s).expand([2]).to_event(1))

    def step(level, now):
        level = rate * level + (1 - rate) * now
        return level, level

    _, levels = jax.lax.scan(step, 0.0, X @ beta)
    numpyro.sample("y", dist.Poisson(jnp.exp(c + levels)), obs=y)


def two_lags(y=None):
    """What a step hands on is handed on again."""
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    phi = numpyro.sample("phi", dist.Normal(0, 0.5).expand([2]).to_event(1))

    def step(before, y):
        loc = phi[0] * before[0] + phi[1] * before[1]
        now = numpyro.sample("z", dist.Normal(loc, tau))
        numpyro.sample("y", dist.Poisson(jnp.exp(now)), obs=y)
        return (now, before[0]), None

    scan(step, (jnp.zeros(()), jnp.zeros(())), y, reverse=True)


def area(adjacency, y=None):
    b = numpyro.sample("b", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.Gamma(2, 0.5))
    rho = numpyro.sample("rho", dist.Beta(5, 2))
    phi = numpyro.sample("phi", dist.CAR(b, rho, tau, adjacency))
    numpyro.sample("y", dist.Poisson(jnp.exp(phi)), obs=y)


def area_sparse(adjacency, y=None):
    b = numpyro.sample("b", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.Gamma(2, 0.5))
    rho = numpyro.sample("rho", dist.Beta(5, 2))
    phi = numpyro.sample("phi", dist.CAR(b, rho, tau, adjacency, is_sparse=True))
    numpyro.sample("y", dist.Poisson(jnp.exp(phi)), obs=y)


def area_by_matrix(adjacency, y=None):
    b = numpyro.sample("b", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.Gamma(2, 0.5))
    rho = numpyro.sample("rho", dist.Beta(5, 2))
    precision = tau * (jnp.diag(adjacency.sum(axis=1)) - rho * adjacency)
    phi = numpyro.sample("phi", dist.MultivariateNormal(b, precision_matrix=precision))
    numpyro.sample("y", dist.Poisson(jnp.exp(phi)), obs=y)


def field(first, second, weights, y=None):
    """An intrinsic field, with a scalar product; rows with weights, by another one."""
    tau = numpyro.sample("tau", dist.Gamma(2, 0.5))
    phi = numpyro.sample("phi", dist.Normal(0, 10).expand([len(y)]).to_event(1))
    apart = phi[first] - phi[second]
    numpyro.factor("field", 0.5 * (len(y) - 1) * jnp.log(tau) - 0.5 * tau * (apart @ apart))
    numpyro.factor("rows", weights @ dist.Poisson(jnp.exp(phi)).log_prob(y))


def field_by_matrix(first, second, weights, y=None):
    tau = numpyro.sample("tau", dist.Gamma(2, 0.5))
    phi = numpyro.sample("phi", dist.Normal(0, 10).expand([len(y)]).to_event(1))
    edges = jnp.zeros((len(y), len(y))).at[first, second].add(1.0)
    laplacian = jnp.diag((edges + edges.T).sum(axis=1)) - edges - edges.T
    numpyro.factor("field", 0.5 * (len(y) - 1) * jnp.log(tau) - 0.5 * tau * phi @ laplacian @ phi)
    numpyro.factor("rows", jnp.sum(weights * dist.Poisson(jnp.exp(phi)).log_prob(y)))


def members(member, share, x, y=None):
    """Rows that belong to several groups, added up by segments."""
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(0, tau))
    rows = jnp.repeat(jnp.arange(len(x)), member.shape[1])
    effect = jax.ops.segment_sum((share * a[member]).ravel(), rows, len(x))
    numpyro.sample("y", dist.Normal(slope * x + effect, sigma).to_event(1), obs=y)


def members_by_gather(member, share, x, y=None):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(0, tau))
    effect = jnp.einsum("nk,nk->n", share, a[member])
    numpyro.sample("y", dist.Normal(slope * x + effect, sigma).to_event(1), obs=y)


def spread_by_rows(x, group, y=None):
    """The noise has predictors of its own; those with fewer numbers are given."""
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    gamma = numpyro.sample("gamma", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(0, tau))
    sigma = jnp.exp(jnp.stack([jnp.ones(len(x)), x], axis=1) @ gamma)
    numpyro.sample("y", dist.Normal(a[group], sigma), obs=y)


def rates(group, x, y=None):
    """Positive effects, Gaussian on the unconstrained space."""
    s = numpyro.sample("s", dist.HalfNormal(1))
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([2]).to_event(1))
    with numpyro.plate("groups", 5):
        rate = numpyro.sample("rate", dist.LogNormal(beta[0], s))
    numpyro.sample("y", dist.Poisson(rate[group] * jnp.exp(beta[1] * x)), obs=y)


def log_rates(group, x, y=None):
    s = numpyro.sample("s", dist.HalfNormal(1))
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([2]).to_event(1))
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(beta[0], s))
    numpyro.sample("y", dist.Poisson(jnp.exp(beta[1] * x + a[group])), obs=y)


def frailty(group, x, y=None):
    shape = numpyro.sample("shape", dist.HalfNormal(3))
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([2]).to_event(1))
    with numpyro.plate("groups", 5):
        u = numpyro.sample("u", dist.Gamma(shape, shape))
    numpyro.sample("y", dist.Poisson(u[group] * jnp.exp(beta[0] + beta[1] * x)), obs=y)


def contrasts(group, x, y=None):
    """Effects that sum to zero."""
    mu = numpyro.sample("mu", dist.Uniform(-20, 20))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    a = numpyro.sample("a", dist.ZeroSumNormal(tau, event_shape=(5,)))
    numpyro.sample("y", dist.Normal(mu + a[group], sigma).to_event(1), obs=y)


def softmax(x, group, y=None):
    tau = numpyro.sample("tau", dist.HalfNormal(1).expand([2]).to_event(1))
    slope = numpyro.sample("slope", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(jnp.zeros(2), tau).to_event(1))
    eta = slope * x[:, None] + a[group]
    numpyro.sample("y", dist.Categorical(logits=jnp.pad(eta, ((0, 0), (1, 0)))), obs=y)


def softmax_by_hand(x, group, y=None):
    tau = numpyro.sample("tau", dist.HalfNormal(1).expand([2]).to_event(1))
    slope = numpyro.sample("slope", dist.Normal(0, 1).expand([2]).to_event(1))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([5, 2]).to_event(2))
    eta = [slope[k] * x + tau[k] * z[group, k] for k in range(2)]
    norm = jnp.log(1 + jnp.exp(eta[0]) + jnp.exp(eta[1]))
    chosen = jnp.where(y == 0, 0.0, jnp.where(y == 1, eta[0], eta[1]))
    numpyro.factor("y", chosen - norm)


def location_and_scale(x, group, y=None):
    b = numpyro.sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
    c = numpyro.sample("c", dist.Normal(0, 1).expand([2]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    omega = numpyro.sample("omega", dist.HalfNormal(1))
    with numpyro.plate("groups", 5):
        u = numpyro.sample("u", dist.Normal(0, tau))
        v = numpyro.sample("v", dist.Normal(0, omega))
    log_sigma = c[0] + c[1] * x + v[group]
    numpyro.sample("y", dist.Normal(b[0] + b[1] * x + u[group], jnp.exp(log_sigma)), obs=y)


def items(person, item, y=None):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("people", 5):
        ability = numpyro.sample("ability", dist.Normal(0, 1))
    with numpyro.plate("items", 6):
        slope = numpyro.sample("slope", dist.LogNormal(0, 0.5))
        place = numpyro.sample("place", dist.Normal(0, tau))
    logits = slope[item] * (ability[person] - place[item])
    numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def zeros(x, group, y=None):
    b = numpyro.sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", 5):
        u = numpyro.sample("u", dist.Normal(0, tau))
        gate = numpyro.sample("gate", dist.Normal(0, 1))
    rate = jnp.exp(b[0] + b[1] * x + u[group])
    zeros = dist.ZeroInflatedDistribution(dist.Poisson(rate), gate_logits=gate[group])
    numpyro.sample("y", zeros, obs=y)


_rows = {"x": X, "group": GROUP, "y": Y}
_counts = {"x": X, "group": GROUP, "y": COUNTS}
_lattice = np.array(
    [(i, j) for i in range(12) for j in (i + 1, i + 4) if j < 12 and (j - i == 4 or j % 4)]
)
_edges = np.zeros((12, 12))
_edges[_lattice[:, 0], _lattice[:, 1]] = 1.0
_areas = {"adjacency": _edges + _edges.T, "y": COUNTS[:12]}
_field = {"first": _lattice[:, 0], "second": _lattice[:, 1], "weights": 0.5 + np.arange(12) / 12}
_field |= {"y": COUNTS[:12]}
_members = {"member": np.stack([GROUP, (GROUP + OTHER + 1) % 5], axis=1), "x": X, "y": Y}
_members |= {"share": np.stack([0.3 + 0.1 * OTHER, 0.7 - 0.1 * OTHER], axis=1)}
_chain = ("phi", "tau", "sigma")
WRITTEN: dict[str, Written] = {
    "centred": Written(centred, _rows, ("tau", "sigma"), True),
    "noncentred": Written(noncentred, _rows, ("tau", "sigma"), True),
    "by_matrix": Written(
        by_matrix, {"Z": np.eye(5)[GROUP], "x": X, "y": Y}, ("tau", "sigma"), True
    ),
    "by_loop": Written(by_loop, _rows, ("tau", "sigma"), True),
    "slopes": Written(slopes, _rows, ("scale", "chol", "sigma"), True),
    "slopes_noncentred": Written(slopes_noncentred, _rows, ("scale", "chol", "sigma"), True),
    "logistic": Written(
        logistic, {"x": X, "group": GROUP, "other": OTHER, "y": BINARY}, ("s1", "s2")
    ),
    "overdispersed": Written(
        overdispersed, {"x": X, "group": GROUP, "y": COUNTS}, ("log_s", "tau")
    ),
    "negative_binomial": Written(
        negative_binomial,
        {"x": X, "group": GROUP, "offset": 0.1 * X, "y": COUNTS},
        ("tau", "k"),
    ),
    "ordinal": Written(ordinal, {"x": X, "group": GROUP, "y": LEVELS}, ("cuts", "tau")),
    "student": Written(student, _rows, ("nu", "sigma", "tau")),
    "gamma": Written(
        gamma_counts, {"x": X, "group": GROUP, "y": np.exp(0.3 * Y)}, ("shape", "tau")
    ),
    "walk": Written(walk, {"y": np.cumsum(Y) / 3}, ("tau", "sigma"), True),
    "random_walk": Written(random_walk, {"y": np.cumsum(Y) / 3}, ("tau", "sigma"), True),
    "autoregressive": Written(autoregressive, {"y": Y}, ("phi", "tau", "sigma"), True),
    "censored": Written(
        censored,
        {"x": X, "group": GROUP, "over": Y > 1.5, "y": np.minimum(Y, 1.5)},
        ("tau", "sigma"),
    ),
    "schools": Written(
        measured,
        {"y": np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), "s": np.full(8, 12.0)},
        ("tau",),
        True,
    ),
    "chain": Written(chain, {"y": Y}, _chain, True),
    "chain_by_factor": Written(chain_by_factor, {"y": Y}, _chain, True),
    "recurrence": Written(recurrence, {"y": Y}, _chain, True),
    "two_lags": Written(two_lags, {"y": COUNTS}, ("tau", "phi")),
    "filtered": Written(filtered, {"X": np.stack([X, Y], axis=1), "y": COUNTS}, ("s", "rate")),
    "area": Written(area, _areas, ("tau", "rho")),
    "area_sparse": Written(area_sparse, _areas, ("tau", "rho")),
    "area_by_matrix": Written(area_by_matrix, _areas, ("tau", "rho")),
    "field": Written(field, _field, ("tau",)),
    "field_by_matrix": Written(field_by_matrix, _field, ("tau",)),
    "members": Written(members, _members, ("tau", "sigma"), True),
    "members_by_gather": Written(members_by_gather, _members, ("tau", "sigma"), True),
    "spread_by_rows": Written(spread_by_rows, _rows, ("tau", "gamma"), True),
    "rates": Written(rates, _counts, ("s",)),
    "log_rates": Written(log_rates, _counts, ("s",)),
    "frailty": Written(frailty, _counts, ("shape",)),
    "contrasts": Written(contrasts, _rows, ("tau", "sigma"), True),
    "softmax": Written(softmax, {"x": X, "group": GROUP, "y": OTHER}, ("tau",)),
    "softmax_by_hand": Written(softmax_by_hand, {"x": X, "group": GROUP, "y": OTHER}, ("tau",)),
    "location_and_scale": Written(location_and_scale, _rows, ("tau", "omega")),
    "items": Written(
        items, {"person": GROUP, "item": np.tile(np.arange(6), 5), "y": BINARY}, ("tau",)
    ),
    "zeros": Written(zeros, {"x": X, "group": GROUP, "y": COUNTS}, ("tau",)),
}
