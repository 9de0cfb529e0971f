"""The density of an integral: which points of it are kept, and how z follows theta between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowerbound.family.densities.integrated import PATTERN, Integrated
from lowerbound.family.numerics.elimination import Pattern
from lowerbound.family.numerics.smoothed import Smoothed
from lowerbound.methods.hierarchy.integration import Integral
from lowerbound.rewrite.coordinates import Coordinates

NEGLIGIBLE = 1e-6  # the probability of all cells whose points are left out
MOST_NUMBERS = 20_000_000  # that points hold together
FEWEST = 12  # points, however large


def integrated(
    coordinates: Coordinates, sites: Sequence[str], integral: Integral, pattern: Pattern
) -> tuple[Integrated, dict[str, Any]]:
    """The density q(theta) q(z | theta) of an integral over the hyperparameters `sites`."""
    smoothed = integral.smoothed.trimmed()
    solved = integral.solved
    s = smoothed.placed.inward(np.array([one.t for one in solved]))
    loc = np.array([one.loc for one in solved])
    mass = _cells(smoothed, s)[0]
    slopes = _slopes(s, loc, mass)
    stretches = _slopes(s, 0.5 * np.log([one.variance for one in solved]), mass)

    order = np.argsort(-mass, kind="stable")
    needed = int(np.searchsorted(np.cumsum(mass[order]), 1.0 - NEGLIGIBLE)) + 1
    numbers = len(solved[0].precision) + 2 * loc.shape[1] + 1
    kept = np.sort(order[: min(needed, max(FEWEST, MOST_NUMBERS // numbers))])
    mass, middle, spread = _cells(smoothed, s[kept])
    parameters = {
        "theta": smoothed.arrays(),
        "t": np.array([solved[number].t for number in kept]),
        "loc": loc[kept],
        "precision": np.array([solved[number].precision for number in kept]),
        "variance": np.array([solved[number].variance for number in kept]),
        "slopes": slopes,
        "stretches": stretches,
        "mass": mass,
        "middle": middle,
        "spread": spread,
        **{name: np.asarray(getattr(pattern, name)) for name in PATTERN},
    }
    return Integrated(coordinates, tuple(sites), {"pattern": pattern}), parameters


def _cells(smoothed: Smoothed, s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probability, mean and covariance of the cell of each point: where it is the nearest one."""
    nodes, weights = smoothed.nodes, smoothed.weights
    own = ((s**2).sum(axis=1) - 2 * nodes @ s.T).argmin(axis=1)
    count, k = s.shape
    mass = np.bincount(own, weights, count)
    safe = np.maximum(mass, 1e-300)
    middle = np.stack([np.bincount(own, weights * x, count) / safe for x in nodes.T], axis=1)
    middle = np.where(mass[:, None] > 0.0, middle, s)
    away = nodes - middle[own]
    spread = np.empty((count, k, k))
    for i in range(k):
        for j in range(k):
            spread[:, i, j] = np.bincount(own, weights * away[:, i] * away[:, j], count) / safe
    return mass / mass.sum(), middle, spread


def _slopes(s: np.ndarray, loc: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """The regression on s (k, d): by probability, and by all points a little."""
    weights = mass + 1e-3 / len(mass)
    weights = weights / weights.sum()
    away, moved = s - weights @ s, loc - weights @ loc
    square = (away * weights[:, None]).T @ away
    ridge = 1e-6 * np.eye(len(square))
    slopes: np.ndarray = np.linalg.solve(square + ridge, (away * weights[:, None]).T @ moved)
    return slopes
