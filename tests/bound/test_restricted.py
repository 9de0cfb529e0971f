"""The bound of a q that reaches a little beyond where the density is positive."""

import numpy as np
import pytest
from scipy.stats import norm

from lowerbound.bound.fixed_draws import averaged
from lowerbound.bound.restricted import restricted
from lowerbound.errors import ZeroDensityError


def test_the_bound_of_a_truncated_normal_is_its_evidence():
    """With p = N(0, 1) on z > -3 and q = N(0, 1), q kept to z > -3 is the posterior: no noise."""
    z = norm.ppf((np.arange(100_000) + 0.5) / 100_000)
    ratios = np.where(z > -3.0, 0.0, -np.inf)
    found = restricted(ratios)
    assert found.elbo == pytest.approx(norm.logsf(-3.0), abs=1e-5)
    assert found.error == 0.0
    assert found.outside == pytest.approx(norm.cdf(-3.0), abs=1e-5)
    assert found.notes == (
        "0.0013 of q lies where the density is zero, or no number; the ELBO is that of q kept to "
        "where it is positive.",
    )


def test_nothing_is_left_out_where_all_is_finite():
    ratios = np.random.default_rng(0).normal(size=64)
    found = restricted(ratios)
    assert (found.elbo, found.outside, found.notes) == (ratios.mean(), 0.0, ())
    assert found.error == pytest.approx(ratios.std() / 8.0)
    halves = restricted(np.repeat(ratios, 2), pairs=True)
    assert halves.error == pytest.approx(found.error)


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
def test_more_than_a_few_draws_without_a_density_are_an_error(bad):
    ratios = np.zeros(100)
    ratios[:5] = bad
    with pytest.raises(ZeroDensityError, match=r"at 5.0% of 100 draws of q.\n  draw 0\n"):
        restricted(ratios, lambda draw: [f"draw {draw}"])


def test_a_few_points_without_a_derivative_say_nothing():
    draws = np.random.default_rng(1).normal(size=(100, 2))
    values, gradients = -0.5 * (draws**2).sum(axis=1), -draws.copy()
    gradients[:3] = np.nan
    found = averaged(draws, values, gradients, np.eye(2))
    np.testing.assert_allclose(found.slope, -draws[3:].sum(axis=0) / 100)
    assert np.isfinite(found.elbo)
    gradients[:10] = np.nan
    assert averaged(draws, values, gradients, np.eye(2)).elbo == -np.inf
