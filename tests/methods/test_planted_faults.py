"""Planted faults: each turns a test of the table red, so that these can see."""

from dataclasses import replace

import numpy as np
import pytest

import lowerbound as lb
from lowerbound.result.answer import Stop
from tests.methods import test_conformance as tests
from tests.methods.fitted import fitted
from tests.methods.table import WAYS

WAY = next(way for way in WAYS if way.name == "CAVI")


def changed(name, by):
    """A method of a fit with another result."""
    whole = getattr(lb.Fit, name)

    def faulty(self, *args, **kwargs):
        return by(whole(self, *args, **kwargs))

    return faulty


METHODS = {
    "sds too wide": ("sd", lambda sd: 1.2 * sd, tests.test_draws_have_the_moments),
    "means elsewhere": ("mean", lambda mean: mean + 0.1, tests.test_marginals_have_the_moments),
    "densities too large": (
        "log_predictive",
        lambda rows: rows + 0.01,
        tests.test_predictive_densities_sum_to_one,
    ),
}


@pytest.mark.parametrize("fault", METHODS)
def test_a_fault_of_a_result(fault, monkeypatch):
    name, by, test = METHODS[fault]
    test(WAY)
    monkeypatch.setattr(lb.Fit, name, changed(name, by))
    with pytest.raises(AssertionError):
        test(WAY)


def test_a_dropped_constant_in_the_terms(monkeypatch):
    terms = fitted(WAY).fit.elbo_terms
    faulty = property(lambda self: {**terms, "y": terms["y"] + 0.5 * np.log(2 * np.pi)})
    monkeypatch.setattr(lb.Fit, "elbo_terms", faulty)
    for test in (
        tests.test_the_terms_sum_to_the_elbo,
        tests.test_the_term_of_the_data_is_their_expected_density,
    ):
        with pytest.raises(AssertionError):
            test(WAY)


RECORDS = {
    "another note": (
        lambda fit: replace(fit, plan=replace(fit.plan, notes=("once more",))),
        tests.test_the_plan_is_what_explain_returned,
    ),
    "another method": (
        lambda fit: replace(fit, call=replace(fit.call, method="CAVI(restarts=2)")),
        tests.test_the_method_is_the_one_asked_for,
    ),
    "another bound": (
        lambda fit: replace(fit, answer=replace(fit.answer, elbo=fit.elbo * (1 + 1e-6))),
        tests.test_the_history_ends_at_the_elbo,
    ),
    "a reason of another outcome": (
        lambda fit: replace(fit, stop=Stop(False, "reached max_sweeps=2000")),
        tests.test_the_stop_reason,
    ),
}


@pytest.mark.parametrize("fault", RECORDS)
def test_a_fault_of_a_record(fault, monkeypatch):
    by, test = RECORDS[fault]
    test(WAY)
    found = fitted(WAY)
    monkeypatch.setattr(tests, "fitted", lambda way: replace(found, fit=by(found.fit)))
    with pytest.raises(AssertionError):
        test(WAY)
