"""Generalised linear models: what a Gaussian q(beta) says of the linear predictor x'beta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lowerbound.estimators.regressions.supervised import Supervised
from lowerbound.run.method import Rule, is_size

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
WIDE = 10.0  # the prior sd of an intercept


def centre_of(X: np.ndarray, intercept: bool) -> np.ndarray | None:
    """The means of the columns, where there is an intercept; None where there is none."""
    return X.mean(axis=0) if intercept else None


def design(X: np.ndarray, centre: np.ndarray | None) -> np.ndarray:
    """Centred columns after one of ones, or the columns as they are."""
    return X if centre is None else np.column_stack([np.ones(len(X)), X - centre])


def units_of(X: np.ndarray, intercept: bool) -> np.ndarray:
    """The coefficients that one sd of each column is worth one unit with, (1, D); ten units for an
    intercept.
    """
    sd = X.std(axis=0) if intercept else np.sqrt((X**2).mean(axis=0))
    units = 1.0 / np.where(sd > 1e-12 * np.maximum(abs(X).max(axis=0), 1.0), sd, 1.0)
    return (np.append(WIDE, units) if intercept else units)[None]


def as_coefficients(beta: np.ndarray, centre: np.ndarray | None) -> tuple[np.ndarray, float]:
    """The coefficients of the columns, and the intercept."""
    if centre is None:
        return np.array(beta), 0.0
    return np.array(beta[1:]), float(beta[0] - centre @ beta[1:])


@dataclass(eq=False, repr=False, kw_only=True)
class Generalised(Supervised):
    """y given x'beta with beta_j ~ Normal(0, C): the KL-optimal Gaussian q(beta), by quadrature."""

    program: ClassVar[Callable[..., Any]]

    C: float = 1.0
    fit_intercept: bool = True
    tol: float = 1e-3
    max_iter: int = 1000

    def _check_line(self, *rules: Rule) -> None:
        self._check(("C", is_size(self.C) and self.C > 0, "a number above 0"), *rules)

    def _prior(self, X: np.ndarray, at: float = 0.0) -> np.ndarray:
        """Means and sds of the coefficients, (1, 2, D); an intercept is expected `at` a value."""
        self._centre = centre_of(X, self.fit_intercept)
        prior = np.stack([np.zeros(X.shape[1]), np.full(X.shape[1], np.sqrt(self.C))])
        if self.fit_intercept:
            prior = np.column_stack([[at, WIDE], prior])
        return prior[None]

    def _learn_line(self, X: np.ndarray, y: np.ndarray, at: float = 0.0) -> None:
        """Fit the program, and keep the moments of q(beta)."""
        prior = self._prior(X, at)
        Z = design(X, self._centre)
        found = self._learn(type(self).program, Z, y, prior, method=self._sweeps(y.size))
        self._beta = np.asarray(found.mean("beta"))
        self._covariance = np.asarray(found.posterior["beta"].covariance_matrix)

    def _predictor(self, X: Any, wanted: str) -> tuple[np.ndarray, np.ndarray]:
        """Mean and sd of x'beta for each row."""
        self._fitted(wanted)
        Z = design(self._read(X, reset=False), self._centre)
        variance = np.einsum("nd,de,ne->n", Z, self._covariance, Z)
        return Z @ self._beta, np.sqrt(np.maximum(variance, 0.0))


def log_expected(
    log_function: Callable[[np.ndarray], np.ndarray], mean: np.ndarray, sd: np.ndarray
) -> np.ndarray:
    """Log E[f(a)] for a ~ Normal(mean, sd^2), from log f, by Gauss-Hermite quadrature.

    >>> log_expected(lambda a: a, np.zeros(1), np.ones(1)).round(6)  # log of exp(1/2)
    array([0.5])
    """
    from scipy.special import logsumexp

    values = log_function(mean[:, None] + sd[:, None] * NODES)
    return np.asarray(logsumexp(values, b=WEIGHTS, axis=1))
