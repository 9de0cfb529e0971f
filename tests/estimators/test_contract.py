"""All estimators over programs pass all checks of scikit-learn, with no exception."""

from lowerbound.estimators import GaussianMixture
from tests.estimators.contract import checked, run_check


@checked(GaussianMixture(2, covariance_type="diag"))
def test_the_checks_of_scikit_learn(estimator, check):
    run_check(estimator, check)
