"""Augmented regressions by hand: Jaakkola & Jordan's logistic one, Student-t and Laplace errors."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, gammaln

LOG_2PI = np.log(2 * np.pi)


@dataclass(frozen=True)
class Answer:
    """q(beta) = N(mean, covariance), and the bound after every sweep."""

    mean: np.ndarray
    covariance: np.ndarray
    elbo: list[float]


def _ascend(x, sd, weights: Callable, linear, sweeps: int) -> Answer:
    """beta ~ N(0, sd^2 I); `weights(mean, covariance)` gives weights and the bound without KL."""
    D = x.shape[1]
    mean, covariance = np.zeros(D), sd**2 * np.eye(D)
    elbo = []
    for _ in range(sweeps):
        weight, _ = weights(mean, covariance)
        covariance = np.linalg.inv(np.eye(D) / sd**2 + x.T @ (weight[:, None] * x))
        mean = covariance @ (x.T @ linear(weight))
        _, bound = weights(mean, covariance)
        kl = 0.5 * (
            (np.trace(covariance) + mean @ mean) / sd**2
            - D + D * np.log(sd**2) - np.linalg.slogdet(covariance)[1]
        )  # fmt: skip
        elbo.append(float(bound - kl))
    return Answer(mean, covariance, elbo)


def squares(x, mean, covariance):
    """E (x_n' beta)^2 of every row."""
    return np.einsum("ni,ij,nj->n", x, covariance, x) + (x @ mean) ** 2


def jaakkola_jordan(x, y, sd: float, sweeps: int) -> Answer:
    """Logistic regression by the bound with parameters xi (Bishop 2006, section 10.6)."""

    def weights(mean, covariance):
        xi = np.sqrt(squares(x, mean, covariance))
        weight = np.tanh(xi / 2) / (2 * xi)  # 2 lambda(xi)
        bound = (y - 0.5) @ (x @ mean) - np.sum(np.logaddexp(xi / 2, -xi / 2))
        return weight, bound

    return _ascend(x, sd, weights, lambda weight: y - 0.5, sweeps)


def student(x, y, df: float, sd: float, sweeps: int) -> Answer:
    """y ~ StudentT(df, x beta, 1): E w = (df + 1) / (df + E r^2), iteratively reweighted."""

    def weights(mean, covariance):
        square = (y - x @ mean) ** 2 + np.einsum("ni,ij,nj->n", x, covariance, x)
        a, rate = (df + 1) / 2, (df + square) / 2
        log_w, w = digamma(a) - np.log(rate), a / rate
        prior = df / 2 * np.log(df / 2) - gammaln(df / 2) + (df / 2 - 1) * log_w - df / 2 * w
        entropy = a - np.log(rate) + gammaln(a) + (1 - a) * digamma(a)
        return w, np.sum(prior + entropy + 0.5 * (log_w - LOG_2PI - w * square))

    return _ascend(x, sd, weights, lambda weight: weight * y, sweeps)


def laplace(x, y, scale: float, sd: float, sweeps: int) -> Answer:
    """y ~ Laplace(x beta, scale): |r| <= (r^2 / c + c) / 2, at c^2 = E r^2."""

    def weights(mean, covariance):
        square = (y - x @ mean) ** 2 + np.einsum("ni,ij,nj->n", x, covariance, x)
        c = np.sqrt(square) / scale
        return 1 / (c * scale**2), -np.sum(c) - len(y) * np.log(2 * scale)

    return _ascend(x, sd, weights, lambda weight: weight * y, sweeps)
