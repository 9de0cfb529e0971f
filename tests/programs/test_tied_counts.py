"""Counts without an upper end, summed out beside continuous sites: as far as they have mass."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import lowerbound as lb
from lowerbound import errors

TOTALS = np.array([3, 5, 7, 4])
RATES = np.linspace(1e-4, 25.0, 20_001)


def by_factor(t):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("rows", len(t)):
        i = numpyro.sample("i", dist.Poisson(rate))
        j = numpyro.sample("j", dist.Poisson(3.0))
        numpyro.factor("tie", jnp.where(i + j == t, 0.0, -jnp.inf))


def by_observation(t):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("rows", len(t)):
        i = numpyro.sample("i", dist.Poisson(rate))
        j = numpyro.sample("j", dist.Poisson(3.0))
        numpyro.sample("t", dist.Delta(i + j), obs=t)


def by_remainder(t):
    """The other count is not a site: it has the density of what is left."""
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("rows", len(t)):
        i = numpyro.sample("i", dist.Poisson(rate))
        left = jnp.maximum(t - i, 0)
        numpyro.factor("left", jnp.where(i <= t, dist.Poisson(3.0).log_prob(left), -jnp.inf))


@pytest.fixture(scope="module", params=[by_factor, by_observation, by_remainder])
def fit(request):
    return lb.fit(request.param, TOTALS)


def test_the_posterior_is_that_of_a_sum_of_two(fit):
    # t ~ Poisson(rate + 3), and given t and the rate i is binomial
    log_p = stats.gamma.logpdf(RATES, 2.0)
    log_p += stats.poisson.logpmf(TOTALS[:, None], RATES + 3.0).sum(axis=0)
    weight = np.exp(log_p - log_p.max())
    total = np.trapezoid(weight, RATES)
    mean = np.trapezoid(weight * RATES, RATES) / total
    share = np.trapezoid(weight * RATES / (RATES + 3.0), RATES) / total
    sd = np.sqrt(np.trapezoid(weight * (RATES - mean) ** 2, RATES) / total)
    evidence = np.log(total) + log_p.max()
    assert evidence - 0.1 < fit.elbo < evidence  # of a Gaussian of the log of the rate
    assert fit.mean("rate") == pytest.approx(mean, abs=0.1 * sd)
    np.testing.assert_allclose(fit.mean("i"), TOTALS * share, atol=0.05)
    draws = fit.sample(100)
    assert np.all(draws["i"] <= TOTALS)
    if "j" in draws:
        assert np.all(draws["i"] + draws["j"] == TOTALS)


def test_a_file_holds_how_far_they_were_summed(fit, tmp_path):
    path = tmp_path / "fit.lb"
    fit.save(path)
    loaded = lb.load(path, fit.original, TOTALS)
    np.testing.assert_allclose(loaded.mean("i"), fit.mean("i"), rtol=1e-9)


def large(y):
    rate = numpyro.sample("rate", dist.LogNormal(4.0, 1.0))
    i = numpyro.sample("i", dist.Poisson(rate))
    numpyro.sample("y", dist.Normal(i, 2.0), obs=y)


def test_a_count_beyond_the_values_that_are_summed_over():
    with pytest.raises(errors.CutCountsError) as caught:
        lb.fit(large, np.array([60.5]), method=lb.Gaussian())
    assert str(caught.value) == (
        "Site 'i' was summed over 0, ..., 15, and the last of these values has a probability of "
        "1.\nExpected counts of the size of those in the data. Bound the site, or use "
        "method=lb.ScoreFunctions(), which takes as many values as it needs."
    )


def test_the_ladder_goes_on_from_there():
    with pytest.warns(errors.LadderWarning, match="was summed over 0, ..., 15"):
        fit = lb.fit(large, np.array([60.5]))
    assert fit.mean("i") == pytest.approx(60.5, abs=1.5)
