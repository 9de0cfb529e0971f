"""A local level time series, twice: scalar sites made in a loop, and one site with a factor."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_exact
from tests.models.case import Arguments, Case
from tests.oracles import evidence as closed
from tests.oracles.expectations import LOG_2PI, Moments

LENGTH = 6


def model(y, step=0.5, noise=0.8):
    level = numpyro.sample("level_0", dist.Normal(0.0, 2.0))
    for t in range(LENGTH):
        numpyro.sample(f"y_{t}", dist.Normal(level, noise), obs=y[t])
        if t < LENGTH - 1:
            level = numpyro.sample(f"level_{t + 1}", dist.Normal(level, step))


def smoother(y, step=0.5, noise=0.8):
    """One vector site; the steps enter by numpyro.factor, without their normalising constant."""
    level = numpyro.sample("level", dist.Normal(0.0, 2.0).expand([y.shape[0]]).to_event(1))
    numpyro.factor("steps", -jnp.sum((level[1:] - level[:-1]) ** 2) / (2 * step**2))
    numpyro.sample("y", dist.Normal(level, noise).to_event(1), obs=y)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    return (1.0 + np.cumsum(0.5 * rng.normal(size=LENGTH)) + 0.8 * rng.normal(size=LENGTH),), {}


STEPS = np.diff(np.eye(LENGTH), axis=0)


def precision(first: np.ndarray) -> np.ndarray:
    """Of the levels given y: the prior precision of the levels, the steps, the noise."""
    return np.diag(first) + STEPS.T @ STEPS / 0.5**2 + np.eye(LENGTH) / 0.8**2


CHAIN = precision(np.array([1 / 4.0] + [0.0] * (LENGTH - 1)))
SMOOTH = precision(np.full(LENGTH, 1 / 4.0))


def evidence(y) -> float:
    constants = -LENGTH * LOG_2PI - LENGTH * np.log(0.8) - np.log(2.0) - (LENGTH - 1) * np.log(0.5)
    return closed.gaussian_integral(CHAIN, y / 0.8**2, constants - 0.5 * y @ y / 0.8**2)


def smoother_evidence(y) -> float:
    constants = -LENGTH * LOG_2PI - LENGTH * np.log(0.8) - LENGTH * np.log(2.0)
    return closed.gaussian_integral(SMOOTH, y / 0.8**2, constants - 0.5 * y @ y / 0.8**2)


CASE = Case("local_level", model, arguments, rows=(), evidence=evidence, exact=True)
SMOOTHER = Case("smoother", smoother, arguments, rows=(), evidence=smoother_evidence, exact=True)


def levels(P: np.ndarray, y: np.ndarray) -> Moments:
    return Moments(np.linalg.solve(P, y / 0.8**2), np.sqrt(np.diag(np.linalg.inv(P))))


def test_levels_made_in_a_loop_are_exact():
    (y,), _ = arguments(0)
    mean, sd = levels(CHAIN, y)
    assert_exact(CASE, {f"level_{t}": Moments(mean[t], sd[t]) for t in range(LENGTH)})


def test_levels_with_a_factor_are_exact():
    (y,), _ = arguments(0)
    assert_exact(SMOOTHER, {"level": levels(SMOOTH, y)})
