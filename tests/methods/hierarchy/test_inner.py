"""The best Gaussian given hyperparameters is the same, wherever the steps to it begin."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from lowerbound.methods.hierarchy.finding_theta import predictors_of
from lowerbound.methods.hierarchy.inner.given_hyperparameters import GivenHyperparameters
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.model import trace_model

GROUPS, TRIALS = np.arange(6).repeat(3), 200_000


def shares(deaths=None):
    """Rates of large populations: the log density is flat a few steps away, or -1e6."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    level = numpyro.sample("level", dist.Normal(0.0, 10.0))
    with numpyro.plate("groups", 6):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    logits = level + scale * z[GROUPS]
    with numpyro.plate("rows", len(GROUPS)):
        numpyro.sample("deaths", dist.Binomial(TRIALS, logits=logits), obs=deaths)


def counts(deaths=None):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("groups", 6):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(GROUPS)):
        numpyro.sample("deaths", dist.Poisson(jnp.exp(7.0 + scale * z[GROUPS])), obs=deaths)


@pytest.mark.parametrize("program", [shares, counts])
@pytest.mark.parametrize("elsewhere", [-6.0, -2.0, 3.0])
def test_steps_from_a_distant_solution_end_where_those_from_the_mode_do(program, elsewhere):
    deaths = np.random.default_rng(0).binomial(TRIALS, np.linspace(0.001, 0.1, 18))
    with jax.enable_x64(True):
        surface = GivenHyperparameters.of(predictors_of(trace_model(program, (deaths,), {}, None)))
        here = surface(np.zeros(1), (), False)
        other = surface(np.array([elsewhere]), (), False)
        led = surface(np.zeros(1), (other,), False)
    assert led.value == pytest.approx(here.value, abs=2e-3)
    np.testing.assert_allclose(led.loc, here.loc, atol=1e-2 * np.sqrt(here.variance.max()))


def quantiles(x, y=None):
    """A regression for a quantile: the slope of log p jumps where a row is met."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    a = numpyro.sample("a", dist.Normal(0.0, 5.0))
    b = numpyro.sample("b", dist.Normal(0.0, 5.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.AsymmetricLaplaceQuantile(a + b * x, scale, 0.9), obs=y)


def test_steps_end_where_slopes_that_jump_let_none_gain(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 3.0, 150)
    y = 0.5 * x + 0.3 * rng.standard_normal(150)
    calls = []
    expected = Predictors.expected
    monkeypatch.setattr(Predictors, "expected", lambda *a: calls.append(1) or expected(*a))
    with jax.enable_x64(True):
        surface = GivenHyperparameters.of(predictors_of(trace_model(quantiles, (x, y), {}, None)))
        solved, places = [], np.linspace(-2.5, 0.0, 6)
        for t in places:
            solved.append(surface(np.array([t]), solved[-1:], True))
    assert len(calls) < 75 * len(places)  # hundreds, where every step is halved to the end
    values = np.array([one.value for one in solved])
    assert np.isfinite(values).all()
    # The slopes are those of the values, though both are at the top no better than nodes tell.
    slopes = np.array([one.slope[0] for one in solved])
    between = 0.5 * (slopes[1:] + slopes[:-1]) * np.diff(places)
    np.testing.assert_allclose(np.diff(values), between, rtol=0.05)
