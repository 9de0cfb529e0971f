"""Linear regression with automatic relevance determination (Appendix A): q(beta, tau) q(alpha)."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import ard

PRIOR = (1.5, 1.0, 0.8, 0.5)


def model(x, y=None, a0=1.5, b0=1.0, c0=0.8, d0=0.5):
    n, D = x.shape
    alpha = numpyro.sample("alpha", dist.Gamma(c0, d0).expand([D]).to_event(1))
    tau = numpyro.sample("tau", dist.Gamma(a0, b0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 1 / jnp.sqrt(tau * alpha)).to_event(1))
    with numpyro.plate("data", n):
        numpyro.sample("y", dist.Normal(x @ beta, 1 / jnp.sqrt(tau)), obs=y)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 3))
    return (x, x @ np.array([1.5, 0.0, -2.0]) + 0.7 * rng.normal(size=40)), {}


def start(seed: int) -> dict[str, np.ndarray]:
    return {"alpha": np.random.default_rng(seed + 100).gamma(2.0, 1.0, size=3)}


def oracle(start, x, y):
    return ard.trajectory(x, y, start["alpha"], *PRIOR)


def evidence(x, y) -> float:
    return ard.evidence(x, y, *PRIOR)


CASE = Case(
    "ard_regression", model, arguments, rows=(0, 1), start=start, oracle=oracle, evidence=evidence
)


def test_sweeps_equal_appendix_a():
    assert_sweeps_equal(CASE)
