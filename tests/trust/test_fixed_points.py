"""Other optima of coordinate ascent count by what they would move, not by their mass alone."""

import math
import warnings

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound.trust.against import Moments
from lowerbound.trust.estimates import MEAN, SD
from lowerbound.trust.optima.fixed_points import _moved as moved

pytestmark = pytest.mark.judged
STARTS = lb.CAVI(restarts=8)


def slab(y, sd):
    """An effect that is there or not."""
    there = numpyro.sample("there", dist.Bernoulli(0.5))
    b = numpyro.sample("b", dist.Normal(0.0, sd))
    numpyro.sample("y", dist.Normal(b * there, 1.0).expand([len(y)]).to_event(1), obs=y)


def truth(y, sd):
    """Mean and sd of the effect: its prior, or what the data say, by their evidence."""
    precision = len(y) + sd**-2
    mean = y.sum() / precision
    odds = math.exp(0.5 * precision * mean**2) / (sd * math.sqrt(precision))
    share = odds / (1.0 + odds)
    square = share * (mean**2 + 1.0 / precision) + (1.0 - share) * sd**2
    return share * mean, math.sqrt(square - (share * mean) ** 2)


@pytest.mark.parametrize("shift", [0.5, 0.8, 1.2, 1.3, 1.6])
@pytest.mark.parametrize("sd", [3.0, 1.5])
def test_a_lesser_optimum_counts_where_it_moves_the_moments(shift, sd):
    y = shift + np.linspace(-1.0, 1.0, 9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lb.errors.TrustWarning)
        fit = lb.fit(slab, y, np.array(sd), method=STARTS)
    mean, spread = truth(y, sd)
    off = abs(fit.mean("b") - mean) / spread / MEAN, abs(math.log(fit.sd("b") / spread)) / SD
    assert abs(max(off) - 1.0) > 0.1  # none of them is at a limit
    assert (fit.verdict.trust == "all") == (max(off) < 1.0)
    assert (fit.verdict.trust == "nothing") <= (off[0] > 1.0)


def test_other_names_of_components_move_nothing():
    rng = np.random.default_rng(0)
    draws = rng.normal([0.0, 5.0, 9.0], [1.0, 2.0, 0.5], size=(400, 3))
    one, other = Moments.of_draws(draws), Moments.of_draws(draws[:, [2, 0, 1]])
    assert np.allclose(moved(one, other, 0.3), 0.0)
    shift, spread = moved(one, Moments.of_draws(draws + 20.0), 0.01)
    # A hundredth of the mass twenty away: variances grow by 4 = 0.01 * 20 ** 2, about.
    assert math.isclose(spread, 0.5 * math.log1p(3.96 / draws[:, 2].var()), rel_tol=0.01)
    assert shift < 0.2
