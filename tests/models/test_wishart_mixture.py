"""A full-covariance mixture: q(mu, Lambda) is Normal-Wishart."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import enumeration
from tests.oracles.components import NormalWishart
from tests.oracles.mixture import Mixture

COMPONENT = NormalWishart(b0=0.1, nu0=4.0, scale=0.5, D=2)


def model(x, K=2, b0=0.1, nu0=4.0):
    n, D = x.shape
    weights = numpyro.sample("weights", dist.Dirichlet(2.0 * jnp.ones(K)))
    with numpyro.plate("components", K):
        precision = numpyro.sample("precision", dist.Wishart(nu0, scale_matrix=0.5 * jnp.eye(D)))
        mean = numpyro.sample(
            "mean", dist.MultivariateNormal(jnp.zeros(D), precision_matrix=b0 * precision)
        )
    with numpyro.plate("data", n):
        z = numpyro.sample("z", dist.Categorical(weights))
        numpyro.sample("x", dist.MultivariateNormal(mean[z], precision_matrix=precision[z]), obs=x)


def simulate(rng: np.random.Generator, n: int) -> np.ndarray:
    c = rng.integers(2, size=n)
    centres = np.array([[-2.0, 0.0], [2.0, 1.0]])
    shapes = np.array([[[1.0, 0.0], [0.8, 0.4]], [[0.5, 0.0], [-0.6, 0.9]]])
    return centres[c] + np.einsum("nij,nj->ni", shapes[c], rng.normal(size=(n, 2)))


def arguments(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 40),), {"K": 2}


def small(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 7),), {"K": 2}


def start(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 100)
    roots = rng.normal(size=(2, 2, 2))
    return {
        "weights": rng.dirichlet(np.full(2, 5.0)),
        "precision": np.eye(2) + np.einsum("kij,klj->kil", roots, roots) / 2,
        "mean": rng.normal(0.0, 2.0, size=(2, 2)),
    }


def oracle(start, x, K):
    return Mixture(COMPONENT, K, concentration=2.0, weights="weights").trajectory(x, start)


def evidence(x, K) -> float:
    return enumeration.mixture(COMPONENT, x, K, 2.0)


CASE = Case(
    "wishart_mixture",
    model,
    arguments,
    start=start,
    oracle=oracle,
    evidence=evidence,
    small=small,
    restarts=5,
)


def test_sweeps_equal_the_hand_written_ones():
    assert_sweeps_equal(CASE)
