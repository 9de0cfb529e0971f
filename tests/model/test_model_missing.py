"""Masked arrays: which observed entries are missing, and what may not be."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import norm

from lowerbound.errors import MissingDataError, SupportError
from lowerbound.model import trace_model

MASK = np.array([False, True, False, False, True])
Y = np.ma.array([1.0, np.nan, 3.0, 2.0, np.nan], mask=MASK)


def location(y, transform=lambda y: y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=transform(y))


@pytest.mark.parametrize(
    "transform",
    [
        lambda y: y,
        jnp.log1p,
        lambda y: jnp.concatenate([y[:2], 2.0 * y[2:]]),
        lambda y: (y > 2.5) * 1.0,
        lambda y: jnp.clip(y, 0.0, 1.0),
    ],
)
def test_missing_entries_are_found_through_transformations(transform):
    site = trace_model(location, (Y, transform)).observed["y"]
    np.testing.assert_array_equal(site.missing, MASK)


@pytest.mark.parametrize("dtype", [bool, np.int64, np.uint8])
def test_missing_entries_of_other_types(dtype):
    def model(y):
        p = numpyro.sample("p", dist.Uniform(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Bernoulli(p), obs=y)

    y = np.ma.array(np.ones(5, dtype), mask=MASK)
    site = trace_model(model, (y,)).observed["y"]
    np.testing.assert_array_equal(site.missing, MASK)


def test_complete_data_have_no_mask():
    assert trace_model(location, (np.ones(3),)).observed["y"].missing is None
    assert trace_model(location, (np.ma.array(np.ones(3), mask=False),)).missing == {}


def test_a_differenced_series_misses_both_neighbours():
    def model(y):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        numpyro.sample("steps", dist.Normal(0.0, scale), obs=jnp.diff(y))

    site = trace_model(model, (Y,)).observed["steps"]
    np.testing.assert_array_equal(site.missing, [True, True, False, True])


def test_an_inspected_argument_with_missing_entries():
    def model(y):
        shift = float(np.size(np.asarray(y)))
        mu = numpyro.sample("mu", dist.Normal(shift, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    found = trace_model(model, (Y,))
    assert found.concrete == ("y",)
    np.testing.assert_array_equal(found.missing["y"], MASK)


def test_missing_entries_may_not_decide_which_sites_there_are():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        if np.max(np.asarray(y)) > 3.5:
            numpyro.sample("extra", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    with pytest.raises(MissingDataError, match="the distribution of site 'y' depends on"):
        trace_model(model, (Y,))


def test_two_arguments_with_missing_entries_meet_in_one_site():
    def model(a, b):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("sum", dist.Normal(mu, 1.0), obs=a + b)

    other = np.ma.array(np.arange(5.0), mask=[True, False, False, False, False])
    site = trace_model(model, (Y, other)).observed["sum"]
    np.testing.assert_array_equal(site.missing, MASK | other.mask)


def test_entries_of_independent_vectors_may_be_missing_one_by_one():
    def model(x):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("x", dist.Normal(mu, 1.0).to_event(1), obs=x)

    x = np.arange(10.0).reshape(5, 2)
    rows = np.ma.array(x, mask=np.repeat(MASK[:, None], 2, axis=1))
    np.testing.assert_array_equal(trace_model(model, (rows,)).missing["x"], rows.mask)
    one = np.ma.array(x, mask=False)
    one[3, 1] = np.ma.masked
    traced = trace_model(model, (one,))
    np.testing.assert_array_equal(traced.missing["x"], one.mask)
    mu = np.array([0.5, -1.0])
    kept = norm.logpdf(x, mu)[~one.mask].sum() + norm.logpdf(mu).sum()
    with jax.enable_x64(True):
        found = traced.log_density({"mu": mu}, traced.arguments.data)
        parts = traced.run({"mu": mu}, traced.arguments.data)
        total = sum(float(part.log_prob().sum()) for part in parts.values())
    np.testing.assert_allclose(found, kept, rtol=1e-12)
    np.testing.assert_allclose(total, kept, rtol=1e-12)


def test_events_are_missing_as_a_whole():
    def model(x):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("x", dist.MultivariateNormal(mu, jnp.eye(2)), obs=x)

    x = np.arange(10.0).reshape(5, 2)
    rows = np.ma.array(x, mask=np.repeat(MASK[:, None], 2, axis=1))
    np.testing.assert_array_equal(trace_model(model, (rows,)).missing["x"], MASK)
    one = np.ma.array(x, mask=False)
    one[3, 1] = np.ma.masked
    with pytest.raises(MissingDataError) as raised:
        trace_model(model, (one,))
    assert str(raised.value) == (
        "Site 'x' has an observation that is partly missing: row 3, event shape (2,), argument "
        f"'x'   ({trace_model(model, (rows,)).observed['x'].where}).\n"
        "Expected each event to be observed or missing as a whole. Mark the whole row as missing, "
        "or give the components independent distributions."
    )


def test_missing_covariates_must_be_modelled():
    def model(x, y):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(w * x, 1.0), obs=y)

    with pytest.raises(MissingDataError) as raised:
        trace_model(model, (Y, np.ones(5)))
    where = trace_model(model, (np.ones(5), np.ones(5))).observed["y"].where
    assert str(raised.value) == (
        "Argument 'x' has 2 missing entries that the distribution of site 'y' depends on   "
        f"({where}).\n"
        "Expected missing entries only in observed values. Model that variable as a latent site: "
        "give the missing entries of 'x' a prior with numpyro.sample."
    )


def test_missing_entries_may_not_reach_a_factor():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.factor("fit", -jnp.sum((y - mu) ** 2))

    one = np.ma.array([1.0, 2.0], mask=[False, True])
    with pytest.raises(MissingDataError, match=r"has 1 missing entry that .* of site 'fit'"):
        trace_model(model, (one,))


def test_missing_entries_may_be_kept_out_of_the_parameters_by_hand():
    def model(x, keep, y):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(w * jnp.where(keep, x, 0.0), 1.0), obs=y)

    assert trace_model(model, (Y, ~MASK, np.ones(5))).missing == {}


def test_missing_entries_are_not_checked_against_the_support():
    def model(y):
        rate = numpyro.sample("rate", dist.LogNormal(0.0, 1.0))
        numpyro.sample("y", dist.Poisson(rate), obs=y - 2)

    counts = np.array([0, 3, 4])
    assert trace_model(model, (np.ma.array(counts, mask=[1, 0, 0]),)).missing["y"].tolist() == [
        True,
        False,
        False,
    ]
    with pytest.raises(SupportError):
        trace_model(model, (np.ma.array(counts, mask=[0, 1, 0]),))
