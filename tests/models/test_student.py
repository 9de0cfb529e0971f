"""Student-t errors as a scale mixture: each row has its own latent Gamma weight."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import regression


def model(x, nu=4.0):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
    with numpyro.plate("data", x.shape[0]):
        w = numpyro.sample("w", dist.Gamma(nu / 2, nu / 2))
        sigma = jnp.sqrt(1 / (tau * w))
        numpyro.sample("x", dist.Normal(mu, sigma), obs=x)


def arguments(seed: int) -> Arguments:
    return (1.0 + np.random.default_rng(seed).standard_t(4.0, size=30),), {}


def start(seed: int) -> dict[str, np.ndarray]:
    return {"mu": np.array(0.5), "tau": np.array(1.0)}


def oracle(start, x):
    return regression.student(x, nu=4.0, s0=5.0, a0=2.0, r0=2.0, start=start)


def evidence(x) -> float:
    return regression.student_evidence(x, nu=4.0, s0=5.0, a0=2.0, r0=2.0)


CASE = Case("student", model, arguments, start=start, oracle=oracle, evidence=evidence)


def test_sweeps_equal_the_hand_written_ones():
    assert_sweeps_equal(CASE)
