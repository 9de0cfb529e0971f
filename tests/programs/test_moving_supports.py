"""Data whose bounds are latent: what lies outside of them has density zero, as NumPyro says.

NumPyro states it by validating values, which is off while a fit runs. Oracles are sums on fine
grids.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy import stats

import lowerbound as lb
from lowerbound.model import trace_model

Y = np.random.default_rng(0).uniform(0.0, 3.0, 20)
COUNTS = np.array([7, 9, 8])
TRIALS = jnp.arange(30)


def uniform(y):
    hi = numpyro.sample("hi", dist.HalfNormal(5.0))
    numpyro.sample("y", dist.Uniform(0.0, hi).expand([len(y)]), obs=y)


def events(y):
    hi = numpyro.sample("hi", dist.Gamma(2.0, 0.5))
    numpyro.sample("y", dist.Uniform(0.0, hi).expand([len(y)]).to_event(1), obs=y)


def pareto(y):
    m = numpyro.sample("m", dist.Gamma(2.0, 1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Pareto(m, 1.5), obs=y)


def unknown_trials(k):
    n = numpyro.sample("n", dist.Categorical(probs=jnp.ones(30) / 30))
    p = numpyro.sample("p", dist.Beta(2.0, 2.0))
    with numpyro.plate("rows", len(k)):
        numpyro.sample("k", dist.Binomial(n, p), obs=k)


def prior_bound():
    hi = numpyro.sample("hi", dist.Uniform(1.0, 2.0))
    numpyro.sample("u", dist.Uniform(0.0, hi))


def on_grid(log_density, points):
    """The log of the integral, the mean and the sd of a density on evenly spaced points."""
    values = log_density(points)
    weight = np.exp(values - values.max())
    total = np.trapezoid(weight, points)
    mean = np.trapezoid(weight * points, points) / total
    variance = np.trapezoid(weight * (points - mean) ** 2, points) / total
    return np.log(total) + values.max(), mean, np.sqrt(variance)


ORACLES = {
    uniform: (
        "hi",
        Y,
        lambda t: stats.halfnorm.logpdf(t, scale=5.0) - len(Y) * np.log(t),
        np.linspace(Y.max(), 60.0, 2_000_001),
    ),
    events: (
        "hi",
        Y,
        lambda t: stats.gamma.logpdf(t, 2.0, scale=2.0) - len(Y) * np.log(t),
        np.linspace(Y.max(), 100.0, 2_000_001),
    ),
    pareto: (
        "m",
        1.0 + Y,
        lambda m: (
            stats.gamma.logpdf(m, 2.0)
            + len(Y) * (np.log(1.5) + 1.5 * np.log(m))
            - 2.5 * np.log(1.0 + Y).sum()
        ),
        np.linspace(1e-9, 1.0 + Y.min(), 2_000_001),
    ),
}


@pytest.mark.parametrize("model", ORACLES, ids=lambda model: model.__name__)
def test_a_bound_lies_beyond_the_data(model):
    site, y, log_posterior, points = ORACLES[model]
    evidence, mean, sd = on_grid(log_posterior, points)
    fit = lb.fit(model, y)
    assert fit.converged
    np.testing.assert_allclose(fit.elbo, evidence, atol=2e-4)
    np.testing.assert_allclose([fit.mean(site), fit.sd(site)], [mean, sd], rtol=2e-3)


def test_a_number_of_trials_is_at_least_the_successes():
    p = np.linspace(0.0005, 0.9995, 1000)
    n = np.arange(30)[:, None]
    joint = stats.binom.pmf(COUNTS[:, None, None], n, p).prod(0) * stats.beta.pdf(p, 2, 2) / 30
    fit = lb.fit(unknown_trials, COUNTS)
    np.testing.assert_allclose(fit.elbo, np.log(joint.sum() * 1e-3), atol=1e-3)
    np.testing.assert_allclose(fit.mean("p"), (joint * p).sum() / joint.sum(), atol=1e-3)
    draws = fit.sample(500)["n"]
    assert draws.min() >= COUNTS.max()


@pytest.mark.parametrize(("model", "y"), [(uniform, Y), (events, Y), (pareto, 1.0 + Y)])
def test_the_density_is_numpyros_with_validation(model, y):
    traced = trace_model(model, (y,))
    (site,) = traced.latent
    with jax.enable_x64(True):
        for value in (0.5, 1.001, 2.0, 4.0):
            own = traced.log_density({site: jnp.asarray(value)}, {"y": y})
            parts = sum(d.log_prob().sum() for d in traced.run({site: value}, {"y": y}).values())
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Out-of-support values")
                theirs, _ = log_density(model, (y,), {}, {site: jnp.asarray(value)})
            np.testing.assert_allclose([own, parts], float(theirs), rtol=1e-12)


def test_a_latent_bound_of_a_latent_site():
    fit = lb.fit(prior_bound)
    draws = fit.sample(2000)
    assert (draws["u"] < draws["hi"]).all()
    # E u = E hi / 2 = 0.75, with an error of 0.43 / sqrt(2000) = 0.01: four of these.
    np.testing.assert_allclose(draws["u"].mean(), 0.75, atol=0.04)


def by_width(y):
    low = numpyro.sample("low", dist.Normal(0.0, 5.0))
    width = numpyro.sample("width", dist.HalfNormal(5.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Uniform(low, low + width), obs=y)


def by_ends(y):
    low = numpyro.sample("low", dist.Normal(0.0, 5.0))
    high = numpyro.sample("high", dist.Normal(5.0, 5.0))
    numpyro.sample("y", dist.Uniform(low, high).expand([len(y)]), obs=y)


def by_middle(y):
    middle = numpyro.sample("middle", dist.Normal(0.0, 5.0))
    half = numpyro.sample("half", dist.HalfNormal(5.0))
    numpyro.sample("y", dist.Uniform(middle - half, middle + half).expand([len(y)]), obs=y)


# The log prior of both ends, and what is asked of them, up to a constant.
BOTH = {
    by_width: (
        lambda low, high: -(low**2 + (high - low) ** 2) / 50.0,
        {"low": lambda low, _: low, "width": lambda low, high: high - low},
    ),
    by_ends: (
        lambda low, high: -(low**2 + (high - 5.0) ** 2) / 50.0,
        {"low": lambda low, _: low, "high": lambda _, high: high},
    ),
    by_middle: (
        lambda low, high: -(((low + high) / 2) ** 2 + ((high - low) / 2) ** 2) / 50.0,
        {"middle": lambda low, high: (low + high) / 2, "half": lambda low, high: (high - low) / 2},
    ),
}


@pytest.mark.parametrize("model", BOTH, ids=lambda model: model.__name__)
def test_both_bounds_are_latent(model):
    prior, asked = BOTH[model]
    low = Y.min() - np.linspace(0.0, 4.0, 2001)[:, None]
    high = Y.max() + np.linspace(0.0, 4.0, 2001)
    weight = np.exp(prior(low, high) - len(Y) * np.log((high - low) / np.ptp(Y)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lb.errors.ConvergenceWarning)
        fit = lb.fit(model, Y)
    assert all(site in fit.method for site in asked)  # on a grid: no Gaussian stands at a wall
    off = []
    for site, value in asked.items():
        values = value(low, high)
        mean = (weight * values).sum() / weight.sum()
        sd = np.sqrt((weight * (values - mean) ** 2).sum() / weight.sum())
        off += [abs(fit.mean(site) - mean) / sd, abs(np.log(fit.sd(site) / sd))]
    # At a wall that is askew a grid may be too coarse, and then says so.
    assert max(off) < 0.1 or not fit.converged


# --- Totals of counts that are data ---

TOTALS, TABLE = np.array([5, 3, 9]), np.array([[2, 3], [0, 3], [4, 5]])


def tables(total, y):
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Multinomial(total, p), obs=y)


def logits(total, y):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Multinomial(total, logits=a), obs=y)


@pytest.mark.parametrize("model", [tables, logits])
def test_totals_that_are_data_make_a_known_support(model):
    with jax.enable_x64(True):
        site = trace_model(model, (TOTALS, TABLE)).observed["y"]
    assert not site.moving
    np.testing.assert_array_equal(site.support.upper_bound, TOTALS)


def test_counts_with_totals_that_are_data_have_exact_updates():
    fit = lb.fit(tables, TOTALS, TABLE)
    np.testing.assert_allclose(fit.posterior["p"].concentration, 1.0 + TABLE.sum(axis=0))


@pytest.mark.parametrize("model", [tables, logits])
def test_counts_that_do_not_add_up_are_named(model):
    with pytest.raises(lb.errors.SupportError, match=r"Site 'y' .*impossible values"):
        lb.fit(model, TOTALS + np.array([0, 1, 0]), TABLE)
