"""Whether other starts have come to another mode of the posterior, or only less far."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lowerbound.result.verdicts import Drawn
from lowerbound.trust.against import Against

COUNTS = 3.0  # nats below the best: a twentieth of its mass
DEEP = 1.0  # nats that a valley between two modes is below both
BETWEEN = np.linspace(0.0, 1.0, 11)
ALIKE = 0.05  # of their own size, by which the numbers of two labellings may differ


Optima = Sequence[tuple[float, np.ndarray]]


def other_modes(optima: Optima, judge: Against, drawn: Drawn) -> list[tuple[float, np.ndarray]]:
    """Modes that count, with a valley before them: how far below the best, and where they are.

    A mode that has the same numbers in another order has other names for its components.
    """
    found, centre = [], drawn.vectors.mean(axis=0)
    for gap, place in optima:
        if not gap < COUNTS or len(place) != len(centre):
            continue
        path = centre + BETWEEN[:, None] * (place - centre)
        heights = judge.target(path, few=True)[0]
        lower = min(heights[0], heights[-1])
        valley = float(np.min(np.where(np.isfinite(heights), heights, -math.inf)))
        if valley < lower - DEEP and not _relabelled(judge, centre, place):
            found.append((gap, place))
    return found


def _relabelled(judge: Against, one: np.ndarray, other: np.ndarray) -> bool:
    """Whether every site has the same numbers at both places, in some order."""
    values = judge.values(np.stack([one, other]))
    for array in values.values():
        first, second = (np.sort(part.ravel()) for part in array)
        if not np.allclose(first, second, rtol=ALIKE, atol=ALIKE * np.abs(first).max()):
            return False
    return True


def spanned(modes: Optima, drawn: Drawn) -> tuple[np.ndarray, np.ndarray]:
    """A place that has q and other modes within it: a mean, and the root of a covariance."""
    centres = np.stack([drawn.vectors.mean(axis=0), *(place for _, place in modes)])
    weights = np.exp(-np.array([0.0, *(gap for gap, _ in modes)]))
    weights /= weights.sum()
    mean = weights @ centres
    away = centres - mean
    within = np.atleast_2d(np.cov(drawn.vectors.T))
    return mean, np.linalg.cholesky(within + (away.T * weights) @ away)
