"""Sites whose draws have tails too heavy for an sd: that of a half-Cauchy scale, often."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from lowerbound.family.numerics.pareto import pareto_fit

NONE = 0.4  # the shape of a tail, about, above which there may be no variance: beyond 0.5 none is


def without_sd(draws: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """The sites, (S, ...) each, whose numbers have such tails, on the average of these.

    >>> rng = np.random.default_rng(0)
    >>> without_sd({"x": rng.normal(size=(2000, 5)), "y": abs(rng.standard_cauchy((2000, 5)))})
    ('y',)
    """
    found = []
    for name, values in draws.items():
        columns = np.asarray(values, float).reshape(len(values), -1)
        if columns.size and np.mean([_shape(column) for column in columns.T]) > NONE:
            found.append(name)
    return tuple(found)


def _shape(x: np.ndarray) -> float:
    """That of the Pareto law of the largest distances from the median."""
    away = np.sort(np.abs(x - np.median(x)))
    tail = min(len(x) // 5, math.ceil(3 * math.sqrt(len(x))))
    excesses = away[-tail:] - away[-tail - 1]
    if not excesses[-1] > 0.0:
        return 0.0
    shape, _ = pareto_fit(np.maximum(excesses, 1e-12 * excesses[-1]))
    return shape if math.isfinite(shape) else 0.0
