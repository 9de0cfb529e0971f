"""All estimators over programs pass all checks of scikit-learn, with no exception."""

import numpy as np

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
    run_check(estimator, check)
