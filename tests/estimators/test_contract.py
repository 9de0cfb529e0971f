"""All estimators over programs pass all checks of scikit-learn, with no exception.

The assertions are scikit-learn's: a check raises where one fails, as a planted fault shows.
"""

import numpy as np
import pytest
from sklearn.utils import ClassifierTags, estimator_checks

from lowerbound.estimators import (
    ARDRegression,
    ExponentialFamilyMixture,
    FactorialMixture,
    GaussianMixture,
    LinearRegression,
    LogisticRegression,
    MatrixFactorization,
    MixedMembershipBlockModel,
    MixtureOfExperts,
    MixtureOfExpertsClassifier,
    PoissonRegression,
    ProbitRegression,
    StochasticBlockModel,
)
from tests.estimators.contract import checked, run_check


class Counting(PoissonRegression):
    """Takes the responses of the checks, which are real numbers, as the counts next to them."""

    def fit(self, X, y):
        if y is not None and np.issubdtype(np.asarray(y).dtype, np.floating):
            y = np.asarray(y).round()
        return super().fit(X, y)


class Kernels:
    """Takes the kernels of the checks, which are real numbers, as links where they are large.

    The check of sparse input takes whatever has `predict_proba` for a classifier, and asks for its
    number of classes; no estimator of nodes is one.
    """

    def _read(self, X, *, reset, **rules):
        return large(super()._read(X, reset=reset, **rules))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags(multi_class=False)
        return tags


class Joined(Kernels, StochasticBlockModel):
    """Blocks of the large kernels."""


class Shared(Kernels, MixedMembershipBlockModel):
    """Shares in blocks of the large kernels."""


def large(X):
    dense = X if isinstance(X, np.ndarray) else X.toarray()
    return np.where(np.isnan(dense) | (dense < 0), dense, dense > 1.0)


@checked(
    ARDRegression(),
    Counting(),
    ExponentialFamilyMixture(2),
    FactorialMixture(2, n_init=2),
    GaussianMixture(2, covariance_type="diag"),
    Joined(2, n_init=1),
    LinearRegression(),
    LogisticRegression(),
    MatrixFactorization(2),
    MixtureOfExperts(2, n_init=1),
    MixtureOfExpertsClassifier(2, n_init=1),
    ProbitRegression(),
    Shared(2, n_init=1),
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
