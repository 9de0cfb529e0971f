"""A factorial mixture: two independent assignments whose means add."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import factorial


def model(x, K=2, L=2, sd=0.6):
    with numpyro.plate("first", K):
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    with numpyro.plate("second", L):
        nu = numpyro.sample("nu", dist.Normal(0.0, 3.0))
    with numpyro.plate("data", x.shape[0]):
        a = numpyro.sample("a", dist.Categorical(jnp.ones(K) / K))
        b = numpyro.sample("b", dist.Categorical(jnp.ones(L) / L))
        numpyro.sample("x", dist.Normal(mu[a] + nu[b], sd), obs=x)


def simulate(rng: np.random.Generator, n: int) -> np.ndarray:
    means = rng.choice([-3.0, 3.0], size=n) + rng.choice([0.0, 1.5], size=n)
    return means + 0.6 * rng.normal(size=n)


def arguments(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 40),), {}


def small(seed: int) -> Arguments:
    return (simulate(np.random.default_rng(seed), 5),), {}


def start(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 100)
    return {
        "mu": rng.normal(0.0, 2.0, size=2),
        "nu": rng.normal(size=2),
        "a": rng.integers(2, size=40),
    }


def oracle(start, x):
    return factorial.trajectory(x, sd=0.6, s0=3.0, start=start)


def evidence(x) -> float:
    return factorial.evidence(x, K=2, L=2, sd=0.6, s0=3.0)


CASE = Case(
    "factorial_mixture",
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
