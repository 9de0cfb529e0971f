"""scikit-learn's checks of estimators: each is a test, and those that fit much are slow."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import lowerbound as lb

# Those that fit at most once. The others fit small data of shapes of their own, all of which have
# to be compiled for.
FAST = frozenset(
    {
        "check_do_not_raise_errors_in_init_or_set_param",
        "check_estimator_cloneable",
        "check_estimator_repr",
        "check_estimator_tags_renamed",
        "check_estimators_empty_data_messages",
        "check_estimators_nan_inf",
        "check_estimators_unfitted",
        "check_fit1d",
        "check_get_params_invariance",
        "check_mixin_order",
        "check_n_features_in_after_fitting",
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_requires_y_none",
        "check_set_params",
        "check_valid_tag_types",
    }
)


def checked(*estimators: Any) -> Any:
    """A decorator: the test takes an `estimator` and a `check`, for all that scikit-learn has."""
    with warnings.catch_warnings():  # scikit-learn is not imported for its base class
        warnings.filterwarnings("ignore", message=".*does not inherit from", category=UserWarning)
        _, pairs = parametrize_with_checks(list(estimators)).args
    return pytest.mark.parametrize(
        ("estimator", "check"),
        [
            pytest.param(
                estimator,
                check,
                marks=() if _name(check) in FAST else pytest.mark.slow,
                id=f"{estimator!r}-{_name(check)}",
            )
            for estimator, check in pairs
        ],
    )


def run_check(estimator: Any, check: Any) -> None:
    """One check. Its data may be few or without structure, of which there are warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lb.errors.LowerboundWarning)
        check(estimator)


def _name(check: Any) -> str:
    return str(check.func.__name__ if isinstance(check, partial) else check.__name__)
