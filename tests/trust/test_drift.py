"""Short chains from q: they find widths that q has not, where its factors hang together."""

import numpy as np
import pytest

from lowerbound.result.verdicts import Drawn
from lowerbound.trust.drift import drifted

SIZE, POINTS = 60, 40_000


def pairs(rho):
    """A Gaussian of pairs, and draws of its mean field: sds of sqrt(1 - rho^2)."""
    precision = np.eye(SIZE)
    block = np.linalg.inv([[1.0, rho], [rho, 1.0]])
    for first in range(0, 8, 2):
        precision[first : first + 2, first : first + 2] = block

    def density(u):
        slopes = -u @ precision
        return 0.5 * (u * slopes).sum(axis=1), slopes

    return density, 1.0 / np.sqrt(np.diagonal(precision))


def drawn(density, sds, seed):
    vectors = np.random.default_rng(seed).normal(size=(512, SIZE)) * sds
    values, slopes = density(vectors)
    return Drawn(vectors, values, slopes, np.zeros(512), vectors[:0])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rho", [0.0, 0.9, 0.97])
def test_chains_find_the_sds_of_correlated_numbers(rho, seed):
    """An sd of 256 chains is 20% off once in 10^5 numbers; of q it is 0.24 where rho is 0.97."""
    density, sds = pairs(rho)
    moved = drifted(density, drawn(density, sds, seed), POINTS, seed)
    assert moved.accepted > 0.6
    assert (abs(np.log(moved.vectors.std(axis=0))) < 0.2).all()
    assert (abs(moved.vectors.mean(axis=0)) < 0.3).all()


def test_few_points_leave_no_chains():
    density, sds = pairs(0.5)
    assert drifted(density, drawn(density, sds, 0), 1000) is None
