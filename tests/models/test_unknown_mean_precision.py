"""Normal data, mean and precision unknown and independent a priori: q(mu) q(tau)."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles.regression import Regression


def model(x, m0=0.0, s0=10.0, a0=2.0, b0=1.0):
    mu = numpyro.sample("mu", dist.Normal(m0, s0))
    tau = numpyro.sample("tau", dist.Gamma(a0, b0))
    with numpyro.plate("n", x.shape[0]):
        numpyro.sample("x", dist.Normal(mu, 1 / jnp.sqrt(tau)), obs=x)


def arguments(seed: int) -> Arguments:
    return (np.random.default_rng(seed).normal(3.0, 1.5, size=30),), {}


def start(seed: int) -> dict[str, np.ndarray]:
    return {"mu": np.array(1.0)}


def regression(x) -> Regression:
    return Regression(np.ones((len(x), 1)), x, np.array([[100.0]]), (2.0, 1.0), {"mu": 0})


def oracle(start, x):
    return regression(x).trajectory(start)


def evidence(x) -> float:
    return regression(x).evidence()


CASE = Case(
    "unknown_mean_precision", model, arguments, start=start, oracle=oracle, evidence=evidence
)


def test_sweeps_equal_the_hand_written_ones():
    assert_sweeps_equal(CASE)
