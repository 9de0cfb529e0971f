"""Curves and shrinkage: splines, autoregressions, Gaussian processes, horseshoe and R2D2 priors."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.stress_models.program import Data, Program


def bumps(rng: np.random.Generator) -> Data:
    x = np.sort(rng.uniform(0, 1, 100))
    knots = np.linspace(0, 1, 18)
    basis = np.maximum(1 - abs(x[:, None] - knots) * 17, 0.0)
    y = np.sin(6 * x) + 0.5 * np.cos(15 * x) + rng.normal(0, 0.3, 100)
    return {"basis": basis, "y": y}


def penalised_spline(basis, y=None):
    # A second-order random walk of the coefficients, as mgcv's P-splines
    k = basis.shape[1]
    smooth = numpyro.sample("smooth", dist.HalfCauchy(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(1))
    first = numpyro.sample("first", dist.Normal(0, 2).expand([2]).to_event(1))
    bends = numpyro.sample("bends", dist.Normal(0, smooth).expand([k - 2]).to_event(1))
    slopes = jnp.concatenate([first[1:], first[1] + jnp.cumsum(bends)])
    coefficients = jnp.concatenate([first[:1], first[0] + jnp.cumsum(slopes)])
    numpyro.sample("y", dist.Normal(basis @ coefficients, sigma), obs=y)


def quarters(rng: np.random.Generator) -> Data:
    u = np.zeros(80)
    for t in range(1, 80):
        u[t] = 0.7 * u[t - 1] + rng.normal(0, 0.5)
    x = rng.normal(size=80)
    return {"x": x, "y": 1.0 + 0.5 * x + u + rng.normal(0, 0.3, 80)}


def autoregression(x, y=None):
    a = numpyro.sample("a", dist.Normal(0, 3))
    b = numpyro.sample("b", dist.Normal(0, 3))
    phi = numpyro.sample("phi", dist.Uniform(-1, 1))
    s = numpyro.sample("s", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    e = numpyro.sample("e", dist.Normal(0, 1).expand([len(x)]).to_event(1))
    u, effects = e[0] * s / jnp.sqrt(1 - phi**2), []
    effects.append(u)
    for t in range(1, len(x)):
        u = phi * u + s * e[t]
        effects.append(u)
    numpyro.sample("y", dist.Normal(a + b * x + jnp.stack(effects), sigma), obs=y)


def presences(rng: np.random.Generator) -> Data:
    x = np.linspace(0, 1, 40)
    p = 1 / (1 + np.exp(-2.0 * np.sin(5 * x)))
    return {"x": x, "n": np.full(40, 5), "y": rng.binomial(5, p)}


def gaussian_process(x, n, y=None):
    mean = numpyro.sample("mean", dist.Normal(0, 2))
    amplitude = numpyro.sample("amplitude", dist.LogNormal(0, 1))
    length = numpyro.sample("length", dist.InverseGamma(3, 1))
    square = (x[:, None] - x) ** 2
    cov = amplitude**2 * jnp.exp(-0.5 * square / length**2) + 1e-6 * jnp.eye(len(x))
    f = numpyro.sample("f", dist.MultivariateNormal(mean * jnp.ones(len(x)), cov))
    numpyro.sample("y", dist.Binomial(n, logits=f), obs=y)


def sparse_design(rng: np.random.Generator) -> Data:
    x = rng.normal(size=(80, 15))
    beta = np.zeros(15)
    beta[[1, 5, 9]] = [1.5, -1.0, 0.6]
    return {"x": x, "y": x @ beta + rng.normal(0, 1.0, 80)}


def horseshoe(x, y=None):
    tau = numpyro.sample("tau", dist.HalfCauchy(0.3))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("columns", x.shape[1]):
        local = numpyro.sample("local", dist.HalfCauchy(1))
        raw = numpyro.sample("raw", dist.Normal(0, 1))
    beta = numpyro.deterministic("beta", tau * local * raw)
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def shrunk_r2(x, y=None):
    # R2D2: the share of variance explained, divided over the columns
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    r2 = numpyro.sample("r2", dist.Beta(1.0, 2.0))
    shares = numpyro.sample("shares", dist.Dirichlet(0.5 * jnp.ones(x.shape[1])))
    scale = sigma * jnp.sqrt(shares * r2 / (1 - r2))
    raw = numpyro.sample("raw", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    beta = numpyro.deterministic("beta", scale * raw)
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


PROGRAMS = {
    "penalised_spline": Program(penalised_spline, bumps),
    "autoregression": Program(autoregression, quarters),
    "gaussian_process": Program(gaussian_process, presences),
    "horseshoe": Program(horseshoe, sparse_design),
    "shrunk_r2": Program(shrunk_r2, sparse_design),
}
