"""Models in the form of scikit-learn estimators: models, not inference.

In: data in the forms that scikit-learn takes. Out: fitted attributes with a trailing underscore,
and `result_`, the `Fit` behind them.
"""

from lowerbound.estimators.lda import LatentDirichletAllocation
from lowerbound.estimators.lda_settings import Inference
from lowerbound.estimators.matrix_factorization import MatrixFactorization
from lowerbound.estimators.mixtures.exponential_mixture import ExponentialFamilyMixture
from lowerbound.estimators.mixtures.factorial_mixture import FactorialMixture
from lowerbound.estimators.mixtures.gaussian_mixture import ComponentPrior, GaussianMixture
from lowerbound.estimators.networks.block_model import StochasticBlockModel
from lowerbound.estimators.networks.mixed_membership import MixedMembershipBlockModel
from lowerbound.estimators.regressions.ard_regression import ARDRegression
from lowerbound.estimators.regressions.linear_regression import LinearRegression
from lowerbound.estimators.regressions.logistic_regression import LogisticRegression
from lowerbound.estimators.regressions.mixture_of_experts import (
    MixtureOfExperts,
    MixtureOfExpertsClassifier,
)
from lowerbound.estimators.regressions.poisson_regression import PoissonRegression
from lowerbound.estimators.regressions.probit_regression import ProbitRegression

__all__ = [
    # Clusters and topics
    "GaussianMixture",
    "ComponentPrior",
    "ExponentialFamilyMixture",
    "FactorialMixture",
    "LatentDirichletAllocation",
    "Inference",
    # Networks
    "StochasticBlockModel",
    "MixedMembershipBlockModel",
    # Factors
    "MatrixFactorization",
    # Regressions
    "ARDRegression",
    "LinearRegression",
    "LogisticRegression",
    "ProbitRegression",
    "PoissonRegression",
    "MixtureOfExperts",
    "MixtureOfExpertsClassifier",
]
