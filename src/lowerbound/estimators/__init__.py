"""Models in the form of scikit-learn estimators: models, not inference.

In: data in the forms that scikit-learn takes. Out: fitted attributes with a trailing underscore,
and `result_`, the `Fit` behind them.

Settings that mean the same wherever they occur: `n_components`, how many components, factors or
topics there are; `n_init`, how many starts, of which the best ELBO is kept; `max_iter` and `tol`,
after how many sweeps, or below which change of the ELBO in nats, a fit stops; `fit_intercept`,
whether a regression has an intercept; `weight_concentration_prior_type` and
`weight_concentration_prior`, whether the weights of a mixture have a Dirichlet prior or that of a
truncated Dirichlet process, and its concentration; `random_state`, the seed, where None is 0.
"""

from lowerbound.estimators.lda import LatentDirichletAllocation
from lowerbound.estimators.lda_settings import Inference
from lowerbound.estimators.matrix_factorization import MatrixFactorization
from lowerbound.estimators.mixtures.exponential_mixture import ExponentialFamilyMixture
from lowerbound.estimators.mixtures.gaussian_mixture import ComponentPrior, GaussianMixture
from lowerbound.estimators.regressions.ard_regression import ARDRegression
from lowerbound.estimators.regressions.linear_regression import LinearRegression
from lowerbound.estimators.regressions.logistic_regression import LogisticRegression
from lowerbound.estimators.regressions.poisson_regression import PoissonRegression
from lowerbound.estimators.regressions.probit_regression import ProbitRegression

__all__ = [
    # Clusters and topics
    "GaussianMixture",
    "ComponentPrior",
    "ExponentialFamilyMixture",
    "LatentDirichletAllocation",
    "Inference",
    # Factors
    "MatrixFactorization",
    # Regressions
    "ARDRegression",
    "LinearRegression",
    "LogisticRegression",
    "ProbitRegression",
    "PoissonRegression",
]
