"""Hierarchies as people write them: programs, their data, and what is integrated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

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


_rows = {"x": X, "group": GROUP, "y": Y}
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
}
