"""All estimators over programs pass all checks of scikit-learn, with no exception.

The assertions are scikit-learn's: a check raises where one fails, as a planted fault shows.
"""

import numpy as np
import pytest
from sklearn.utils import estimator_checks

from lowerbound.estimators import (
    ARDRegression,
    ExponentialFamilyMixture,
    GaussianMixture,
    LinearRegression,
    LogisticRegression,
    MatrixFactorization,
    PoissonRegression,
    ProbitRegression,
)
from tests.estimators.contract import checked, run_check


class Counting(PoissonRegression):
    """Takes the responses of the checks, which are real numbers, as the counts next to them."""

    def fit(self, X, y):
        if y is not None and np.issubdtype(np.asarray(y).dtype, np.floating):
            y = np.asarray(y).round()
        return super().fit(X, y)


@checked(
    ARDRegression(),
    Counting(),
    ExponentialFamilyMixture(2),
    GaussianMixture(2, covariance_type="diag"),
    LinearRegression(),
    LogisticRegression(),
    MatrixFactorization(2),
    ProbitRegression(),
)
def test_the_checks_of_scikit_learn(estimator, check):
    """`check` is scikit-learn's, and raises what it finds."""
    assert check.func.__module__ == estimator_checks.__name__
    run_check(estimator, check)


class Forgetful(LogisticRegression):
    """Looks fitted before it is, and has other settings than it was given."""

    def __init__(self, *, tol=1e-3):
        super().__init__(tol=2 * tol)
        self.coef_ = None


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_parameters_default_constructible,
    ],
    ids=lambda check: check.__name__,
)
def test_a_planted_fault_fails_the_checks(check):
    with pytest.raises((AssertionError, RuntimeError)):
        run_check(Forgetful(), lambda estimator: check("Forgetful", estimator))
