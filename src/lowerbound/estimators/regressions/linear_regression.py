"""Linear regression with an unknown noise, exact; with effects of groups where rows have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lowerbound.errors import ArgumentError
from lowerbound.estimators.regressions.linear_predictor import (
    as_coefficients,
    centre_of,
    design,
    units_of,
)
from lowerbound.estimators.regressions.supervised import Regressor
from lowerbound.run.method import is_size

DRAWS = 1000  # of the posterior with groups, for predictive sds


def line(X: Any, y: Any = None, scale: Any = None, noise: Any = None) -> None:
    """Tau ~ Gamma(1/2, s^2/2), beta_j ~ Normal(0, s_j^2 / tau), y_n ~ Normal(x_n beta, 1 / tau)."""
    tau = numpyro.sample("tau", dist.Gamma(0.5, 0.5 * noise[0] ** 2))
    with numpyro.plate("columns", X.shape[1]):
        beta = numpyro.sample("beta", dist.Normal(0.0, scale[0] / jnp.sqrt(tau)))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ beta, 1 / jnp.sqrt(tau)), obs=y)


def grouped_line(
    X: Any, group: Any, y: Any = None, scale: Any = None, noise: Any = None, G: int = 1
) -> None:
    """As `line`, and u_g ~ Normal(0, omega^2) for each group; sigma and omega are half-normal."""
    sigma = numpyro.sample("sigma", dist.HalfNormal(noise[0]))
    omega = numpyro.sample("omega", dist.HalfNormal(noise[0]))
    with numpyro.plate("columns", X.shape[1]):
        beta = numpyro.sample("beta", dist.Normal(0.0, scale[0] * noise[0]))
    with numpyro.plate("groups", G):
        u = numpyro.sample("u", dist.Normal(0.0, omega))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ beta + u[group], sigma), obs=y)


@dataclass(eq=False, repr=False, kw_only=True)
class LinearRegression(Regressor):
    """y_n ~ Normal(x_n beta + effect of its group, sigma^2), with its uncertainty.

    Without groups the posterior is exact, a Normal-Gamma. With `fit(X, y, groups=g)`, each group
    has an effect u_g ~ Normal(0, omega^2), and the scales sigma and omega are integrated over.
    prior_scale: the prior sd of a coefficient for one sd of its column, in units of the noise (of
    sd(y) with groups); the intercept has ten times it, at the mean of y.

    Fitted: coef_, intercept_, effects_ and groups_ (with groups), result_ (the `Fit`).

    >>> from lowerbound.estimators import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(100, 2))
    >>> line = LinearRegression().fit(x, x @ [1.0, -2.0] + 0.1 * rng.normal(size=100))
    >>> line.coef_.round(1)
    array([ 1., -2.])
    """

    fit_intercept: bool = True
    prior_scale: float = 10.0
    random_state: Any = 0

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Learn from rows X (n, D), responses y (n,), and the group of each row, where given."""
        self._check(
            ("prior_scale", is_size(self.prior_scale) and self.prior_scale > 0, "a number above 0")
        )
        X, y = self._both(X, y, y_numeric=True)
        vars(self).pop("groups_", None)
        vars(self).pop("effects_", None)
        self._centre = centre_of(X, self.fit_intercept)
        self._mean = float(y.mean()) if self.fit_intercept else 0.0
        noise = np.full(1, max(float(y.std()), 1e-6 * max(abs(y).max(), 1e-6)))
        scale = self.prior_scale * units_of(X, self.fit_intercept)
        Z, residual = design(X, self._centre), y - self._mean
        if groups is None:
            self._learn(line, Z, residual, scale=scale, noise=noise, method="cavi")
        else:
            self.groups_, index = np.unique(_as_groups(groups, len(y)), return_inverse=True)
            self._learn(
                grouped_line, Z, index, residual, scale=scale, noise=noise, G=len(self.groups_)
            )
            self.effects_ = np.asarray(self._fitted("effects_").mean("u"))
        return self._describe()

    def _describe(self) -> Self:
        beta = np.asarray(self._fitted("coef_").mean("beta"))
        self.coef_, self.intercept_ = as_coefficients(beta, self._centre)
        self.intercept_ += self._mean
        return self

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn from more rows: the posterior so far is their prior. The first call is `fit`.

        Exact: parts come to the posterior of all rows, with the prior that the first part set.
        """
        if not hasattr(self, "_result"):
            return self.fit(X, y)
        if hasattr(self, "groups_"):
            raise ArgumentError(
                "LinearRegression with groups has no partial_fit.\nExpected a fit without groups."
            )
        X, y = self._both(X, y, reset=False, y_numeric=True)
        self._learn_more(design(X, self._centre), y - self._mean)
        return self._describe()

    def predict(self, X: Any, groups: Any = None, return_std: bool = False) -> Any:
        """The predictive means of y, and with `return_std` the predictive sds.

        Rows of groups that are new, or not given, have the mean effect, zero.
        """
        found = self._fitted("predict")
        X = self._read(X, reset=False)
        Z, index = design(X, self._centre), self._index(groups, len(X))
        mean = X @ self.coef_ + self.intercept_
        if index is not None:
            mean = mean + np.append(self.effects_, 0.0)[index]
        if not return_std:
            return mean
        if hasattr(self, "groups_"):
            return mean, self._spread(Z, index)
        beta, tau = found.posterior["beta"], found.posterior["tau"]
        # beta is Student with 2 a degrees of freedom, and its matrix is that of scales.
        a = float(tau.concentration)
        spread = np.einsum("nd,de,ne->n", Z, np.asarray(beta.covariance_matrix), Z)
        return mean, np.sqrt((a * spread + float(tau.rate)) / max(a - 1.0, 1e-3))

    def _spread(self, Z: np.ndarray, index: np.ndarray | None) -> np.ndarray:
        """Predictive sds with groups, from draws; a new group has an effect of its own."""
        drawn = self._fitted("predict").sample(DRAWS, self._seed())
        u = np.random.default_rng(self._seed()).normal(size=DRAWS) * drawn["omega"]
        effects = np.column_stack([drawn["u"], u])
        at = np.full(len(Z), effects.shape[1] - 1) if index is None else index
        means = drawn["beta"] @ Z.T + effects[:, at]
        return np.asarray(np.sqrt(means.var(axis=0) + np.mean(drawn["sigma"] ** 2)))

    def log_predictive(self, X: Any, y: Any, groups: Any = None) -> np.ndarray:
        """The log predictive density of each y; with groups, of rows of groups that are known."""
        self._fitted("log_predictive")
        X = self._read(X, reset=False)
        Z, residual = design(X, self._centre), np.asarray(y, float) - self._mean
        if not hasattr(self, "groups_"):
            return self._densities(Z, residual)
        index = self._index(groups, len(X))
        if index is None or (index == len(self.groups_)).any():
            raise ArgumentError(
                "log_predictive got rows without a group, or of new ones.\n"
                "Expected groups of rows that were fitted."
            )
        return self._densities(Z, index, residual)

    def _index(self, groups: Any, rows: int) -> np.ndarray | None:
        """The number of each row's group; that of a new one is the number of groups."""
        if groups is None:
            return None
        if not hasattr(self, "groups_"):
            raise ArgumentError(
                "LinearRegression got groups, but was fitted without.\nExpected fit(X, y, groups=)."
            )
        names = _as_groups(groups, rows)
        found = np.minimum(np.searchsorted(self.groups_, names), len(self.groups_) - 1)
        return np.where(self.groups_[found] == names, found, len(self.groups_))


def _as_groups(groups: Any, rows: int) -> np.ndarray:
    names = np.asarray(groups)
    if names.shape != (rows,):
        raise ArgumentError(
            f"LinearRegression got groups of shape {names.shape}.\nExpected one for each of the "
            f"{rows} rows."
        )
    return names
