"""Laws that state a density alone: NUTS needs no draws of a prior, nor does a fit."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import lowerbound as lb
from lowerbound import errors
from lowerbound.model import trace_model

Y = np.random.default_rng(2).normal(3.0, 2.0, 60)


class HalfStudentT(dist.Distribution):
    """A user's own law with a density alone."""

    arg_constraints: ClassVar = {}
    support = constraints.positive

    def __init__(self, df, scale):
        self.df, self.scale = df, scale
        super().__init__(batch_shape=jnp.shape(scale))

    def log_prob(self, value):
        return jnp.log(2.0) + dist.StudentT(self.df, 0.0, self.scale).log_prob(value)


class WithoutPackage(dist.StudentT):
    """One whose draws need a package that is not installed, as NumPyro has them."""

    def sample(self, key, sample_shape=()):
        raise ImportError("Please install a package for this.")


def own(y):
    sigma = numpyro.sample("sigma", HalfStudentT(3.0, 10.0))
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    numpyro.sample("y", dist.Normal(mu, sigma), obs=y)


def expanded(y):
    sigma = numpyro.sample("sigma", HalfStudentT(3.0, 10.0).expand([1]).to_event(1))
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    numpyro.sample("y", dist.Normal(mu, sigma[0]), obs=y)


def truncated(y):
    prior = dist.TruncatedDistribution(dist.StudentT(3.0, 0.0, 10.0), low=0.0)
    sigma = numpyro.sample("sigma", prior)
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    numpyro.sample("y", dist.Normal(mu, sigma), obs=y)


def not_installed(y):
    sigma = numpyro.sample("sigma", dist.HalfCauchy(10.0))
    mu = numpyro.sample("mu", WithoutPackage(3.0, 0.0, 10.0))
    numpyro.sample("y", dist.Normal(mu, sigma), obs=y)


PROGRAMS = {p.__name__: p for p in (own, expanded, truncated, not_installed)}


def on_a_grid(program):
    """Mean and sd of sigma, by sums over a grid."""
    mu, log_sigma = np.linspace(0.5, 5.5, 301), np.linspace(-0.5, 2.0, 301)

    def log_p(m, s):
        found = dist.Normal(m, jnp.exp(s)).log_prob(Y).sum() + s
        if program is not_installed:
            prior = dist.StudentT(3.0, 0.0, 10.0).log_prob(m)
            return found + prior + dist.HalfCauchy(10.0).log_prob(jnp.exp(s))
        prior = dist.StudentT(3.0, 0.0, 10.0).log_prob(jnp.exp(s))
        return found + prior + dist.Normal(0.0, 10.0).log_prob(m)

    with jax.enable_x64(True):
        each = jax.vmap(lambda m: jax.vmap(lambda s: log_p(m, s))(jnp.asarray(log_sigma)))
        table = np.asarray(each(jnp.asarray(mu)))
    w = np.exp(table - table.max()).sum(axis=0)
    sigma = np.exp(log_sigma)
    mean = (w * sigma).sum() / w.sum()
    return mean, np.sqrt((w * (sigma - mean) ** 2).sum() / w.sum())


@pytest.mark.judged
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_fit_is_the_posterior(name):
    fit = lb.fit(PROGRAMS[name], Y)
    mean, sd = on_a_grid(PROGRAMS[name])
    assert fit.verdict.trust == "all"
    assert np.ravel(fit.mean("sigma")) == pytest.approx(mean, abs=0.02 * sd)
    assert np.ravel(fit.sd("sigma")) == pytest.approx(sd, rel=0.03)


@pytest.mark.parametrize("name", ["own", "expanded", "not_installed"])
def test_draws_stand_in_where_none_are_stated(name):
    model = trace_model(PROGRAMS[name], (Y,))
    drawn = [model.draw(jax.random.key(seed)) for seed in range(3)]
    assert all(np.isfinite(value).all() for draw in drawn for value in draw.values())
    assert len({float(np.ravel(draw["sigma"])[0]) for draw in drawn}) == 3
    assert all(np.ravel(draw["sigma"])[0] > 0.0 for draw in drawn)


@pytest.mark.parametrize("name", ["own", "not_installed"])
def test_a_calibration_needs_the_draws_of_the_prior(name):
    with pytest.raises(errors.NotGenerativeError, match="cannot be drawn from"):
        lb.calibrate(PROGRAMS[name], Y, simulations=20)


class Drawless(dist.Normal):
    """A normal law with a density alone."""

    def sample(self, key, sample_shape=()):
        raise NotImplementedError


def observed_so(y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    with numpyro.plate("rows", 60):
        numpyro.sample("y", Drawless(mu, 2.0), obs=y)


def test_predictions_name_the_site_that_cannot_be_drawn():
    fit = lb.fit(observed_so, Y)
    assert fit.mean("mu") == pytest.approx(Y.mean(), abs=0.02)
    with pytest.raises(errors.NoDrawsError, match=r"Site 'y' cannot be drawn: Drawless .*py:"):
        fit.predictive()
    with pytest.raises(errors.NoDrawsError, match="Site 'y'"):
        fit.to_arviz(groups=["posterior_predictive"])
    left = fit.to_arviz()
    assert "posterior" in left
    assert "posterior_predictive" not in left
