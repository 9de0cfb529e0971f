"""Gaussians on the unconstrained space: what cannot be fitted says why."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints

import lowerbound as lb
from lowerbound.errors import (
    ArgumentError,
    ConvergenceWarning,
    ImproperPosteriorError,
    NoFiniteStartError,
    UnsupportedModelError,
)
from tests.methods.gaussian.runs import fitted


def flat(name):
    return numpyro.sample(name, dist.ImproperUniform(constraints.real, (), ()))


def test_a_direction_that_the_data_leave_open_is_named():
    def model(y):
        a, b, c = flat("a"), flat("b"), flat("c")
        numpyro.sample("y", dist.Normal(a + b + c * jnp.arange(4.0), 1.0), obs=y)

    with pytest.raises(ImproperPosteriorError) as caught:
        fitted(model, np.array([0.1, 0.4, -0.3, 0.2]))
    text = str(caught.value)
    assert text in {
        "The posterior is improper: its log density is flat, or rises for ever, along "
        f"{names} on the unconstrained space.\n"
        f"Expected a posterior that integrates to one. Give {names} a proper prior, or drop "
        "what the data cannot tell apart."
        for names in ("'a', 'b'", "'b', 'a'")
    }


def test_a_scale_with_a_flat_prior_and_no_data_is_improper():
    def model(y):
        s = numpyro.sample("s", dist.ImproperUniform(constraints.positive, (), ()))
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(m + 0.0 * s, 1.0), obs=y)

    with pytest.raises(ImproperPosteriorError, match="along 's' on the unconstrained space"):
        fitted(model, np.array([0.1, 0.4]))


def test_wide_posteriors_are_not_improper():
    def model(y):
        m = flat("m")
        s = numpyro.sample("s", dist.ImproperUniform(constraints.positive, (), ()))
        numpyro.sample("y", dist.Normal(m, s), obs=y)

    y = 1e9 * np.array([1.0, -2.0, 3.0, 0.5, -1.5, 2.5, 0.1, -0.7])
    run = fitted(model, y)
    assert run.q.parameters["loc"][0] == pytest.approx(y.mean(), abs=0.1 * y.std())


def impossible(y):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(m, 0.0 * jnp.abs(m)), obs=y)


def test_no_finite_start_names_the_site_and_its_parameters():
    with pytest.raises(NoFiniteStartError) as caught:
        fitted(impossible, np.array([1.0, 2.0]))
    where = impossible.__code__.co_firstlineno + 2
    assert str(caught.value) == (
        "The log density is not finite at any of 128 starting points: the median of the prior, "
        "zero, and points around them.\n"
        "  Site 'y' has log density nan at the median of the prior: Normal(loc=0, scale=0)   "
        f"(test_blackbox_errors.py:{where})\n"
        "Expected a point where it is finite. Give one with lb.Gaussian(init={site: value, ...}), "
        "or correct the data or the prior of that site."
    )


def test_a_narrow_set_of_finite_points_is_found():
    def model(y):
        m = numpyro.sample("m", dist.Normal(0.0, 10.0))
        numpyro.factor("window", jnp.where(jnp.abs(m - 3.5) < 1.4, 0.0, -jnp.inf))
        numpyro.sample("y", dist.Normal(m, 1.0), obs=y)

    # The best Gaussian with all draws inside ends at the edge of the window, where no slope is 0.
    with pytest.warns(ConvergenceWarning, match="no step raises the ELBO"):
        run = fitted(model, np.array([3.4, 3.6]), draws=1024, starts=2)
    assert abs(run.q.parameters["loc"][0] - 3.5) < 1.4
    assert np.isfinite(run.elbo)
    # That of few draws reaches beyond it with more than a few of other draws.
    with pytest.warns(ConvergenceWarning, match="narrowed to 0.8 of it"):
        run = fitted(model, np.array([3.4, 3.6]), draws=64, starts=2)
    assert np.isfinite(run.elbo)


def test_a_gaussian_that_runs_off_under_proper_priors_is_not_called_improper():
    """A prior of e^(1e6 u) is proper, and no Gaussian is followed to its end."""

    def model(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.sample("s", dist.LogNormal(0.0, 1e6))
        numpyro.sample("y", dist.Normal(a * jnp.ones(2), 1.0), obs=y)

    with pytest.raises(ImproperPosteriorError) as caught:
        fitted(model, np.array([0.1, 0.4]))
    assert str(caught.value) == (
        "The Gaussian runs off along 's' on the unconstrained space: as far as it was followed, "
        "the log density is flat there, or rises.\n"
        "Expected a posterior that ends. Start near its mass with lb.Gaussian(init={site: value, "
        "...}), give 's' a narrower prior, or drop what the data cannot tell apart."
    )


def test_discrete_sites_are_refused():
    def model(y):
        k = numpyro.sample("k", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(1.0 * k, 1.0), obs=y)

    with pytest.raises(UnsupportedModelError) as caught:
        fitted(model, np.array([0.1, 0.9]))
    assert str(caught.value) == (
        "All latent sites are discrete: 'k'.\n"
        "Expected a continuous site that is left when these are summed out. Fit them by "
        "lb.Enumeration(). Or use method=lb.ScoreFunctions(), which takes discrete sites entry by "
        "entry."
    )


@pytest.mark.parametrize("kind", [lb.Laplace, lb.Delta])
def test_expansions_have_no_low_rank(kind):
    with pytest.raises(ArgumentError) as caught:
        kind(rank=5)
    assert str(caught.value) == f'{kind.__name__} got rank=5.\nExpected "full", "diagonal".'


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"rank": 0},
            "Gaussian got rank=0.\n"
            'Expected "auto", "full", "diagonal", "structured" or a rank of at least 1.',
        ),
        ({"draws": 0}, "Gaussian got draws=0.\nExpected an integer of at least 1, or None."),
        ({"starts": 0}, "Gaussian got starts=0.\nExpected an integer of at least 1."),
        ({"tolerance": 0}, "Gaussian got tolerance=0.\nExpected a number above 0."),
        (
            {"init": "mode"},
            "Gaussian got init='mode'.\nExpected \"auto\" or a dict of site values.",
        ),
    ],
)
def test_settings_are_checked(settings, text):
    with pytest.raises(ArgumentError) as caught:
        lb.Gaussian(**settings)
    assert str(caught.value) == text


def test_draws_must_exceed_twice_the_dimension():
    def model(y):
        m = numpyro.sample("m", dist.Normal(jnp.zeros(4), 1.0).to_event(1))
        numpyro.sample("y", dist.Normal(m, 1.0).to_event(1), obs=y)

    with pytest.raises(ArgumentError) as caught:
        fitted(model, np.arange(4.0), draws=8)
    assert str(caught.value) == (
        "Gaussian got draws=8 for a posterior of 4 dimensions.\n"
        "Expected more than 8, twice the dimension, or None."
    )


def test_a_method_shows_what_was_changed():
    assert repr(lb.Gaussian()) == "Gaussian()"
    assert repr(lb.Gaussian(rank="full", starts=2)) == "Gaussian(starts=2, rank='full')"
