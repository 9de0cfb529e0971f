"""Gaussian matrix factorisation from a list of observed ratings."""

import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import factorisation


def model(user, item, rating, users=8, items=6, K=2, sd=0.3):
    with numpyro.plate("users", users):
        U = numpyro.sample("U", dist.Normal(0.0, 1.0).expand([K]).to_event(1))
    with numpyro.plate("items", items):
        V = numpyro.sample("V", dist.Normal(0.0, 1.0).expand([K]).to_event(1))
    with numpyro.plate("ratings", rating.shape[0]):
        numpyro.sample("rating", dist.Normal((U[user] * V[item]).sum(-1), sd), obs=rating)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    cells = rng.permutation(48)[:36]
    user, item = cells // 6, cells % 6
    U, V = rng.normal(size=(8, 2)), rng.normal(size=(6, 2))
    return (user, item, (U[user] * V[item]).sum(-1) + 0.3 * rng.normal(size=36)), {}


def start(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed + 100)
    return {"U": rng.normal(size=(8, 2)), "V": rng.normal(size=(6, 2))}


def oracle(start, user, item, rating):
    return factorisation.gaussian(user, item, rating, sd=0.3, start=start)


CASE = Case(
    "matrix_factorisation", model, arguments, rows=(0, 1, 2), start=start, oracle=oracle, restarts=3
)


def test_sweeps_equal_the_hand_written_ones():
    assert_sweeps_equal(CASE)
