"""Which entries of a sparse precision to eliminate first: small blocks that do not meet each other.

Given the rest, such blocks are independent: the levels of one factor given those of another, the
casks of a batch, the intercept and slope of each group, pieces of a chain between its joints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["blocks_of"]

LARGEST_BLOCK = 8
_LEVELS = 20  # of the number of neighbours up to which entries are candidates
_GROUPS = 30  # the largest, which are candidates by themselves and together
_WIDEST = 4  # how far the entries of a chain may reach for it to be cut into pieces
_ROUNDS = 6  # in which entries without neighbours among each other are chosen
# In operations of a dense factorisation: what one of the scattered sums and one stage take.
SCATTERED, STAGE = 100.0, 2e7


def blocks_of(rows: np.ndarray, columns: np.ndarray, size: int, groups: np.ndarray) -> np.ndarray:
    """The block that each entry is eliminated with, (size,), and -1 for those that are left.

    `rows` > `columns` are the pairs that meet; `groups` says which site an entry belongs to. The
    choice is that of least work if all that is left were dense. Where none pays, nothing is chosen.
    """
    pairs = _Pairs(rows, columns, size)
    best, least = np.zeros(size, bool), float(size) ** 3 / 3
    if least <= STAGE:
        return pairs.labels(best)
    for mask in _candidates(pairs, groups):
        best, least = _better(pairs, mask, best, least)
    for mask in _largest(groups):
        best, least = _better(pairs, mask | best, best, least)
    return pairs.labels(best)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """The graph of a pattern: pairs of entries that meet."""

    rows: np.ndarray
    columns: np.ndarray
    size: int

    @cached_property
    def degree(self) -> np.ndarray:
        """With how many others each entry meets."""
        count = np.bincount(self.rows, minlength=self.size)
        return count + np.bincount(self.columns, minlength=self.size)

    def within(self, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The pairs both of whose entries are chosen."""
        inside = mask[self.rows] & mask[self.columns]
        return self.rows[inside], self.columns[inside]

    def components(self, mask: np.ndarray) -> np.ndarray:
        """The connected set of each entry, in the graph of those that are chosen."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        rows, columns = self.within(mask)
        if not len(rows):
            return np.arange(self.size)
        graph = coo_array((np.ones(len(rows), np.int8), (rows, columns)), (self.size, self.size))
        labels: np.ndarray = connected_components(graph, directed=False)[1]
        return labels

    def labels(self, mask: np.ndarray) -> np.ndarray:
        """The connected sets of those that are chosen, numbered; -1 for the others."""
        found = np.full(self.size, -1)
        found[mask] = np.unique(self.components(mask)[mask], return_inverse=True)[1]
        return found


def _better(
    pairs: _Pairs, mask: np.ndarray, best: np.ndarray, least: float
) -> tuple[np.ndarray, float]:
    """The small connected sets of a candidate, where they make less work than the best so far."""
    labels = pairs.components(mask)
    chosen = mask & (np.bincount(labels, minlength=pairs.size)[labels] <= LARGEST_BLOCK)
    scattered = float(np.sum((pairs.degree[chosen] + 1.0) ** 2))
    left = float(pairs.size - np.count_nonzero(chosen))
    work = STAGE + SCATTERED * scattered + left**3 / 3
    return (chosen, work) if work < least else (best, least)


def _candidates(pairs: _Pairs, groups: np.ndarray) -> Iterator[np.ndarray]:
    yield from _largest(groups)
    levels = np.unique(pairs.degree)
    for level in levels[np.unique(np.linspace(0, len(levels) - 1, _LEVELS).astype(int))]:
        few = pairs.degree <= level
        yield few
        pieces = _pieces(pairs, few)
        if pieces is not None:
            yield pieces
        yield _apart(pairs, few)


def _largest(groups: np.ndarray) -> Iterator[np.ndarray]:
    names, counts = np.unique(groups, return_counts=True)
    for name in names[np.argsort(-counts, kind="stable")[:_GROUPS]]:
        yield groups == name


def _pieces(pairs: _Pairs, mask: np.ndarray) -> np.ndarray | None:
    """Chains and bands without every few of their entries, so that they fall into blocks."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    rows, columns = pairs.within(mask)
    if len(rows) > _WIDEST * np.count_nonzero(mask):
        return None
    both = np.concatenate([rows, columns]), np.concatenate([columns, rows])
    graph = csr_array((np.ones(2 * len(rows), np.int8), both), (pairs.size, pairs.size))
    place = np.empty(pairs.size, np.int64)
    place[reverse_cuthill_mckee(graph, symmetric_mode=True)] = np.arange(pairs.size)
    width = int(np.abs(place[rows] - place[columns]).max(initial=0))
    if not 0 < width <= _WIDEST:
        return None
    return np.asarray(mask & (place % (LARGEST_BLOCK + width) < LARGEST_BLOCK))


def _apart(pairs: _Pairs, mask: np.ndarray) -> np.ndarray:
    """Entries no two of which meet: of two that do, the one with fewer neighbours is preferred."""
    rows, columns = pairs.within(mask)
    chance = np.random.default_rng(0).permutation(pairs.size)  # any fixed order will do
    rank = np.empty(pairs.size, np.int64)
    rank[np.lexsort((chance, pairs.degree))] = np.arange(pairs.size)
    chosen, free = np.zeros(pairs.size, bool), mask.copy()
    for _ in range(_ROUNDS):
        open_ = free[rows] & free[columns]
        rows, columns = rows[open_], columns[open_]
        first = free.copy()
        first[np.where(rank[rows] > rank[columns], rows, columns)] = False
        chosen |= first
        free &= ~first
        free[rows[first[columns]]] = False
        free[columns[first[rows]]] = False
        if not free.any():
            break
    return chosen
