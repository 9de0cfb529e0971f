"""Probabilistic PCA with automatic relevance determination of the loadings."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound as lb
from tests.models.case import Arguments, Case


def model(x, K=2):
    n, D = x.shape
    with numpyro.plate("factors", K, dim=-1):
        alpha = numpyro.sample("alpha", dist.Gamma(1.0, 1.0))
        with numpyro.plate("variables", D, dim=-2):
            W = numpyro.sample("W", dist.Normal(0.0, 1 / jnp.sqrt(alpha)))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    mu = numpyro.sample("mu", dist.Normal(jnp.zeros(D), 5.0).to_event(1))
    with numpyro.plate("data", n):
        h = numpyro.sample("h", dist.Normal(jnp.zeros(K), jnp.ones(K)).to_event(1))
        loc = jnp.einsum("nk,dk->nd", h, W) + mu
        numpyro.sample("x", dist.Normal(loc, jnp.sqrt(1 / tau)).to_event(1), obs=x)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    loadings = np.array([[1.0, 0.5], [-0.8, 1.0], [0.6, 0.0]])
    h = rng.normal(size=(30, 2))
    return (h @ loadings.T + [1.0, 2.0, -1.0] + 0.3 * rng.normal(size=(30, 3)),), {"K": 2}


def start(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 100)
    return {
        "alpha": np.ones(2),
        "W": rng.normal(size=(3, 2)),
        "tau": np.array(1.0),
        "mu": np.zeros(3),
        "h": rng.normal(size=(30, 2)),
    }


CASE = Case("probabilistic_pca", model, arguments, start=start, restarts=3)


def test_relevance_switches_off_the_factor_the_data_do_not_have():
    rng = np.random.default_rng(1)
    x = np.outer(rng.normal(size=60), [2.0, -1.5, 1.0]) + 0.2 * rng.normal(size=(60, 3))
    fit = lb.fit(model, x, K=2, method=lb.CAVI(restarts=3, max_sweeps=2000), seed=0)
    lengths = np.sort(np.linalg.norm(fit.mean("W"), axis=0))
    assert lengths[0] < 0.05 * lengths[1]
    fitted = fit.mean("h") @ np.asarray(fit.mean("W")).T + fit.mean("mu")
    assert np.std(x - fitted) < 0.25
