"""Comparisons of fits: against closed forms, and what is said of them."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import betaln, logsumexp

import lowerbound as lb
from lowerbound import errors
from lowerbound.choosing.compared import stacked
from lowerbound.model import trace_model
from lowerbound.result.verdicts import Verdict
from lowerbound.trust.rows_left_out import left_out, row_log_densities

rng = np.random.default_rng(3)
TOSSES = rng.integers(0, 2, size=30)
Y = rng.normal(1.0, 1.0, size=24)


def coin(y, a=1.0, b=1.0):
    p = numpyro.sample("p", dist.Beta(a, b))
    with numpyro.plate("tosses", len(y)):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)


def normal(y, scale=3.0):
    mu = numpyro.sample("mu", dist.Normal(0.0, scale))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def left_out_normal(y, scale=3.0):
    """Log p(y_i | the other rows) of `normal`."""
    found = []
    for i in range(len(y)):
        others = np.delete(y, i)
        variance = 1 / (1 / scale**2 + len(others))
        found.append(stats.norm.logpdf(y[i], variance * others.sum(), np.sqrt(1 + variance)))
    return np.array(found)


# --------------------------------------------------------------------------------------------------
# The numbers


def test_by_elbo_it_is_the_bayes_factor():
    priors = {"flat": (1.0, 1.0), "Jeffreys": (0.5, 0.5), "strong": (20.0, 1.0)}
    found = lb.compare({n: lb.fit(coin, TOSSES, a=a, b=b) for n, (a, b) in priors.items()})
    ones = TOSSES.sum()
    evidence = {
        name: betaln(a + ones, b + len(TOSSES) - ones) - betaln(a, b)
        for name, (a, b) in priors.items()
    }
    assert found.by == "elbo"
    assert [row.name for row in found.rows] == sorted(evidence, key=lambda n: -evidence[n])
    total = logsumexp(list(evidence.values()))
    for row in found.rows:
        assert_allclose(row.value, evidence[row.name], rtol=1e-9)
        assert_allclose(row.difference, evidence[row.name] - evidence[found.best], atol=1e-9)
        assert_allclose(row.weight, np.exp(evidence[row.name] - total), rtol=1e-6)
        assert row.error == row.difference_error == 0.0
    assert found.table().index.tolist() == [row.name for row in found.rows]


def test_a_corrected_fit_is_compared_by_its_tighter_bound_with_its_error():
    rates = rng.normal(size=12)
    counts = rng.poisson(np.exp(0.5 + rates))

    def poisson(x, y):
        a, b = numpyro.sample("a", dist.Normal(0, 1)), numpyro.sample("b", dist.Normal(0, 1))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Poisson(jnp.exp(a + b * x)), obs=y)

    loose = lb.fit(poisson, rates, counts, method=lb.Gaussian(rank="diagonal"))
    tight = lb.correct(loose, "psis")
    found = lb.compare({"loose": loose, "tight": tight})
    assert found.best == "tight"
    assert found.rows[0].error > 0
    assert_allclose(found.rows[0].value, tight.elbo)
    assert_allclose(
        found.rows[1].difference_error, np.hypot(tight.elbo_error, loose.elbo_error), rtol=1e-9
    )


def test_leave_one_out_is_that_of_the_closed_form():
    found = lb.compare({"near": lb.fit(normal, Y), "far": lb.fit(normal, Y, scale=0.05)}, by="loo")
    truth = left_out_normal(Y)
    # 1,000 independent draws: a row's density is known to some percent.
    assert_allclose(found.pointwise["near"], truth, atol=0.05)
    assert_allclose(found.rows[0].value, truth.sum(), atol=0.2)
    assert_allclose(found.rows[0].error, np.sqrt(len(Y)) * truth.std(ddof=1), rtol=0.05)
    differences = found.pointwise["far"] - found.pointwise["near"]
    assert found.best == "near"
    assert_allclose(found.rows[1].difference, differences.sum(), rtol=1e-9)
    assert_allclose(
        found.rows[1].difference_error, np.sqrt(len(Y)) * differences.std(ddof=1), rtol=1e-9
    )
    assert found.rows[0].bad == 0
    assert found.k_hats["near"].shape == Y.shape


@pytest.mark.parametrize("wide", [0.8, 1.3])
def test_weights_put_a_wrong_q_right(wide):
    """Draws of a q whose sd is off, with the ratios p / q, give the densities of the posterior."""
    variance = 1 / (1 / 9 + len(Y))
    mean, sd = variance * Y.sum(), wide * np.sqrt(variance)
    z = np.random.default_rng(0).normal(mean, sd, size=4000)
    ratios = stats.norm.logpdf(z, mean, np.sqrt(variance)) - stats.norm.logpdf(z, mean, sd)
    densities = stats.norm.logpdf(Y[None], z[:, None], 1.0)
    found, _ = left_out(densities, ratios)
    assert_allclose(found, left_out_normal(Y), atol=0.03)


def test_a_row_that_cannot_be_left_out_is_counted():
    y = np.concatenate([Y, [60.0]])
    found = lb.compare({"one": lb.fit(normal, y)}, by="loo")
    assert found.rows[0].bad == 1
    assert np.argmax(found.k_hats["one"]) == len(Y)
    assert "1 row cannot be left out by weights" in repr(found)
    assert found.rows[0].marked


def test_sites_of_a_row_are_summed_or_integrated_out():
    def mixture(x, K):
        with numpyro.plate("K", K):
            mu = numpyro.sample("mu", dist.Normal(0, 3))
        with numpyro.plate("rows", len(x)):
            c = numpyro.sample("c", dist.Categorical(jnp.ones(K) / K))
            numpyro.sample("x", dist.Normal(mu[c], 1.0), obs=x)

    def effects(x):
        mu = numpyro.sample("mu", dist.Normal(0, 3))
        with numpyro.plate("rows", len(x)):
            b = numpyro.sample("b", dist.Normal(mu, 2.0))
            numpyro.sample("x", dist.Normal(b, 1.0), obs=x)

    x, mu = np.array([-1.0, 0.5, 2.0]), rng.normal(size=(4, 2))
    with jax.enable_x64(True):
        model = trace_model(mixture, (x, 2))
        found, _ = row_log_densities("m", model, {"mu": jnp.asarray(mu)})
        parts = stats.norm.logpdf(x[None, :, None], mu[:, None, :], 1.0) - np.log(2)
        assert_allclose(found, logsumexp(parts, axis=-1), rtol=1e-9)
        model = trace_model(effects, (x,))
        found, _ = row_log_densities("e", model, {"mu": jnp.asarray(mu[:, 0])})
        assert_allclose(found, stats.norm.logpdf(x, mu[:, :1], np.sqrt(5)), rtol=1e-9)


def test_k_fold_is_that_of_the_closed_form():
    found = lb.compare({"one": lb.fit(normal, Y)}, by="k-fold", folds=5, seed=1)
    from lowerbound.choosing.folds import folds_of

    for fold in folds_of(len(Y), 5, seed=1):
        others = np.delete(Y, fold)
        variance = 1 / (1 / 9 + len(others))
        truth = stats.norm.logpdf(Y[fold], variance * others.sum(), np.sqrt(1 + variance))
        assert_allclose(found.pointwise["one"][fold], truth, rtol=1e-6)


def test_held_out_is_the_log_predictive_of_each_fit():
    fits = {"near": lb.fit(normal, Y), "far": lb.fit(normal, Y, scale=0.05)}
    new = rng.normal(1.0, 1.0, size=9)
    found = lb.compare(fits, test=new)
    assert found.by == "held-out"
    for row in found.rows:
        assert_allclose(row.value, fits[row.name].log_predictive(new).sum(), rtol=1e-9)
    by_name = lb.compare(fits, test={"y": new})
    assert by_name.rows == found.rows


def test_stacking_finds_the_best_mixture():
    densities = np.random.default_rng(1).normal(size=(50, 2))
    found = stacked(densities)
    grid = np.linspace(0, 1, 1001)
    values = [
        logsumexp(densities + np.log([w + 1e-300, 1 - w + 1e-300]), axis=1).sum() for w in grid
    ]
    assert_allclose(found[0], grid[np.argmax(values)], atol=2e-3)


# --------------------------------------------------------------------------------------------------
# What is said


def test_the_table_marks_fits_that_are_not_to_be_trusted():
    fit = lb.fit(coin, TOSSES)
    from dataclasses import replace

    good = replace(fit, verdict=Verdict("all", "it is exact"))
    bad = replace(fit, verdict=Verdict("nothing", "it is stuck", "more restarts"))
    found = lb.compare({"good": good, "bad": bad})
    lines = repr(found).splitlines()
    assert lines[0] == "Comparison of 2 fits by ELBO, in nats with all constants"
    assert lines[2].endswith("all")
    assert lines[3].endswith("nothing *")
    assert lines[4] == "'good' is best, but not clearly: 0.0 nats ahead of 'bad'."
    assert lines[5] == (
        "* bad: its number may be wrong. Do not trust the fit: it is stuck. "
        "Do better by more restarts."
    )


# --------------------------------------------------------------------------------------------------
# What cannot be compared


def text_of(error, *args, **kwargs):
    with pytest.raises(error) as caught:
        lb.compare(*args, **kwargs)
    return str(caught.value)


def test_different_data_are_named():
    fit, shorter = lb.fit(normal, Y), lb.fit(normal, Y[:-2])
    other = Y.copy()
    other[7] = 4.0
    text = text_of(errors.DifferentDataError, {"a": fit, "b": lb.fit(normal, other)})
    assert text == (
        f"The fits 'a' and 'b' are of different data: y[7] = {Y[7]:.6g}, and y[7] = 4.\n"
        "Expected one data set: bounds and predictive densities of different observations, or of "
        "the same on another scale, cannot be compared. Fit both models to the same arrays."
    )
    text = text_of(errors.DifferentDataError, {"a": fit, "b": shorter})
    assert "'y' has the shape (24,), 'y' (22,)" in text
    # The order of rows does not matter for a bound, and does for what is summed over rows.
    turned = lb.fit(normal, Y[::-1].copy())
    assert_allclose(lb.compare({"a": fit, "b": turned}).rows[1].difference, 0, atol=1e-9)
    text = text_of(errors.DifferentDataError, {"a": fit, "b": turned}, by="loo")
    assert "the rows are in another order" in text


def test_one_site_or_two_are_the_same_data():
    def halves(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
        numpyro.sample("first", dist.Normal(mu, 1.0).expand([12]).to_event(1), obs=y[:12])
        numpyro.sample("second", dist.Normal(mu, 1.0).expand([12]).to_event(1), obs=y[12:])

    found = lb.compare({"one": lb.fit(normal, Y), "two": lb.fit(halves, Y)})
    assert_allclose(found.rows[1].difference, 0, atol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"by": "waic"},
            "compare got by='waic'.\nExpected one of 'elbo', 'held-out', 'loo', 'k-fold'.",
        ),
        (
            {"by": "held-out"},
            "compare got by='held-out' without test data.\nExpected new rows, test=...",
        ),
        ({"by": "loo", "test": Y}, "compare got by='loo' with test data."),
        ({"by": "k-fold", "folds": 1}, "compare got folds=1.\nExpected an integer of at least 2."),
        (
            {"by": "k-fold", "folds": 31},
            "compare got folds=31 of 24 rows.\nExpected one row in each fold.",
        ),
        ({"by": "loo", "draws": 10}, "compare got draws=10.\nExpected an integer of at least 100."),
        ({"test": {"z": Y}}, "compare got test data for 'z', which no model of the fits takes."),
    ],
)
def test_settings_without_meaning(arguments, text):
    fit = lb.fit(normal, Y)
    assert text_of(errors.ArgumentError, {"a": fit}, **arguments).startswith(text)


def test_what_is_no_fit():
    assert text_of(errors.ArgumentError, [1]).startswith("compare got list.\nExpected fits by name")
    assert text_of(errors.ArgumentError, {}).startswith("compare got nothing.")
    assert text_of(errors.ArgumentError, {"a": 3}).startswith("compare got int as 'a'.")


def test_fits_that_cannot_be_made_again(tmp_path):
    fit = lb.fit(normal, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.CorrectionWarning)
        corrected = lb.correct(fit, "psis", draws=200)
    text = text_of(errors.NotRepeatableError, {"a": corrected}, by="k-fold")
    assert "it is by correct(CAVI(), 'psis')" in text
    fit.save(tmp_path / "one.lb")
    text = text_of(errors.UnjudgedError, {"a": lb.load(tmp_path / "one.lb", normal)})
    assert "the file of 'a' holds no data" in text
    batches = lb.fit(normal, Y, method=lb.SVI(batch_size=8, steps=3))
    text = text_of(errors.NoRowsError, {"a": batches}, by="loo")
    assert "it keeps the factors of global sites alone" in text
