"""Pareto tails of importance weights: shapes are found, and equal weights are perfect."""

import numpy as np
import pytest
from scipy import stats

from lowerbound.family.numerics.pareto import pareto_fit, smoothed_weights


@pytest.mark.parametrize("shape", [-0.3, 0.2, 0.5, 0.9])
def test_the_shape_of_a_pareto_law_is_found(shape):
    quantiles = stats.genpareto(shape, scale=3.0).ppf((np.arange(2000) + 0.5) / 2000)
    found, scale = pareto_fit(quantiles)
    assert found == pytest.approx(shape, abs=0.05)
    assert scale == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize("degrees", [1.2, 2.0, 4.0])
def test_k_hat_is_one_over_the_degrees_of_freedom_of_the_tail(degrees):
    """Weights of tail index a have k = 1 / a; 20,000 draws, seed 0."""
    weights = np.random.default_rng(0).pareto(degrees, 20_000) + 1.0
    log_weights, k_hat = smoothed_weights(np.log(weights))
    assert k_hat == pytest.approx(1 / degrees, abs=0.12)
    assert np.exp(log_weights).sum() == pytest.approx(1.0)


def test_weights_that_are_equal_are_perfect_and_few_tell_nothing():
    assert smoothed_weights(np.full(100, -3.0))[1] == 0.0
    assert smoothed_weights(np.arange(10.0))[1] == np.inf


def test_smoothing_keeps_the_order_and_all_but_the_tail():
    raw = np.random.default_rng(1).standard_normal(400) * 2
    smoothed, _ = smoothed_weights(raw)
    order = np.argsort(raw)
    assert (np.diff(smoothed[order]) >= -1e-12).all()
    shift = (smoothed - raw)[order[:300]]
    np.testing.assert_allclose(shift, shift[0], atol=1e-12)
