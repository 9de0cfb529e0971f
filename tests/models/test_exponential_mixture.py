"""A mixture of exponential waiting times with Gamma rates."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import enumeration
from tests.oracles.components import GammaRate
from tests.oracles.mixture import Mixture

COMPONENT = GammaRate(a0=2.0, r0=1.0, counts=False, site="rate")


def model(x, K=2):
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.array([2.0] * K)))
    rate = numpyro.sample("rate", dist.Gamma(jnp.full(K, 2.0), 1.0))
    with numpyro.plate("data", x.size):
        z = numpyro.sample("z", dist.Categorical(probs=pi))
        numpyro.sample("x", dist.Exponential(rate=jnp.take(rate, z)), obs=x)


def simulate(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.exponential(np.array([0.2, 4.0])[rng.integers(2, size=n)])


def arguments(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 40),), {"K": 2}


def small(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 7),), {"K": 2}


def start(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 100)
    return {"pi": rng.dirichlet(np.full(2, 5.0)), "rate": rng.gamma(2.0, 1.0, size=2)}


def oracle(start, x, K):
    return Mixture(COMPONENT, K, concentration=2.0).trajectory(x, start)


def evidence(x, K) -> float:
    return enumeration.mixture(COMPONENT, x, K, 2.0)


CASE = Case(
    "exponential_mixture",
    model,
    arguments,
    start=start,
    oracle=oracle,
    evidence=evidence,
    small=small,
    restarts=3,
)


def test_sweeps_equal_the_hand_written_ones():
    assert_sweeps_equal(CASE)
