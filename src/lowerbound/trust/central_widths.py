"""Widths of central intervals, where a tail is too heavy for an sd to be known from draws."""

from __future__ import annotations

import numpy as np

LOW, HIGH = 0.1, 0.9  # between which an interval has its width


def log_width_ratio(x: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Log of the central width of draws to that of weighted ones, and its standard error.

    x: draws of q, (n,). weights: of the same draws, summing to one; the posterior's.

    >>> x = np.random.default_rng(0).standard_cauchy(4000)
    >>> found, error = log_width_ratio(x, np.full(4000, 1 / 4000))
    >>> bool(abs(found) < 1e-9), error
    (True, 0.0)
    >>> narrow = np.exp(-np.abs(x))  # a posterior without the tails of q
    >>> found, error = log_width_ratio(x, narrow / narrow.sum())
    >>> bool(found > 0.4 > 10 * error)
    True
    """
    order = np.argsort(x)
    x, weights = x[order], weights[order]
    excess = weights - 1.0 / len(x)
    even = (np.arange(len(x)) + 0.5) / len(x)
    levels = np.cumsum(weights) - 0.5 * weights
    own, true, errors = [], [], []
    for level in (LOW, HIGH):
        point = np.interp(level, levels, x)
        below = (x <= point) - level
        noise = float(np.sqrt(excess**2 @ below**2))
        nearby = np.interp([level - noise, level + noise], levels, x)
        own.append(np.interp(level, even, x))
        true.append(point)
        errors.append(0.5 * (nearby[1] - nearby[0]))
    width = true[1] - true[0]
    ratio = np.log((own[1] - own[0]) / width) if width > 0 and own[1] > own[0] else 0.0
    return float(ratio), float(np.hypot(*errors) / width) if width > 0 else 0.0
