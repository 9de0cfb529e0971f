"""scikit-learn's contract for estimators, on an estimator that does nothing else."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from lowerbound.errors import ArgumentError, NotFittedError
from lowerbound.estimators.base import Estimator


class Scale(Estimator):
    """An estimator with a setting of each kind."""

    def __init__(self, factor=1.0, *, name="a", weights=None, on=False):
        self.factor = factor
        self.name = name
        self.weights = weights
        self.on = on

    def fit(self, X, y=None):
        self.mean_ = np.mean(X)
        return self


class Scaling(Scale):
    """And one that transforms."""

    def transform(self, X):
        return X


def test_settings_are_kept_as_they_are_given():
    weights = [1, 2]
    one = Scale(3, weights=weights)
    assert one.get_params() == {"factor": 3, "name": "a", "weights": [1, 2], "on": False}
    assert one.get_params(deep=False)["weights"] is weights


def test_settings_are_changed_by_name():
    one = Scale()
    assert one.set_params(factor=2.0, on=True) is one
    assert (one.factor, one.on, one.name) == (2.0, True, "a")


def test_a_setting_that_does_not_exist():
    with pytest.raises(ArgumentError) as error:
        Scale().set_params(size=3)
    assert str(error.value) == (
        "Scale has no setting 'size'.\nExpected one of factor, name, weights, on."
    )


def test_a_clone_has_the_settings_and_is_not_fitted():
    one = Scale(3, weights=(1, 2)).fit([1.0])
    other = clone(one)
    assert other.get_params() == one.get_params()
    assert not hasattr(other, "mean_")


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (Scale(), "Scale()"),
        (Scale(2.0, name="b"), "Scale(factor=2.0, name='b')"),
        (Scale(weights=[1]), "Scale(weights=[1])"),
        (Scale(on=True), "Scale(on=True)"),
    ],
)
def test_repr_has_what_is_not_the_default(one, text):
    assert repr(one) == text


@pytest.mark.parametrize(
    "weights",
    [np.ones((300, 200)), "x" * 9000, list(range(9000)), ["word" * 50] * 50, {1: [2] * 99}],
)
def test_repr_is_never_long(weights):
    text = repr(Scale(weights=weights))
    assert len(text) < 90
    assert "\n" not in text


def test_fitted_is_what_has_fitted_attributes():
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(Scale())
    check_is_fitted(Scale().fit([1.0]))


def test_not_fitted():
    error = NotFittedError("Scale", "scores")
    assert str(error) == (
        "This Scale is not fitted yet, so it has no scores.\n"
        "Expected a call of fit (or partial_fit) first."
    )
    assert isinstance(error, ValueError)
    assert isinstance(error, AttributeError)


def test_tags():
    assert get_tags(Scale()).transformer_tags is None
    assert get_tags(Scaling()).transformer_tags is not None
    assert get_tags(Scale()).target_tags.required is False
    assert get_tags(Scale()).estimator_type is None


PROBE = """
import json, sys
import lowerbound
light = [n for n in ("lowerbound.estimators", "lowerbound.topics.native", "lowerbound.topics.xla",
                     "lowerbound.topics.one_run", "sklearn", "pandas") if n in sys.modules]
import lowerbound.estimators
import jax
from lowerbound.topics.native import library
print(json.dumps({
    "light": light,
    "heavy": [n for n in ("sklearn", "pandas", "polars", "pyarrow") if n in sys.modules],
    "kernels": library.cache_info().currsize,
    "arrays": len(jax.live_arrays()),
}))
"""


def test_importing_estimators_is_light_and_importing_lowerbound_does_not():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {"light": [], "heavy": [], "kernels": 0, "arrays": 0}
