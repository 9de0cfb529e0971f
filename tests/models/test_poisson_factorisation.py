"""Poisson factorisation with explicit auxiliary counts: the optimal q(z) is multinomial."""

import numpy as np
import numpyro
import numpyro.distributions as dist

from tests.models.agreement import assert_sweeps_equal
from tests.models.case import Arguments, Case
from tests.oracles import factorisation


def model(x, K=2, a=0.8, b=0.5):
    users, items = x.shape
    theta = numpyro.sample("theta", dist.Gamma(a, b).expand([users, K]).to_event(2))
    beta = numpyro.sample("beta", dist.Gamma(a, b).expand([items, K]).to_event(2))
    z = numpyro.sample("z", dist.Poisson(theta[:, None, :] * beta[None, :, :]).to_event(3))
    numpyro.sample("x", dist.Delta(z.sum(-1)).to_event(2), obs=x)


def arguments(seed: int) -> Arguments:
    rng = np.random.default_rng(seed)
    return (rng.poisson(rng.gamma(1.0, 1.0, size=(8, 2)) @ rng.gamma(1.0, 1.0, size=(2, 6))),), {}


def start(seed: int) -> dict[str, np.ndarray]:
    (x,), _ = arguments(seed)
    rng = np.random.default_rng(seed + 100)
    first = rng.binomial(x, 0.5)
    return {
        "theta": rng.gamma(2.0, 0.5, size=(8, 2)),
        "beta": rng.gamma(2.0, 0.5, size=(6, 2)),
        "z": np.stack([first, x - first], axis=-1),
    }


def oracle(start, x):
    return factorisation.poisson(x, a=0.8, b=0.5, start=start)


CASE = Case("poisson_factorisation", model, arguments, start=start, oracle=oracle, restarts=3)


def test_sweeps_equal_the_hand_written_ones():
    assert_sweeps_equal(CASE)
