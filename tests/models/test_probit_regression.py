"""Probit regression with explicit auxiliaries: the optimal q(z) is a truncated normal."""

import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import probit


def model(x, y, sd=2.0):
    n, D = x.shape
    beta = numpyro.sample("beta", dist.Normal(0.0, sd).expand([D]).to_event(1))
    with numpyro.plate("data", n):
        z = numpyro.sample("z", dist.Normal(x @ beta, 1.0))
        numpyro.sample("y", dist.Delta((z > 0).astype(int)), obs=y)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(30), rng.normal(size=30)])
    return (x, (x @ [0.3, 1.2] + rng.normal(size=30) > 0).astype(int)), {}


def start(seed: int) -> dict[str, np.ndarray]:
    (_, y), _ = arguments(seed)
    return {"beta": np.array([0.1, 0.5]), "z": np.where(y == 1, 0.8, -0.8)}


def oracle(start, x, y):
    return probit.trajectory(x, y, sd=2.0, start=start)


def evidence(x, y) -> float:
    return probit.evidence(x, y, sd=2.0)


CASE = Case(
    "probit_regression",
    model,
    arguments,
    rows=(0, 1),
    start=start,
    oracle=oracle,
    evidence=evidence,
)


def test_sweeps_equal_the_hand_written_ones():
    assert_sweeps_equal(CASE)
