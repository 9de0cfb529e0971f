"""How far a surface falls along single hyperparameters, the others at their best given it.

A density may have a narrow ridge that leads away from its summit: a trend that explains all where
the scale of its level goes to zero. No point of a proposal comes there, and sds hang on it.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from lowerbound.methods.hierarchy.summits.uphill import Evaluated
from lowerbound.methods.hierarchy.surface import Solved

WAY = (0.5, 0.75, 1.0)  # of the way out
LOW = 7.0  # nats below the summit, from where on a tail is light
STEPS = 4  # of the others, to their best
NEAR = 0.1  # nats that a step would still gain


def tails(
    evaluated: Evaluated, mean: np.ndarray, covariance: np.ndarray, farthest: float
) -> Generator[Solved, None, list[Solved]]:
    """The ends of the ways out, as far as they are not far below the summit.

    Yields after every evaluation. mean, covariance: those of the density so far. farthest: sds of a
    hyperparameter from its mean.
    """
    top = evaluated.best.value
    found: list[Solved] = []
    for number in range(len(mean)):
        others = np.delete(np.arange(len(mean)), number)
        sd = math.sqrt(covariance[number, number])
        across = covariance[others, number] / sd**2
        inside = covariance[np.ix_(others, others)] - np.outer(across, across) * sd**2
        for side in (-1.0, 1.0):
            place = mean.copy()
            before = 0.0
            for away in (share * farthest for share in WAY):
                moved = side * (away - before) * sd
                place = place + moved * np.eye(len(mean))[number]
                place[others] += across * moved if not before else 0.0
                before = away
                best = yield from _across(evaluated, place, others, inside)
                if best is None or best.value < top - LOW:
                    break
                found.append(best)
                place = best.t.copy()
    return found


def _across(
    evaluated: Evaluated, place: np.ndarray, others: np.ndarray, inside: np.ndarray
) -> Generator[Solved, None, Solved | None]:
    """The highest point that a few steps of the other hyperparameters come to."""
    best: Solved | None = None
    share = 1.0
    for _ in range(STEPS):
        here = evaluated.at(place, slope=True)
        yield here
        if math.isfinite(here.value) and (best is None or here.value > best.value):
            best, share = here, 1.0
        elif best is None:
            return None
        else:
            share *= 0.3
        assert best.slope is not None
        slope = best.slope[others]
        step = inside @ slope
        if 0.5 * slope @ step < NEAR:
            break
        place = best.t.copy()
        place[others] += share * step
    return best
