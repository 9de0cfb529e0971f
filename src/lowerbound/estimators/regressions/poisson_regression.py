"""Poisson regression as an estimator."""

from __future__ import annotations

from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.errors import ArgumentError
from lowerbound.estimators.regressions.linear_predictor import (
    Generalised,
    as_coefficients,
    log_expected,
)
from lowerbound.estimators.regressions.supervised import Regressor


def poisson(X: Any, y: Any = None, prior: Any = None) -> None:
    """beta_j ~ Normal(m_j, s_j^2), y_n ~ Poisson(exp(x_n beta))."""
    mean, sd = prior[0]
    with numpyro.plate("columns", X.shape[1]):
        beta = numpyro.sample("beta", dist.Normal(mean, sd))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Poisson(jnp.exp(X @ beta)), obs=y)


class PoissonRegression(Regressor, Generalised):
    """y ~ Poisson(exp(x beta + intercept)), counts, with the uncertainty of beta averaged over.

    C: the prior variance of a coefficient. The intercept has a prior sd of ten about log(mean(y)),
    where columns are at their means. tol: sweeps stop when they change the ELBO by about so many
    nats.

    Fitted: coef_, intercept_ (posterior means), converged_, n_iter_, lower_bound_ (the ELBO),
    result_ (the `Fit`).

    >>> from lowerbound.estimators import PoissonRegression
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(500, 2))
    >>> PoissonRegression().fit(x, rng.poisson(np.exp(x[:, 0]))).coef_.round(1)
    array([1., 0.])
    """

    program = staticmethod(poisson)

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows X (n, D) and counts y (n,)."""
        self._check_line()
        X, y = self._both(X, y, y_numeric=True)
        if (y < 0).any():
            raise ArgumentError(
                "PoissonRegression got y with negative numbers.\nExpected counts, 0 or more."
            )
        self._learn_line(X, y, at=float(np.log(max(y.mean(), 0.5 / len(y)))))
        self.coef_, self.intercept_ = as_coefficients(self._beta, self._centre)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The predictive means E[exp(a)] = exp(m + s^2 / 2)."""
        mean, sd = self._predictor(X, "predict")
        return np.exp(mean + sd**2 / 2)

    def score(self, X: Any, y: Any) -> float:
        """The share of the deviance of y that `predict` explains, as of PoissonRegressor."""
        from sklearn.metrics import d2_tweedie_score

        return float(d2_tweedie_score(y, self.predict(X), power=1))

    def log_predictive(self, X: Any, y: Any) -> np.ndarray:
        """The log predictive probability of each count."""
        from scipy.special import gammaln

        y = np.asarray(y, dtype=float)[:, None]
        predictor = self._predictor(X, "log_predictive")
        return log_expected(lambda a: y * a - np.exp(a) - gammaln(y + 1), *predictor)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
