"""Sweeps: one argument varied, what fails is said, what is interrupted is returned."""

import functools
import warnings
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from matplotlib.colors import to_hex
from numpy.testing import assert_allclose
from scipy.special import betaln

import lowerbound as lb
from lowerbound import errors
from lowerbound.choosing import varied
from lowerbound.result.evidence import Evidence
from lowerbound.result.verdicts import Verdict

TOSSES = np.array([1, 0, 1, 1, 1, 0, 1, 1])


def coin(y, a=1.0, b=1.0):
    p = numpyro.sample("p", dist.Beta(a, b))
    with numpyro.plate("tosses", len(y)):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)


@pytest.fixture(scope="module")
def found():
    return lb.sweep(coin, TOSSES, a=range(1, 5))


def test_every_value_has_its_fit_and_the_best_is_that_of_the_highest_evidence(found):
    evidence = [betaln(a + 6, 3.0) - betaln(a, 1.0) for a in (1, 2, 3, 4)]
    assert found.argument == "a"
    assert found.values == tuple(found) == (1, 2, 3, 4)
    assert len(found) == 4
    assert list(found.fits) == ["a=1", "a=2", "a=3", "a=4"]
    assert_allclose([found[a].elbo for a in (1, 2, 3, 4)], evidence, rtol=1e-9)
    assert found.best_value == 1 + int(np.argmax(evidence))
    assert found.best is found[found.best_value]
    assert found.comparison.best == f"a={found.best_value}"
    assert found.stop_reason == "4 values"
    assert repr(found).startswith("Sweep over a, 4 values\nComparison of 4 fits by ELBO")
    with pytest.raises(KeyError, match="7 is not among the values of a: 1, 2, 3, 4"):
        found[7]


def test_methods_can_be_varied_and_other_criteria_taken():
    found = lb.sweep(coin, TOSSES, method=[lb.CAVI(), lb.Laplace()], by="loo")
    assert found.argument == "method"
    assert list(found.fits) == ["CAVI()", "Laplace()"]
    assert found.comparison.by == "loo"
    assert set(found.comparison.pointwise) == {"CAVI()", "Laplace()"}


def test_a_range_is_the_argument_where_there_are_lists_too():
    def model(y, a, scale):
        assert isinstance(scale, list)
        coin(y, a)

    found = lb.sweep(model, TOSSES, a=range(1, 3), scale=[1.0, 2.0])
    assert found.values == (1, 2)


def test_a_value_that_cannot_be_fitted_is_said_and_the_others_are_fitted():
    found = lb.sweep(coin, TOSSES, b=[1.0, np.nan])
    assert found.values == (1.0,)
    assert list(found.failed) == ["b=nan"]
    assert repr(found).splitlines()[-1].startswith("b=nan failed: ")
    with pytest.raises(errors.LowerboundError) as caught:
        lb.sweep(coin, TOSSES, b=[np.nan])
    assert caught.value.__notes__ == ["In the fit of b=nan."]


def test_an_interrupt_returns_what_there_is_where_that_is_asked_for(monkeypatch):
    calls = []

    def pressed(*args, **kwargs):
        calls.append(kwargs["a"])
        if len(calls) % 3 == 0:
            raise KeyboardInterrupt
        return lb.fit(*args, **kwargs)

    monkeypatch.setattr(varied, "fit_one", pressed)
    with lb.interruptible():
        found = lb.sweep(coin, TOSSES, a=range(1, 9))
    assert found.values == (1, 2)
    assert found.stop_reason == "interrupted after fit 2"
    with pytest.raises(KeyboardInterrupt):
        lb.sweep(coin, TOSSES, a=range(1, 9))


def test_a_fit_that_was_interrupted_is_the_last(monkeypatch):
    def pressed(*args, **kwargs):
        fit = lb.fit(*args, **kwargs)
        stop = replace(fit.stop, converged=False, interrupted=True)
        return replace(fit, stop=stop) if kwargs["a"] == 2 else fit

    monkeypatch.setattr(varied, "fit_one", pressed)
    found = lb.sweep(coin, TOSSES, a=range(1, 9))
    assert found.values == (1, 2)
    assert found.stop_reason == "interrupted after 2 of 8 values"


def test_the_best_fit_warns_where_it_is_not_to_be_trusted(monkeypatch):
    evidence = Evidence("weights", 512, 0.9, 0.1, 1.0)

    def doubtful(*args, **kwargs):
        fit = lb.fit(*args, **kwargs)
        return replace(fit, verdict=Verdict("nothing", "it is stuck", "more restarts", evidence))

    monkeypatch.setattr(varied, "fit_one", doubtful)
    with pytest.warns(errors.TrustWarning, match=r"The best fit of the sweep, a=2\. Do not trust"):
        lb.sweep(coin, TOSSES, a=[1, 2])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "sweep got no argument with several values.\nExpected one keyword argument"),
        ({"a": [1, 2], "b": (1, 2)}, "sweep got several: 'a', 'b'."),
        ({"a": range(0)}, "sweep got a=range(0, 0).\nExpected at least one value."),
        ({"a": [1], "by": "waic"}, "sweep got by='waic'.\nExpected one of 'elbo', 'loo', 'k-fold'"),
        ({"a": [1], "checkpoint": "run"}, "sweep got checkpoint='run'.\nExpected none"),
    ],
)
def test_settings_without_meaning(arguments, text):
    with pytest.raises(errors.ArgumentError) as caught:
        lb.sweep(coin, TOSSES, **arguments)
    assert str(caught.value).startswith(text)


def test_reserved_names():
    def model(y, by, a):
        coin(y, a)

    with pytest.raises(errors.ReservedNameError, match="'by', a name that sweep keeps for itself"):
        lb.sweep(model, TOSSES, a=[1, 2])
    assert lb.sweep(functools.partial(model, by=3), TOSSES, a=[1]).values == (1,)


def test_the_picture_has_a_point_for_every_value(found):
    untrusted = replace(found.fits["a=2"], verdict=Verdict("nothing", "it is stuck"))
    trusted = {n: replace(f, verdict=Verdict("all", "fine")) for n, f in found.fits.items()}
    fits = {**trusted, "a=2": untrusted}
    shown = replace(found, fits=fits, comparison=lb.compare(fits))
    ax = lb.plot.sweep(shown)
    points = {line.get_gid(): line for line in ax.get_lines() if line.get_gid()}
    points |= {c.lines[0].get_gid() or c.get_gid(): c.lines[0] for c in ax.containers}
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "2", "3", "4"]
    assert ax.get_ylabel() == "ELBO (nats)"
    assert "hollow: not to be trusted" in ax.get_title(loc="left")
    hollow = [to_hex(line.get_markerfacecolor()) == "#ffffff" for line in points.values()]
    assert sum(hollow) == 1
    plt.close("all")
    with (
        warnings.catch_warnings(),
        pytest.raises(errors.ArgumentError, match=r"plot.sweep got int"),
    ):
        lb.plot.sweep(3)
