"""Densities without data, of latent values, and of sites with sample_shape."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import lowerbound as lb
from lowerbound import errors
from lowerbound.model import trace_model

RNG = np.random.default_rng(0)
Y = RNG.normal(size=7)
CORRELATED = np.array([[2.0, 1.2, 0.0], [1.2, 1.0, 0.3], [0.0, 0.3, 0.5]])

# --- No data: a density is a density ---


def funnel(dimension):
    y = numpyro.sample("y", dist.Normal(0.0, 3.0))
    numpyro.sample("x", dist.Normal(0.0, jnp.exp(y / 2)).expand([dimension]).to_event(1))


def gaussian():
    loc = jnp.array([1.0, -2.0, 0.5])
    numpyro.sample("x", dist.MultivariateNormal(loc, jnp.asarray(CORRELATED)))


def priors():
    a = numpyro.sample("a", dist.Normal(1.0, 2.0))
    numpyro.sample("b", dist.Normal(a, 1.0))
    numpyro.sample("g", dist.Gamma(3.0, 2.0))


def banana():
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    numpyro.factor("bend", dist.Normal(x**2, 0.5).log_prob(numpyro.sample("y", flat())))


def flat():
    return dist.ImproperUniform(dist.constraints.real, (), ())


def unobserved(x, y=None):
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(w * x, 1.0), obs=y)


def test_a_funnel():
    fit = lb.fit(funnel, 9)
    assert fit.elbo == pytest.approx(0.0, abs=1e-6)
    assert fit.mean("y") == pytest.approx(0.0, abs=1e-5)
    assert fit.sd("y") == pytest.approx(3.0, rel=1e-5)


@pytest.mark.parametrize("method", ["auto", lb.Gaussian()], ids=["auto", "Gaussian"])
def test_a_correlated_gaussian(method):
    fit = lb.fit(gaussian, method=method)
    assert fit.elbo == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(fit.mean("x"), [1.0, -2.0, 0.5], atol=1e-6)
    np.testing.assert_allclose(fit.sd("x"), np.sqrt(np.diag(CORRELATED)), rtol=1e-6)


def test_priors_alone():
    fit = lb.fit(priors)
    assert fit.elbo == pytest.approx(0.0, abs=1e-12)
    assert fit.sd("b") == pytest.approx(np.sqrt(5.0))
    assert fit.mean("g") == pytest.approx(1.5)


def test_a_factor_alone():
    fit = lb.fit(banana)
    assert fit.mean("x") == pytest.approx(0.0, abs=0.05)
    assert fit.sd("x") == pytest.approx(1.0, rel=0.1)


def test_the_plan_says_that_there_are_no_data(capsys):
    text = str(lb.explain(unobserved, Y))
    assert text.startswith("CAVI for unobserved: no data\n")
    assert text.endswith("The model observes nothing: q approximates its prior. 'y' is None.")


def test_what_a_fit_without_data_can_do():
    fit = lb.fit(gaussian)
    assert fit.sample(5)["x"].shape == (5, 3)
    assert fit.predictive(seed=0) == {}
    assert list(fit.summary().index)
    with pytest.raises(errors.NoObservedSiteError) as caught:
        fit.log_predictive()
    assert str(caught.value) == (
        "The model has no observed site; its latent sites are 'x'.\n"
        "Expected at least one numpyro.sample with obs=...: without data there is no density of "
        "data. fit.sample() draws from the fit."
    )


# --- Observed latent values, and distributions that declare no parameters ---


class Shell(dist.Distribution):
    """A density of its own, which declares no parameters to JAX."""

    support = dist.constraints.real_vector

    def __init__(self, loc):
        self.loc = loc
        super().__init__(batch_shape=loc.shape[:-1], event_shape=loc.shape[-1:])

    def sample(self, key, sample_shape=()):
        return jnp.zeros(sample_shape + self.shape())

    def log_prob(self, value):
        return -0.5 * (jnp.linalg.norm(value - self.loc, axis=-1) - 2.0) ** 2


def shell(centre):
    x = numpyro.sample("x", dist.Uniform(-6.0, 6.0).expand([2]).to_event(1))
    numpyro.sample("shell", Shell(centre), obs=x)


def test_a_latent_vector_that_is_observed():
    fit = lb.fit(shell, np.array([-1.0, 0.5]))
    assert fit.elbo <= _log_volume(np.array([-1.0, 0.5])) + 3 * fit.elbo_error


def _log_volume(centre):
    grid = (np.arange(600) + 0.5) / 600 * 12 - 6
    points = np.stack(np.meshgrid(grid, grid), axis=-1)
    return np.log(np.mean(np.exp(-0.5 * (np.linalg.norm(points - centre, axis=-1) - 2) ** 2)))


def test_a_latent_vector_that_a_gaussian_observes():
    def model(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([7]).to_event(1))
        numpyro.sample("near", dist.MultivariateNormal(y, 0.25 * jnp.eye(7)), obs=x)

    fit = lb.fit(model, Y)
    np.testing.assert_allclose(fit.mean("x"), 0.8 * Y, rtol=1e-6)
    np.testing.assert_allclose(fit.sd("x"), np.sqrt(0.2), rtol=1e-6)


def test_data_that_no_density_depends_on():
    def model(y):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        numpyro.sample("shell", Shell(jnp.zeros(2) + len(y)), obs=x)

    assert trace_model(model, (Y,)).ignored == ("y",)


# --- sample_shape ---


def shaped(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.5))
    a = numpyro.sample("a", dist.Normal(mu, 0.7), sample_shape=(7,))
    numpyro.sample("y", dist.Normal(a, 1.0), obs=y)


def expanded(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.5))
    a = numpyro.sample("a", dist.Normal(mu, 0.7).expand([7]))
    numpyro.sample("y", dist.Normal(a, 1.0), obs=y)


@pytest.mark.parametrize(
    "method",
    ["auto", lb.CAVI(), lb.Gaussian(), lb.Over(("mu",)), lb.Given(("mu",))],
    ids=["auto", "CAVI", "Gaussian", "Gaussian of some", "grid"],
)
def test_a_site_with_sample_shape(method):
    fits = [lb.fit(program, Y, method=method) for program in (shaped, expanded)]
    assert fits[0].elbo == pytest.approx(fits[1].elbo, rel=1e-9)
    np.testing.assert_allclose(fits[0].mean("a"), fits[1].mean("a"), rtol=1e-7)
    assert fits[0].sample(3)["a"].shape == (3, 7)


def test_sample_shape_of_vectors_in_a_plate():
    def model(y, shape):
        with numpyro.plate("rows", 2):
            x = numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)), **shape)
        numpyro.sample("y", dist.Normal(x.sum((0, -1)), 1.0).to_event(1), obs=y)

    found = trace_model(model, (Y[:2], {"sample_shape": (3, 2)}))
    assert found.latent["x"].batch_shape == (3, 2)
    assert found.latent["x"].event_shape == (2,)
    fit = lb.fit(model, Y[:2], {"sample_shape": (3, 2)})
    np.testing.assert_allclose(fit.mean("x").sum((0, -1)), Y[:2] * 6 / 7, rtol=1e-6)
