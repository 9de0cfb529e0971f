"""Slopes that vary by group, gathered by an array of group numbers, with a common noise."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles.regression import Regression


def model(x, group, y=None, groups=3):
    D = x.shape[1]
    sigma2 = numpyro.sample("sigma2", dist.InverseGamma(3.0, 2.0))
    centre = numpyro.sample("centre", dist.Normal(jnp.zeros(D), 2.0).to_event(1))
    with numpyro.plate("groups", groups):
        beta = numpyro.sample("beta", dist.Normal(centre, 0.5).to_event(1))
    with numpyro.plate("data", x.shape[0]):
        loc = jnp.sum(x * beta[group], axis=-1)
        numpyro.sample("y", dist.Normal(loc, sigma2**0.5), obs=y)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    group, x = rng.integers(3, size=36), rng.normal(size=(36, 2))
    beta = rng.normal([1.0, -1.0], 0.5, size=(3, 2))
    return (x, group, (x * beta[group]).sum(-1) + 0.6 * rng.normal(size=36)), {"groups": 3}


def start(seed: int) -> dict[str, np.ndarray]:
    return {"sigma2": np.array(0.7)}


def regression(x, group, y) -> Regression:
    """The centre (2) and the slopes (3, 2) as one vector; only the slopes meet the data."""
    slopes = (np.eye(3)[group][:, :, None] * x[:, None, :]).reshape(len(x), 6)
    common = np.kron(np.ones((4, 4)), 4.0 * np.eye(2))
    prior = common + np.diag([0.0] * 2 + [0.25] * 6)
    columns = {"centre": slice(0, 2), "beta": slice(2, 8)}
    X = np.column_stack([np.zeros((len(x), 2)), slopes])
    return Regression(X, y, prior, (3.0, 2.0), columns, noise="sigma2", inverse=True)


def oracle(start, x, group, y, groups):
    return regression(x, group, y).trajectory(start)


def evidence(x, group, y, groups) -> float:
    return regression(x, group, y).evidence()


CASE = Case(
    "varying_slopes",
    model,
    arguments,
    rows=(0, 1, 2),
    start=start,
    oracle=oracle,
    evidence=evidence,
)


def test_sweeps_equal_the_hand_written_ones():
    assert_sweeps_equal(CASE)
