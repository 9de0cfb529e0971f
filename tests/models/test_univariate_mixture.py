"""The mixture of unit-variance Gaussians of the paper's section 3 (alg:gmm-cavi)."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import enumeration
from tests.oracles.components import UnitNormal
from tests.oracles.mixture import Mixture

COMPONENT = UnitNormal(variance=25.0)


def model(x, K=3, sigma=5.0):
    with numpyro.plate("components", K):
        mu = numpyro.sample("mu", dist.Normal(0.0, sigma))
    with numpyro.plate("data", len(x)):
        c = numpyro.sample("c", dist.Categorical(probs=jnp.ones(K) / K))
        numpyro.sample("x", dist.Normal(mu[c], 1.0), obs=x)


def simulate(rng: np.random.Generator, n: int, centres: list[float]) -> np.ndarray:
    return rng.choice(centres, size=n) + rng.normal(size=n)


def arguments(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 45, [-4.0, 0.0, 5.0]),), {"K": 3}


def small(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 7, [-2.0, 2.0]),), {"K": 2}


def start(seed: int) -> dict[str, np.ndarray]:
    return {"mu": np.random.default_rng(seed + 100).normal(0.0, 3.0, size=3)}


def oracle(start, x, K):
    return Mixture(COMPONENT, K, assignment="c").trajectory(x, start)


def evidence(x, K) -> float:
    return enumeration.mixture(COMPONENT, x, K, None)


CASE = Case(
    "univariate_mixture",
    model,
    arguments,
    start=start,
    oracle=oracle,
    evidence=evidence,
    small=small,
    restarts=5,
)


def test_sweeps_equal_algorithm_2():
    assert_sweeps_equal(CASE)
