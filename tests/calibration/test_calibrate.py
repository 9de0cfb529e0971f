"""Calibrations: what is right passes, planted faults are found, and said as they are."""

from dataclasses import replace

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from matplotlib.colors import to_hex
from numpy.testing import assert_allclose
from scipy import stats

import lowerbound as lb
from lowerbound import errors
from lowerbound.calibration import calibrating
from lowerbound.calibration.calibrated import DENSITY, Calibration, concluded
from lowerbound.calibration.ranks import uniform_ranks
from lowerbound.plot.axes import COLOURS
from tests.laws.compilations import counted

TOSSES = np.array([1, 0, 1, 1, 0, 1])
Y = np.random.default_rng(0).normal(size=8)


def coin(y):
    p = numpyro.sample("p", dist.Beta(2.0, 1.0))
    with numpyro.plate("tosses", len(y)):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)


def normal(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


# --------------------------------------------------------------------------------------------------
# Ranks


def test_ranks_of_discrete_draws_are_uniform_too():
    rng = np.random.default_rng(1)
    truth, draws = rng.poisson(1.5, size=20_000), rng.poisson(1.5, size=(9, 20_000))
    u = uniform_ranks(truth, draws, rng)
    # Kolmogorov-Smirnov: one failure in a thousand.
    assert stats.kstest(u, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("quantities", [1, 4])
def test_all_tests_together_fail_a_right_method_as_seldom_as_they_say(quantities):
    rng = np.random.default_rng(2)
    studies, level = 400, 0.05
    wrong = 0
    for _ in range(studies):
        ranks = {str(k): rng.uniform(size=30) for k in range(quantities)}
        wrong += any(one.wrong for one in concluded(ranks, level))
    # Holm's rule is at most the level; the tests of a quantity are all but independent.
    assert wrong < studies * level + 4 * np.sqrt(studies * level)
    assert wrong > 0.5 * studies * level


@pytest.mark.parametrize(
    ("shift", "ratio", "test"),
    [(0.4, 1.0, "bias"), (0.0, 0.6, "dispersion"), (0.0, 1.7, "dispersion")],
)
def test_a_shift_and_a_ratio_are_found_and_estimated(shift, ratio, test):
    truth = np.random.default_rng(3).normal(size=(400, 1))
    u = stats.norm.cdf((truth - shift) / ratio)[:, 0]
    (found,) = concluded({"x": u})
    assert test in found.wrong
    assert abs(found.shift - shift) < 4 * found.shift_error
    assert abs(found.ratio - ratio) < 4 * found.ratio_error
    expected = stats.norm.cdf(ratio * 1.96 + shift) - stats.norm.cdf(-ratio * 1.96 + shift)
    assert abs(found.coverage[0.95] - expected) < 0.06


# --------------------------------------------------------------------------------------------------
# Methods that are right


@pytest.fixture(scope="module")
def exact():
    return lb.calibrate(coin, TOSSES, simulations=80)


def test_an_exact_method_passes(exact):
    # One failure in a hundred seeds.
    assert exact.calibrated
    assert str(exact.verdict) == (
        "Trust means and intervals: over 80 simulated data sets nothing is biased, and intervals "
        "hold what they should (6 tests, of which a method that is right fails one in 1% of such "
        "studies; means off by 0.45 sds, or sds by 37%, would show)."
    )
    assert exact.simulations == 80
    assert set(exact.ranks) == {"p", DENSITY}
    assert exact.table().index.tolist() == ["p", DENSITY]
    lines = repr(exact).splitlines()
    assert lines[0] == "Calibration of CAVI() on coin: 80 simulations"
    assert lines[1].endswith("in 50%  in 80%  in 95%")


def test_discrete_sites_of_the_model_and_of_its_rows_are_ranked():
    def groups(y):
        k = numpyro.sample("k", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
        with numpyro.plate("rows", len(y)):
            c = numpyro.sample("c", dist.Bernoulli(0.3))
            numpyro.sample("y", dist.Normal(k + 2.0 * c, 1.0), obs=y)

    found = lb.calibrate(groups, Y, simulations=60)
    assert set(found.ranks) == {"k", "c[any]", DENSITY}
    assert found.calibrated
    every = lb.calibrate(groups, Y, simulations=20, sites=["c"])
    assert set(every.ranks) == {*(f"c[{i}]" for i in range(len(Y))), DENSITY}


def test_data_that_are_functions_of_arguments_or_missing():
    def logarithm(y, *, z):
        mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
        numpyro.deterministic("double", 2 * mu)
        with numpyro.plate("rows", len(y)):
            numpyro.sample("log_y", dist.Normal(mu, 1.0), obs=jnp.log(y))
            numpyro.sample("z", dist.Normal(mu, 1.0), obs=z)

    z = np.ma.MaskedArray(Y, mask=np.arange(8) < 5)
    found = lb.calibrate(logarithm, np.exp(Y), z=z, simulations=50, sites=["mu", "double"])
    assert found.calibrated
    assert_allclose(found.quantities[0].coverage[0.8], 0.8, atol=4 * 0.057)
    # The width is that of 11 observations; 16 would show as a ratio of 1.2.
    assert abs(found.quantities[0].ratio - 1) < 4 * found.quantities[0].ratio_error


def test_all_fits_run_what_the_first_has_compiled():
    lb.calibrate(normal, Y, simulations=20)  # compiles
    with counted() as few:
        lb.calibrate(normal, Y, simulations=21)
    with counted() as many:
        lb.calibrate(normal, Y, simulations=30)
    assert len(many) == len(few)


# --------------------------------------------------------------------------------------------------
# Methods that are wrong


def test_sds_that_mean_field_shrinks_are_found():
    X = np.random.default_rng(4).normal(size=(10, 2)) + 2.0

    def regression(X, y):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("rows", len(X)):
            numpyro.sample("y", dist.Normal(X @ b, 1.0), obs=y)

    found = lb.calibrate(
        regression, X, np.zeros(10), method=lb.Gaussian(rank="diagonal"), simulations=60
    )
    precision = np.eye(2) + X.T @ X
    truth = 1 / np.sqrt(np.diag(precision) * np.diag(np.linalg.inv(precision)))
    for i in range(2):
        one = found.quantities[i]
        assert "dispersion" in one.wrong
        assert abs(one.ratio - truth[i]) < 4 * one.ratio_error
        assert "bias" not in one.wrong
    assert found.verdict.trust == "means"
    assert "the sd of 'b[" in found.verdict.reason
    assert "times what it should be (its 95% intervals hold " in found.verdict.reason
    ax = lb.plot.calibration(found)
    assert {to_hex(bar.get_facecolor()).upper() for bar in ax[0].patches[1:]} == {COLOURS[1]}
    plt.close("all")


def test_a_q_in_the_wrong_place_is_found(monkeypatch):
    def biased(model, y, **kwargs):
        return lb.fit(model, y + 0.3, **kwargs)

    monkeypatch.setattr(calibrating, "fit_one", biased)
    found = lb.calibrate(normal, Y, simulations=60)
    one = found.quantities[0]
    # The posterior has the sd 1 / sqrt(8.25), and its mean moves by 0.3 * 8 / 8.25.
    assert abs(one.shift - 0.3 * 8 / np.sqrt(8.25)) < 4 * one.shift_error
    assert "bias" in one.wrong
    assert found.verdict.trust == "nothing"
    assert f"the mean of 'mu' is about {one.shift:.2f} sds too high" in found.verdict.reason


def test_a_q_that_does_not_listen_to_the_data_is_found(monkeypatch):
    """Its ranks are uniform, those of the density are not (Modrak et al. 2023)."""

    def prior(self, fit, number):
        return {"mu": np.random.default_rng(number).normal(0.0, 2.0, size=self.draws)}

    monkeypatch.setattr(calibrating._Fits, "_drawn", prior)
    found = lb.calibrate(normal, Y, simulations=60)
    wrong = {one.name: one.wrong for one in found.quantities}
    assert wrong["mu"] == ()
    assert wrong[DENSITY]
    assert "the density of draws of q is too low: q is too wide" in found.verdict.reason
    assert found.verdict.trust == "means"


# --------------------------------------------------------------------------------------------------
# What fails, and what is interrupted


def test_data_sets_that_cannot_be_fitted_are_counted(monkeypatch):
    def sometimes(model, y, **kwargs):
        if kwargs["seed"] % 5 == 0:
            raise errors.ZeroVarianceError("y", None, 3.0)
        return lb.fit(model, y, **kwargs)

    monkeypatch.setattr(calibrating, "fit_one", sometimes)
    found = lb.calibrate(normal, Y, simulations=40)
    assert (found.simulations, len(found.failed)) == (32, 8)
    assert found.verdict.trust == "means"
    assert found.verdict.reason.startswith("20% of the simulated data sets could not be fitted")
    assert "8 data sets could not be fitted; the first: " in repr(found)

    def never(*args, **kwargs):
        raise errors.ZeroVarianceError("y", None, 3.0)

    monkeypatch.setattr(calibrating, "fit_one", never)
    with pytest.raises(errors.FailedSimulationsError, match="10 of 40 simulated data sets could"):
        lb.calibrate(normal, Y, simulations=40)


def test_an_interrupt_returns_what_there_is_where_that_is_asked_for(monkeypatch):
    calls = []

    def pressed(*args, **kwargs):
        calls.append(1)
        fit = lb.fit(*args, **kwargs)
        if len(calls) < 33:
            return fit
        return replace(fit, stop=replace(fit.stop, converged=False, interrupted=True))

    monkeypatch.setattr(calibrating, "fit_one", pressed)
    found = lb.calibrate(normal, Y, simulations=100)
    assert found.simulations == 32
    assert found.stop_reason == "interrupted after fit 32 of 100"


# --------------------------------------------------------------------------------------------------
# What cannot be calibrated


def text_of(error, *args, **kwargs):
    with pytest.raises(error) as caught:
        lb.calibrate(*args, **kwargs)
    return str(caught.value)


def test_programs_that_cannot_simulate_are_refused():
    def factor(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        numpyro.factor("likelihood", -0.5 * jnp.sum((y - mu) ** 2))

    def flat(y):
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(mu, 1.0).expand([8]).to_event(1), obs=y)

    def autoregression(y):
        a = numpyro.sample("a", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(a * y[:-1], 1.0).to_event(1), obs=y[1:])

    text = text_of(errors.NotGenerativeError, factor, Y)
    assert text.startswith(
        "The model cannot simulate data: 'likelihood' is a numpyro.factor, from which no data can "
        "be drawn   (test_calibrate.py:"
    )
    assert "site 'mu' has a flat prior" in text_of(errors.NotGenerativeError, flat, Y)
    text = text_of(errors.NotGenerativeError, autoregression, Y)
    assert "'y' is observed by site 'y', and what the program draws depends on it" in text
    assert text.endswith("Let the program take nothing but the shape of 'y' from it.")

    def prior_only():
        numpyro.sample("mu", dist.Normal(0, 1))

    def parametric(y):
        mu = numpyro.param("mu", 0.0)
        numpyro.sample("y", dist.Normal(mu, 1.0).expand([8]).to_event(1), obs=y)

    text_of(errors.NoObservedSiteError, prior_only)
    text_of(errors.ParameterSiteError, parametric, Y)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"simulations": 5}, "calibrate got simulations=5.\nExpected an integer of at least 20."),
        ({"draws": 2}, "calibrate got draws=2.\nExpected an integer of at least 9."),
        ({"sites": "mu"}, "calibrate got sites='mu'.\nExpected a sequence of names, or None."),
        ({"sites": ["nu"]}, "calibrate got sites with 'nu', which is neither a latent nor"),
        ({"method": "mcmc"}, "fit got method='mcmc'."),
    ],
)
def test_settings_without_meaning(arguments, text):
    assert text_of(errors.ArgumentError, normal, Y, **arguments).startswith(text)


def test_reserved_names():
    def model(y, draws):
        normal(y)

    text = text_of(errors.ReservedNameError, model, Y, draws=3)
    assert "'draws', a name that calibrate keeps for itself" in text


# --------------------------------------------------------------------------------------------------
# The picture


def test_the_picture_shows_the_worst(exact):
    axes = lb.plot.calibration(exact)
    assert len(axes) == 2
    worst = min(exact.quantities, key=lambda one: one.smallest)
    assert axes[0].get_title(loc="left").startswith(worst.name)
    heights = [bar.get_height() for bar in axes[0].patches if bar.get_gid() != "band"][1:]
    assert sum(heights) == 80
    plt.close("all")
    rng = np.random.default_rng(0)
    ranks = {f"x[{i}]": rng.uniform(size=60) for i in range(40)}
    many = Calibration("model", "CAVI()", concluded(ranks), ranks, 99, "60 simulations")
    assert len(lb.plot.calibration(many, most=8)) == 8
    assert "and 20 quantities more" in repr(many)
    plt.close("all")
    with pytest.raises(errors.ArgumentError, match=r"plot.calibration got int"):
        lb.plot.calibration(3)
