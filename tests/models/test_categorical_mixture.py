"""A mixture of products of categoricals (latent class analysis) with Dirichlet probabilities."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import enumeration
from tests.oracles.components import DirichletProbabilities
from tests.oracles.mixture import Mixture

COMPONENT = DirichletProbabilities((0.5, 0.5, 0.5))


def model(x, K=2, V=3):
    n, D = x.shape
    pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(K)))
    items = numpyro.plate("items", D, dim=-1)
    with numpyro.plate("classes", K, dim=-2), items:
        theta = numpyro.sample("theta", dist.Dirichlet(0.5 * jnp.ones(V)))
    with numpyro.plate("people", n, dim=-2):
        z = numpyro.sample("z", dist.Categorical(pi))
        with items:
            numpyro.sample("x", dist.Categorical(theta[z, jnp.arange(D)]), obs=x)


def simulate(rng: np.random.Generator, n: int) -> np.ndarray:
    answers = np.array([[0, 1, 2], [2, 0, 1]])[rng.integers(2, size=n)]
    return np.where(rng.random((n, 3)) < 0.7, answers, rng.integers(3, size=(n, 3)))


def arguments(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 40),), {"K": 2, "V": 3}


def small(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 7),), {"K": 2, "V": 3}


def start(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 100)
    return {
        "pi": rng.dirichlet(np.full(2, 5.0)),
        "theta": rng.dirichlet(np.full(3, 2.0), size=(2, 3)),
    }


def oracle(start, x, K, V):
    return Mixture(COMPONENT, K, concentration=1.0).trajectory(x, start)


def evidence(x, K, V) -> float:
    return enumeration.mixture(COMPONENT, x, K, 1.0)


CASE = Case(
    "categorical_mixture",
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
