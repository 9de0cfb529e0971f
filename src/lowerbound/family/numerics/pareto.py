"""How heavy the tail of importance weights is: Pareto k-hat, and weights smoothed by it (PSIS).

Vehtari, Simpson, Gelman, Yao & Gabry (2024), "Pareto smoothed importance sampling"; the fit of the
generalised Pareto law is that of Zhang & Stephens (2009).
"""

from __future__ import annotations

import math

import numpy as np

FEWEST = 5  # in a tail that is fitted
EVEN = 0.01  # excess over the rest, relative to the average, of weights that are all but equal


def pareto_fit(excesses: np.ndarray) -> tuple[float, float]:
    """Shape k and scale of the generalised Pareto law of positive excesses, sorted or not.

    >>> uniform = (np.arange(4000) + 0.5) / 4000
    >>> shape, scale = pareto_fit(2.0 * (uniform**-0.5 - 1) / 0.5)  # k = 0.5, scale 2
    >>> round(shape, 1), round(scale, 1)
    (0.5, 2.0)
    """
    x = np.sort(np.asarray(excesses, float))
    n = len(x)
    count = 30 + int(math.sqrt(n))
    quartile = x[max(int(n / 4 + 0.5) - 1, 0)]
    theta = 1.0 / x[-1] + (1.0 - np.sqrt(count / (np.arange(1, count + 1) - 0.5))) / (3 * quartile)
    shapes = np.mean(np.log1p(-theta[:, None] * x), axis=1)
    log_likelihood = n * (np.log(-theta / shapes) - shapes - 1.0)
    weights = np.exp(log_likelihood - log_likelihood.max())
    mean = float(weights @ theta / weights.sum())
    shape = float(np.mean(np.log1p(-mean * x)))
    # A prior worth ten observations at 1/2 keeps small samples calm.
    return (n * shape + 10 * 0.5) / (n + 10), -shape / mean


def smoothed_weights(log_weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Log weights whose largest are the quantiles of a Pareto law, summing to one, and k-hat.

    Weights that are equal are perfect: k-hat is 0. Of fewer than 25 nothing is known: inf.

    >>> log_weights, k_hat = smoothed_weights(np.zeros(100))
    >>> k_hat, round(float(np.exp(log_weights).sum()), 6)
    (0.0, 1.0)
    """
    log_weights = np.asarray(log_weights, float)
    log_weights = log_weights - log_weights.max()
    n = len(log_weights)
    tail = min(n // 5, math.ceil(3 * math.sqrt(n)))
    if tail < FEWEST:
        return _normalised(log_weights), math.inf
    order = np.argsort(log_weights, kind="stable")
    largest, cutoff = order[-tail:], log_weights[order[-tail - 1]]
    excesses = np.exp(log_weights[largest]) - math.exp(cutoff)
    if excesses[-1] <= EVEN * np.exp(log_weights).mean():
        return _normalised(log_weights), 0.0
    # Ties with the cutoff would put the quartile at zero.
    shape, scale = pareto_fit(np.maximum(excesses, 1e-12 * excesses[-1]))
    if not (math.isfinite(shape) and math.isfinite(scale)):
        return _normalised(log_weights), math.inf
    probabilities = (np.arange(tail) + 0.5) / tail
    if abs(shape) < 1e-8:
        quantiles = -scale * np.log1p(-probabilities)
    else:
        quantiles = scale / shape * np.expm1(-shape * np.log1p(-probabilities))
    smoothed = log_weights.copy()
    smoothed[largest] = np.minimum(np.log(quantiles + math.exp(cutoff)), 0.0)
    return _normalised(smoothed), shape


def _normalised(log_weights: np.ndarray) -> np.ndarray:
    top = log_weights.max()
    normalised: np.ndarray = log_weights - (top + math.log(np.exp(log_weights - top).sum()))
    return normalised
