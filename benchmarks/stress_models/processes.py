"""Gaussian processes: unknown noise, classification, groups that share a mean function."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.stress_models.program import Data, Program


def kernel(x, alpha, rho):
    distance = jnp.asarray(x)[:, None] - jnp.asarray(x)[None, :]
    return alpha**2 * jnp.exp(-0.5 * (distance / rho) ** 2)


def curve(rng: np.random.Generator) -> Data:
    x = np.sort(rng.uniform(0, 10, 30))
    return {"x": x, "y": 1.5 * np.sin(x) + rng.normal(0, 0.3, 30)}


def gp_marginal(x, y=None):
    rho = numpyro.sample("rho", dist.InverseGamma(5.0, 5.0))
    alpha = numpyro.sample("alpha", dist.HalfNormal(2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    cov = kernel(x, alpha, rho) + (sigma**2 + 1e-9) * jnp.eye(len(x))
    law = dist.MultivariateNormal(jnp.zeros(len(x)), covariance_matrix=cov)
    numpyro.sample("y", law, obs=y)


def gp_latent(x, y=None):
    rho = numpyro.sample("rho", dist.InverseGamma(5.0, 5.0))
    alpha = numpyro.sample("alpha", dist.HalfNormal(2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([len(x)]).to_event(1))
    factor = jnp.linalg.cholesky(kernel(x, alpha, rho) + 1e-9 * jnp.eye(len(x)))
    f = numpyro.deterministic("f", factor @ eta)
    numpyro.sample("y", dist.Normal(f, sigma), obs=y)


def labels(rng: np.random.Generator) -> Data:
    x = np.linspace(-2, 2, 20)
    return {"x": x, "z": rng.binomial(1, 1 / (1 + np.exp(-3 * np.sin(2 * x))))}


def gp_classification(x, z=None):
    rho = numpyro.sample("rho", dist.InverseGamma(5.0, 5.0))
    alpha = numpyro.sample("alpha", dist.HalfNormal(2.0))
    shift = numpyro.sample("shift", dist.Normal(0, 1))
    eta = numpyro.sample("eta", dist.Normal(0, 1).expand([len(x)]).to_event(1))
    factor = jnp.linalg.cholesky(kernel(x, alpha, rho) + 1e-9 * jnp.eye(len(x)))
    f = numpyro.deterministic("f", shift + factor @ eta)
    numpyro.sample("z", dist.Bernoulli(logits=f), obs=z)


def groups(rng: np.random.Generator) -> Data:
    x = np.linspace(0, 5, 12)
    shared = np.sin(x)
    own = 0.4 * np.array([np.sin(1.5 * x + s) for s in rng.uniform(0, 6, 4)])
    return {"x": x, "y": shared + own + rng.normal(0, 0.2, (4, 12))}


def gp_hierarchical(x, y=None):
    rho = numpyro.sample("rho", dist.InverseGamma(5.0, 5.0).expand([2]).to_event(1))
    alpha = numpyro.sample("alpha", dist.HalfNormal(1.0).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    jitter = 1e-8 * jnp.eye(len(x))
    shared_eta = numpyro.sample("shared_eta", dist.Normal(0, 1).expand([len(x)]).to_event(1))
    with numpyro.plate("groups", 4):
        own_eta = numpyro.sample("own_eta", dist.Normal(0, 1).expand([len(x)]).to_event(1))
    shared = jnp.linalg.cholesky(kernel(x, alpha[0], rho[0]) + jitter) @ shared_eta
    own = own_eta @ jnp.linalg.cholesky(kernel(x, alpha[1], rho[1]) + jitter).T
    numpyro.sample("y", dist.Normal(shared + own, sigma), obs=y)


PROGRAMS = {
    "gp_marginal": Program(gp_marginal, curve),
    "gp_latent": Program(gp_latent, curve),
    "gp_classification": Program(gp_classification, labels),
    "gp_hierarchical": Program(gp_hierarchical, groups),
}
