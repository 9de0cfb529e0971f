"""Points that the prior makes likely: quantiles, unless these are worlds away from the mean."""

import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

from lowerbound.model.prior_points import quantile

NONE = jnp.zeros(())


@pytest.mark.parametrize(
    "law", [dist.Normal(3.0, 2.0), dist.HalfCauchy(5.0), dist.LogNormal(-4.0, 2.0)]
)
def test_the_middle_is_the_median(law):
    assert quantile(law, NONE) == pytest.approx(float(law.icdf(jnp.array(0.5))), rel=1e-6)


def test_a_median_that_is_worlds_below_the_mean_gives_way_to_it():
    """Half of the law is below e^-60, where no data lead anywhere; its mean is e^-10."""
    law = dist.LogNormal(-60.0, 10.0)
    assert quantile(law, NONE) == pytest.approx(float(law.mean), rel=1e-4)
    assert quantile(law, jnp.array(1.0)) == pytest.approx(2.718282 * float(law.mean), rel=1e-3)


def test_a_mean_that_is_worlds_above_the_median_does_not():
    law = dist.LogNormal(0.0, 10.0)
    assert quantile(law, NONE) == pytest.approx(1.0)


@pytest.mark.parametrize("law", [dist.Gamma(0.01, 0.01), dist.Beta(2.0, 6.0)])
def test_quantiles_that_have_to_be_searched_for_are_not(law, monkeypatch):
    monkeypatch.setattr(type(law), "icdf", lambda *_: pytest.fail("asked for a quantile"))
    assert quantile(law, NONE) == pytest.approx(float(law.mean), rel=1e-6)


@pytest.mark.parametrize("concentration", [0.5, 1.0, 1])
def test_a_law_without_a_mean_has_a_likely_value(concentration):
    """NumPyro divides by zero for the mean of the second, in Python's own numbers."""
    value = float(quantile(dist.InverseGamma(concentration, 1.0), NONE))
    assert 0.1 < value < 10.0
