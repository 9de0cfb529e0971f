"""Units of z: by the sizes that its numbers have in what hyperparameters move."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from lowerbound.family.densities.held_points import Units
from lowerbound.methods.hierarchy.between.known_points import Points
from lowerbound.methods.hierarchy.predictors import Predictors

MOVED = 1e-6  # relatively, of an entry that depends on theta
LOW = (0.05, 0.005)  # shares of the mass where sizes are smaller than c0


def effect_units(one: Predictors, points: Points) -> list[Units]:
    """Units that means may have: as they are, and by sizes c with several c0.

    The size of an increment is what it was divided by, that of all others the root of the sum of
    squares of the entries of A that depend on theta. It is a power of scales, or about that.
    """
    t = points.t
    sizes = _squares(one, t)
    logs = np.where((sizes > 0).all(axis=0), 0.5 * np.log(np.where(sizes > 0, sizes, 1.0)), 0.0)
    weights = np.linalg.lstsq(t - t.mean(axis=0), logs - logs.mean(axis=0), rcond=1e-8)[0]
    weights = np.where(abs(weights) < MOVED, 0.0, weights)
    found = [Units(np.zeros_like(weights), np.zeros(one.size))]
    if not weights.any():
        return found
    logs = t @ weights
    order = np.argsort(logs, axis=0)
    below = np.cumsum(points.mass[order], axis=0) / points.mass.sum()
    for low in LOW:
        first = np.argmax(below >= low, axis=0)[None]
        lowest = np.take_along_axis(np.take_along_axis(logs, order, axis=0), first, axis=0)[0]
        found.append(Units(weights, np.where(weights.any(axis=0), lowest, 0.0)))
    return found


def _squares(one: Predictors, t: np.ndarray) -> np.ndarray:
    """The squares of the sizes at rows of t, (m, d); 0 of what theta does not move."""
    found = np.zeros((len(t), one.size))
    if not one.is_fixed:
        entries = np.array([one.entries(row) for row in t])
        moves = np.ptp(entries, axis=0) > MOVED * abs(entries).max(axis=0)
        columns = one.columns[moves]
        for own, row in zip(found, entries[:, moves], strict=True):
            own += np.bincount(columns, row**2, minlength=one.size)
    if one.back is not None:
        for own, row in zip(found, t, strict=True):
            matrix: csr_array = one.back.matrix(row)
            squares = np.asarray((matrix * matrix).sum(axis=1)).ravel()
            divided = (np.diff(matrix.indptr) > 1) | (squares != 1.0)
            own[divided] = 1.0 / squares[divided]
    return found
