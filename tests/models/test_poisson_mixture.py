"""A mixture of products of Poissons with Gamma rates."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import enumeration
from tests.oracles.components import GammaRate
from tests.oracles.mixture import Mixture

COMPONENT = GammaRate(a0=1.5, r0=0.5, counts=True, site="rates")


def model(x, K=2, shape=1.5, rate=0.5):
    n, D = x.shape
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    with numpyro.plate("components", K):
        rates = numpyro.sample("rates", dist.Gamma(shape, rate).expand([D]).to_event(1))
    with numpyro.plate("data", n):
        z = numpyro.sample("z", dist.Categorical(pi))
        numpyro.sample("x", dist.Poisson(rates[z]).to_event(1), obs=x)


def simulate(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.poisson(np.array([[1.0, 6.0], [5.0, 2.0]])[rng.integers(2, size=n)])


def arguments(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 40),), {"K": 2}


def small(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 7),), {"K": 2}


def start(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 100)
    return {"pi": rng.dirichlet(np.full(2, 5.0)), "rates": rng.gamma(3.0, 1.0, size=(2, 2))}


def oracle(start, x, K):
    return Mixture(COMPONENT, K, concentration=1.0).trajectory(x, start)


def evidence(x, K) -> float:
    return enumeration.mixture(COMPONENT, x, K, 1.0)


CASE = Case(
    "poisson_mixture",
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
