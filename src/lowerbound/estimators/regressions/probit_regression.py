"""Probit regression as an estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import log_ndtr

from lowerbound.estimators.regressions.linear_predictor import Generalised, as_coefficients
from lowerbound.estimators.regressions.supervised import Classifier


def probit(X: Any, y: Any = None, prior: Any = None) -> None:
    """beta_j ~ Normal(m_j, s_j^2), y_n ~ Bernoulli(Phi(x_n beta)), by its log odds."""
    mean, sd = prior[0]
    with numpyro.plate("columns", X.shape[1]):
        beta = numpyro.sample("beta", dist.Normal(mean, sd))
    a = X @ beta
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=log_ndtr(a) - log_ndtr(-a)), obs=y)


class ProbitRegression(Classifier, Generalised):
    """P(y = 1) = Phi(x beta + intercept), two classes, with the uncertainty of beta averaged over.

    C: the prior variance of a coefficient. The intercept has a prior sd of ten, where columns are
    at their means. tol: sweeps stop when they change the ELBO by about so many nats.

    Fitted: classes_, coef_ (1, D) and intercept_ (posterior means), converged_, n_iter_,
    lower_bound_ (the ELBO), result_ (the `Fit`).

    >>> from lowerbound.estimators import ProbitRegression
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> classifier = ProbitRegression().fit(x, np.where(x[:, 0] > 0, "yes", "no"))
    >>> classifier.predict([[2.0, 0.0], [-2.0, 0.0]]).tolist()
    ['yes', 'no']
    """

    binary = True
    program = staticmethod(probit)

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows X (n, D) and their classes y (n,), of which there are two."""
        self._check_line()
        X, y = self._both(X, y)
        self._learn_line(X, self._coded(y))
        coefficients, intercept = as_coefficients(self._beta, self._centre)
        self.coef_, self.intercept_ = coefficients[None], np.array([intercept])
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Phi^-1 of the predictive probability: m / sqrt(1 + s^2), for x'beta ~ Normal(m, s^2)."""
        mean, sd = self._predictor(X, "decision_function")
        return mean / np.sqrt(1.0 + sd**2)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The predictive probabilities (n, 2): E[Phi(a)] = Phi(m / sqrt(1 + s^2)), exactly."""
        from scipy.special import ndtr

        one = ndtr(self.decision_function(X))
        return np.column_stack([1.0 - one, one])
