"""NaN and infinite data are errors where they reach a density, and nowhere else."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import lowerbound as lb
from lowerbound import errors
from lowerbound.model import trace_model
from tests.laws.compilations import counted

RNG = np.random.default_rng(0)
X = RNG.normal(size=20)
Y = 1 + 2 * X + 0.5 * RNG.normal(size=20)
GONE = np.isin(np.arange(20), [2, 7, 11])
HOLES = np.where(GONE, np.nan, Y)
METHODS = pytest.mark.parametrize("method", ["auto", lb.Gaussian()], ids=["auto", "Gaussian"])


def line():
    a = numpyro.sample("a", dist.Normal(0.0, 5.0))
    b = numpyro.sample("b", dist.Normal(0.0, 5.0))
    return a, b


def plain(x, y):
    a, b = line()
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a + b * x, 0.5), obs=y)


def by_handler(x, y):
    a, b = line()
    with numpyro.plate("rows", len(x)), handlers.mask(mask=~jnp.isnan(y)):
        numpyro.sample("y", dist.Normal(a + b * x, 0.5), obs=y)


def by_distribution(x, y):
    a, b = line()
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a + b * x, 0.5).mask(~jnp.isnan(y)), obs=y)


def by_factor(x, y):
    a, b = line()
    known = ~jnp.isnan(y)
    log_prob = dist.Normal(a + b * x, 0.5).log_prob(jnp.where(known, y, 0.0))
    numpyro.factor("y", jnp.where(known, log_prob, 0.0))


def by_python(x, y):
    a, b = line()
    known = np.flatnonzero(~np.isnan(y))
    numpyro.sample("y", dist.Normal(a + b * x[known], 0.5), obs=y[known])


@METHODS
@pytest.mark.parametrize("program", [by_handler, by_distribution, by_factor, by_python])
def test_observations_that_the_program_leaves_out(program, method):
    fit = lb.fit(program, X, HOLES, method=method)
    expected = lb.fit(plain, X[~GONE], Y[~GONE], method=method)
    assert fit.elbo == pytest.approx(expected.elbo, rel=1e-7)
    assert fit.mean("b") == pytest.approx(expected.mean("b"), rel=1e-6)


def in_rows(x, y):
    a, b = line()
    with numpyro.plate("rows", len(x)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(a + b * jnp.where(jnp.isnan(x), z, x), 0.5), obs=y)


def in_place(x, y):
    a, b = line()
    gone = np.isnan(x)
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([int(gone.sum())]))
    whole = jnp.asarray(x).at[np.nonzero(gone)[0]].set(z)
    numpyro.sample("y", dist.Normal(a + b * whole, 0.5), obs=y)


def spelled_out(x, y):
    """The same imputation with numbers where NaN was, and the places given."""
    a, b = line()
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([3]))
    numpyro.sample("y", dist.Normal(a + b * x.at[np.flatnonzero(GONE)].set(z), 0.5), obs=y)


@pytest.mark.parametrize("program", [in_rows, in_place])
def test_covariates_that_the_program_imputes(program):
    method = lb.Gaussian()
    fit = lb.fit(program, np.where(GONE, np.nan, X), Y, method=method)
    expected = lb.fit(spelled_out, X, Y, method=method)
    assert fit.mean("b") == pytest.approx(expected.mean("b"), abs=0.05 * expected.sd("b"))
    found = fit.mean("z") if program is in_place else fit.mean("z")[GONE]
    np.testing.assert_allclose(found, expected.mean("z"), atol=0.03)


def test_an_imputation_climbs_the_ladder():
    fit = lb.fit(in_rows, np.where(GONE, np.nan, X), Y)
    assert fit.converged
    assert np.isfinite(fit.elbo)


def with_any_scale(x, y, group):
    # a scale with a prior on all of the line: below zero the density is no number
    holes = np.flatnonzero(np.isnan(x))
    scale = numpyro.sample("scale", dist.Normal(0.0, 1.0).expand([3]))
    latent = numpyro.sample("latent", dist.Normal(0.0, scale[group[holes]]).mask(False))
    x = jnp.asarray(x).at[holes].set(latent)
    numpyro.sample("x", dist.Normal(0.0, scale[group]), obs=x)
    a, b = line()
    numpyro.sample("y", dist.Normal(a + b * x, 0.5), obs=y)


@pytest.mark.filterwarnings("ignore::lowerbound.errors.LadderWarning")  # points find no start
def test_an_imputation_whose_density_is_no_number_in_half_of_its_prior():
    x = np.where(GONE, np.nan, X)
    fit = lb.fit(with_any_scale, x, Y, np.arange(20) % 3)
    assert np.all(np.asarray(fit.mean("scale")) > 0)
    assert abs(float(fit.mean("b")) - 2.0) < 0.5
    model = trace_model(with_any_scale, (x, Y, np.arange(20) % 3))
    assert model.latent["latent"].shape == (3,)
    with pytest.raises(errors.NaNDataError, match="Argument 'x' holds 3 NaN"):
        trace_model(plain, (x, Y))


def test_bounds_at_infinity():
    def truncated(low, y):
        m = numpyro.sample("m", dist.Normal(0.0, 2.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.TruncatedNormal(m, 1.0, low=low), obs=y)

    fit = lb.fit(truncated, np.full(20, -np.inf), Y)
    precision = 1 / 4 + 20
    assert fit.mean("m") == pytest.approx(Y.sum() / precision, rel=1e-6)
    assert fit.sd("m") == pytest.approx(precision**-0.5, rel=1e-5)


def test_nan_that_reaches_the_parameters_of_a_site():
    with pytest.raises(errors.NaNDataError) as caught:
        trace_model(plain, (np.where(GONE, np.nan, X), Y))
    assert str(caught.value) == (
        "Argument 'x' holds 3 NaN, the first at x[2], shape (20,).\n"
        "Expected finite numbers. The distribution of site 'y' depends on them. Leave these rows "
        "out, or give the missing entries a prior with numpyro.sample and put its value there by "
        "jnp.where(jnp.isnan(x), ..., x)."
    )


def test_nan_of_one_argument_is_not_laid_at_the_door_of_another():
    def both(x, y, weights):
        a, b = line()
        known = ~jnp.isnan(weights)
        with numpyro.plate("rows", len(x)), handlers.mask(mask=known):
            numpyro.sample("y", dist.Normal(a + b * x, 0.5), obs=y)

    with pytest.raises(errors.NaNDataError, match=r"Argument 'y' holds 1 NaN"):
        trace_model(both, (X, np.where(np.arange(20) == 0, np.nan, Y), HOLES))


def test_an_infinite_covariate():
    with pytest.raises(errors.InfiniteDataError, match=r"inf at x\[2\]"):
        trace_model(plain, (np.where(GONE, np.inf, X), Y))


def test_a_slope_that_is_not_a_number():
    def model(x, y):
        a, b = line()
        mean = a + jnp.where(jnp.isnan(x), 0.0, b * x)
        numpyro.sample("y", dist.Normal(mean, 0.5), obs=y)

    with pytest.raises(errors.NaNSlopeError) as caught:
        trace_model(model, (np.where(GONE, np.nan, X), Y))
    assert str(caught.value) == (
        "Argument 'x' holds 3 NaN, the first at x[2], shape (20,). The log density leaves them "
        "out, but its slope in site 'b' does not: there 0 * NaN is NaN.\n"
        "Expected no NaN in what a latent site is computed with. Put numbers there before: "
        "x = jnp.where(jnp.isnan(x), 0.0, x)."
    )


def test_empty_arrays_that_no_site_depends_on():
    def model(x, y, extra):
        a, b = line()
        x = jnp.concatenate([x, extra])
        numpyro.sample("y", dist.Normal(a + b * x, 0.5), obs=y)

    fit = lb.fit(model, X, Y, np.zeros(0))
    assert fit.elbo == pytest.approx(lb.fit(plain, X, Y).elbo, rel=1e-9)


def test_an_empty_array_that_the_program_cannot_use():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(jnp.max(y), 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    with pytest.raises(errors.EmptyDataError, match="Argument 'y' is empty"):
        trace_model(model, (np.zeros(0),))


def test_to_look_at_numbers_compiles_nothing_for_every_operation():
    """Of a length that no other test has, so that no operation is compiled already."""
    x = np.linspace(-1.0, 1.0, 83)
    y = np.where(x > 0.5, np.nan, x)
    with counted() as compilations:
        trace_model(by_handler, (x, y))
    assert len(compilations) < 10


@pytest.mark.parametrize("isnan", [jnp.isnan, np.isnan], ids=["jnp", "np"])
def test_programs_may_ask_whether_there_are_any(isnan):
    def program(x, y):
        a, b = line()
        if isnan(y).any():
            y, known = jnp.nan_to_num(y), ~isnan(y)
        else:
            known = jnp.ones(len(y), bool)
        with numpyro.plate("rows", len(x)), handlers.mask(mask=known):
            numpyro.sample("y", dist.Normal(a + b * x, 0.5), obs=y)

    found = lb.fit(program, X, HOLES)
    assert found.mean("b") == pytest.approx(lb.fit(by_handler, X, HOLES).mean("b"), rel=1e-6)
