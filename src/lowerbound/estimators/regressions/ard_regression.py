"""Linear regression with automatic relevance determination (paper Appendix A)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.errors import ArgumentError
from lowerbound.estimators.regressions.supervised import Regressor
from lowerbound.run.method import is_size

WIDE = 100.0  # the prior sd of the intercept, in sds of y


def relevance(
    X: Any, y: Any = None, prior: Any = None, scale: Any = None, intercept: bool = True
) -> None:
    """lambda_j ~ Gamma, beta_j ~ Normal(0, 1 / lambda_j), y_n ~ Normal(x_n beta, 1 / alpha)."""
    shape_noise, rate_noise, shape, rate = prior[0]
    alpha = numpyro.sample("alpha", dist.Gamma(shape_noise, rate_noise))
    with numpyro.plate("columns", X.shape[1]):
        precision = numpyro.sample("lambda", dist.Gamma(shape, rate))
        beta = numpyro.sample("beta", dist.Normal(0.0, 1 / jnp.sqrt(precision)))
    mean = X @ beta
    if intercept:
        mean = mean + numpyro.sample("intercept", dist.Normal(0.0, scale[0]))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1 / jnp.sqrt(alpha)), obs=y)


@dataclass(eq=False, repr=False, kw_only=True)
class ARDRegression(Regressor):
    """Linear regression that finds which columns matter: beta_j ~ Normal(0, 1 / lambda_j).

    Settings have the names of scikit-learn's ARDRegression, which maximises the evidence over alpha
    and lambda; this one is variational, q(beta) q(alpha) q(lambda), so the two do not agree digit
    for digit, and a column is never pruned but its q(beta_j) is narrow about zero. alpha_1,
    alpha_2, lambda_1, lambda_2: shape and rate of the precision of the noise, alpha, and of those
    of the coefficients, lambda. threshold_lambda: columns with a larger E[lambda_j] get coef_ = 0
    exactly, as there; None leaves them. tol: sweeps stop when they change the ELBO by about so many
    nats.

    Fitted: coef_, intercept_, sigma_ (covariance of the coefficients), alpha_, lambda_ (means),
    n_iter_, converged_, lower_bound_ (the ELBO), result_ (the `Fit`).

    >>> from lowerbound.estimators import ARDRegression
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(100, 5))
    >>> ard = ARDRegression().fit(x, 2 * x[:, 0] + 0.1 * rng.normal(size=100))
    >>> abs(ard.coef_.round(1))
    array([2., 0., 0., 0., 0.])
    >>> mean, sd = ard.predict(x, return_std=True)
    """

    max_iter: int = 1000
    tol: float = 1e-3
    alpha_1: float = 1e-6
    alpha_2: float = 1e-6
    lambda_1: float = 1e-6
    lambda_2: float = 1e-6
    threshold_lambda: float | None = 10_000.0
    fit_intercept: bool = True

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows X (n, D) and responses y (n,)."""
        names = ("alpha_1", "alpha_2", "lambda_1", "lambda_2")
        rules = [
            (n, is_size(getattr(self, n)) and getattr(self, n) > 0, "a number above 0")
            for n in names
        ]
        self._check(*rules)
        X, y = self._both(X, y, y_numeric=True)
        if not y.std() > 0:
            raise ArgumentError(
                "ARDRegression got y without variance: the precision of the noise has no posterior."
                "\nExpected responses that differ."
            )
        # Centred, so that the intercept is independent of the coefficients.
        self._x: Any = X.mean(axis=0) if self.fit_intercept else 0.0
        self._y = float(y.mean()) if self.fit_intercept else 0.0
        found = self._learn(
            relevance,
            X - self._x,
            y - self._y,
            prior=np.array([[getattr(self, name) for name in names]]),
            scale=np.full(1, WIDE * y.std()),
            intercept=bool(self.fit_intercept),
            method=self._sweeps(y.size),
        )
        self.alpha_ = float(found.mean("alpha"))
        self.lambda_ = np.asarray(found.mean("lambda"))
        self.coef_ = np.array(found.mean("beta"))
        self.sigma_ = np.asarray(found.posterior["beta"].covariance_matrix)
        self._offset, self._offset_variance = 0.0, 0.0
        if self.fit_intercept:
            self._offset = float(found.mean("intercept"))
            self._offset_variance = float(found.sd("intercept")) ** 2
        if self.threshold_lambda is not None:
            self.coef_[self.lambda_ > self.threshold_lambda] = 0.0
        self.intercept_ = float(self._y + self._offset - np.sum(self._x * self.coef_))
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The predictive means of y, and with `return_std` the predictive sds."""
        self._fitted("predict")
        X = self._read(X, reset=False)
        mean = X @ self.coef_ + self.intercept_
        if not return_std:
            return mean
        centred = X - self._x
        spread = np.einsum("nd,de,ne->n", centred, self.sigma_, centred)
        return mean, np.sqrt(spread + self._offset_variance + 1 / self.alpha_)

    def log_predictive(self, X: Any, y: Any) -> np.ndarray:
        """The log predictive density of each y."""
        self._fitted("log_predictive")
        X = self._read(X, reset=False)
        return self._densities(X - self._x, np.asarray(y, float) - self._y)
