"""Means and sds of sites: exact or by draws, and kept."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose

import lowerbound as lb
from lowerbound.result.fitted import Fit

Y = np.array([1.2, 0.4, 2.2, 1.7, 0.9])


def places(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    numpyro.sample("both", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.deterministic("double", 2.0 * mu)
    numpyro.deterministic("pair", jnp.stack([mu, -mu]))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


@pytest.fixture(scope="module")
def fit():
    return lb.fit(places, Y)


def test_deterministic_sites_have_their_moments_of_the_same_draws(fit, monkeypatch):
    drawn = []
    sample = Fit.sample

    def counted(self, *args, **kwargs):
        drawn.append(args)
        return sample(self, *args, **kwargs)

    monkeypatch.setattr(Fit, "sample", counted)
    found = [fit.mean("double"), fit.sd("double"), *fit.mean("pair"), *fit.sd("pair")]
    assert len(drawn) == 1
    # Four standard errors of 10,000 draws.
    mean, sd = fit.mean("mu"), fit.sd("mu")
    assert_allclose(found, [2 * mean, 2 * sd, mean, -mean, sd, sd], atol=2 * 4 * sd / 100)


def test_a_mean_that_is_changed_by_its_reader_stays_that_of_the_fit(fit):
    for site in ("both", "pair"):
        mean, sd = fit.mean(site), fit.sd(site)
        before = mean.copy(), sd.copy()
        mean += 1.0
        sd += 1.0
        assert_allclose((fit.mean(site), fit.sd(site)), before)


def test_a_site_that_there_is_not_is_named_each_time(fit):
    for _ in range(2):
        with pytest.raises(lb.errors.ArgumentError, match=r"'nu' is no site of the fit"):
            fit.mean("nu")
