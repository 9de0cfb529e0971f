"""Shrinkage of many coefficients, each with a scale of its own: horseshoes, lassos, groups."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.stress_models.program import Data, Program


def sparse_columns(rng: np.random.Generator, rows: int, columns: int) -> tuple[np.ndarray, ...]:
    x, beta = rng.normal(size=(rows, columns)), np.zeros(columns)
    beta[:5] = [2.0, -1.2, 0.8, 0.4, -0.3]
    return x, x @ beta


def assay(rng: np.random.Generator) -> Data:
    x, mean = sparse_columns(rng, 200, 30)
    return {"x": x, "y": mean + rng.normal(0, 1.0, 200)}


def horseshoe_centred(x, y=None):
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    with numpyro.plate("columns", x.shape[1]):
        lam = numpyro.sample("lam", dist.HalfCauchy(1.0))
        beta = numpyro.sample("beta", dist.Normal(0.0, tau * lam))
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def spectrum(rng: np.random.Generator) -> Data:
    x, mean = sparse_columns(rng, 400, 50)
    return {"x": x, "y": mean + rng.normal(0, 1.0, 400)}


def horseshoe_precise(x, y=None):
    # As in NumPyro's example: a precision with a Gamma prior
    local = numpyro.sample("local", dist.HalfCauchy(jnp.ones(x.shape[1])))
    tau = numpyro.sample("tau", dist.HalfCauchy(jnp.ones(1)))
    raw = numpyro.sample("raw", dist.Normal(0.0, jnp.ones(x.shape[1])))
    precision = numpyro.sample("precision", dist.Gamma(3.0, 1.0))
    beta = numpyro.deterministic("beta", tau * local * raw)
    numpyro.sample("y", dist.Normal(jnp.dot(x, beta), 1.0 / jnp.sqrt(precision)), obs=y)


def trial(rng: np.random.Generator) -> Data:
    x, mean = sparse_columns(rng, 200, 25)
    return {"x": x, "y": rng.binomial(1, 1 / (1 + np.exp(-mean)))}


def horseshoe_binary(x, y=None):
    local = numpyro.sample("local", dist.HalfCauchy(jnp.ones(x.shape[1])))
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    raw = numpyro.sample("raw", dist.Normal(0.0, jnp.ones(x.shape[1])))
    numpyro.sample("y", dist.Bernoulli(logits=x @ (tau * local * raw)), obs=y)


def clicks(rng: np.random.Generator) -> Data:
    x, mean = sparse_columns(rng, 150, 20)
    return {"x": x, "y": rng.poisson(np.exp(0.5 * mean + 0.3))}


def horseshoe_counts(x, y=None):
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 2.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(0.5))
    lam = numpyro.sample("lam", dist.HalfCauchy(1.0).expand([x.shape[1]]).to_event(1))
    beta = numpyro.sample("beta", dist.Normal(0.0, tau * lam).to_event(1))
    numpyro.sample("y", dist.Poisson(jnp.exp(alpha + x @ beta)), obs=y)


def panels(rng: np.random.Generator) -> Data:
    x = rng.normal(size=(150, 30))
    size = np.array([1.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.8, 0.0, 0.0, 0.1])
    beta = rng.normal(size=30) * np.repeat(size, 3)
    return {"x": x, "group": np.repeat(np.arange(10), 3), "y": x @ beta + rng.normal(0, 1.0, 150)}


def shrunk_groups(x, group, y=None):
    # Groups of three columns, each with a half-Cauchy scale of its own
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    with numpyro.plate("groups", 10):
        scale = numpyro.sample("scale", dist.HalfCauchy(tau))
    with numpyro.plate("columns", x.shape[1]):
        beta = numpyro.sample("beta", dist.Normal(0.0, scale[group]))
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def lasso(x, y=None):
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
    beta = numpyro.sample("beta", dist.Laplace(0.0, tau).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


PROGRAMS = {
    "horseshoe_centred": Program(horseshoe_centred, assay),
    "horseshoe_precise": Program(horseshoe_precise, spectrum),
    "horseshoe_binary": Program(horseshoe_binary, trial),
    "horseshoe_counts": Program(horseshoe_counts, clicks),
    "shrunk_groups": Program(shrunk_groups, panels),
    "lasso": Program(lasso, assay),
}
