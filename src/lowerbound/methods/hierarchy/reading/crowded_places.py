"""Entries of a sparse matrix that stand at the same places, to be added up where they are many.

A loop meets the same columns in every step, and a row of its last one would have an entry for each
of these; what meets in a row is as many pairs as that squared.
"""

from __future__ import annotations

import numpy as np

from lowerbound.family.numerics.orders import order_of

__all__ = ["added_up"]

SPARE = 4  # places for summands, of as many entries


def added_up(
    rows: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """The places of entries, once each, and the entries at each; None where that saves little.

    The numbers of a place's entries are a row of the last array, filled up with one beyond all.

    >>> rows, columns, entries = added_up(np.array([0, 1, 0]), np.array([2, 0, 2]))
    >>> rows.tolist(), columns.tolist(), entries.tolist()
    ([0, 1], [2, 0], [[0, 2], [1, 3]])
    """
    if not _crowded(rows, columns):
        return None
    width = int(columns.max()) + 1
    places, which = np.unique(rows * width + columns, return_inverse=True)
    counts = np.bincount(which)
    most = int(counts.max())
    if len(places) * most > SPARE * len(rows):
        return None
    entries = np.full((len(places), most), len(rows))
    order = order_of(which)
    within = np.arange(len(rows)) - (np.cumsum(counts) - counts)[which[order]]
    entries[which[order], within] = order
    return places // width, places % width, entries


def _crowded(rows: np.ndarray, columns: np.ndarray) -> bool:
    """Whether the row with the most entries has them at half as many places, or less."""
    if not len(rows):
        return False
    own = columns[rows == np.bincount(rows).argmax()]
    return 2 * len(np.unique(own)) <= len(own)
