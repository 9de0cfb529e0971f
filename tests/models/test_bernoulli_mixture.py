"""A mixture of products of Bernoullis (multivariate binary data) with Beta probabilities."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import enumeration
from tests.oracles.components import DirichletProbabilities
from tests.oracles.mixture import Mixture

COMPONENT = DirichletProbabilities((2.0, 1.0), beta=True)


def model(x, K=2):
    n, D = x.shape
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.full((K,), 1.5)))
    theta = numpyro.sample("theta", dist.Beta(1.0, 2.0).expand([K, D]).to_event(2))
    with numpyro.plate("data", n):
        z = numpyro.sample("z", dist.Categorical(logits=jnp.log(pi)))
        numpyro.sample("x", dist.Bernoulli(theta[z, :]).to_event(1), obs=x)


def simulate(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.binomial(1, np.array([[0.9, 0.8, 0.1], [0.2, 0.1, 0.7]])[rng.integers(2, size=n)])


def arguments(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 40),), {"K": 2}


def small(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 7),), {"K": 2}


def start(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 100)
    return {"pi": rng.dirichlet(np.full(2, 5.0)), "theta": rng.beta(2.0, 2.0, size=(2, 3))}


def oracle(start, x, K):
    return Mixture(COMPONENT, K, concentration=1.5).trajectory(x, start)


def evidence(x, K) -> float:
    return enumeration.mixture(COMPONENT, x, K, 1.5)


CASE = Case(
    "bernoulli_mixture",
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
