"""Which entries of a sparse precision to eliminate first: small blocks that do not meet each other.

Given the rest, such blocks are independent: the levels of one factor given those of another, the
casks of a batch, the intercept and slope of each group, pieces of a chain between its joints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

__all__ = ["blocks_of"]

LARGEST_BLOCK = 8
_LEVELS = 20  # of the number of neighbours up to which entries are candidates
_GROUPS = 30  # the largest, which are candidates by themselves and together
_WIDEST = 4  # how far the entries of a chain may reach for it to be cut into pieces
_SPARED = 3  # only every so many levels are looked at for entries that do not meet at all
_ROUNDS = 6  # in which entries without neighbours among each other are chosen
_PAYS = 0.95  # of the work without a stage
# In operations of a dense factorisation: what one of the scattered sums and one stage take.
SCATTERED, STAGE = 100.0, 2e7


def blocks_of(rows: np.ndarray, columns: np.ndarray, size: int, groups: np.ndarray) -> np.ndarray:
    """The block that each entry is eliminated with, (size,), and -1 for those that are left.

    `rows` > `columns` are the pairs that meet; `groups` says which site an entry belongs to. The
    choice is that of least work if all that is left were dense. Where none pays, nothing is chosen.
    """
    degree = np.bincount(rows, minlength=size) + np.bincount(columns, minlength=size)
    pairs, best = _Pairs(rows, columns, degree), _Choice.nothing(size)
    if best.work <= STAGE:
        return best.labels
    for mask in _largest(groups):
        best = best.or_better(pairs.among(mask), mask)
    levels = np.unique(degree)
    levels = levels[np.unique(np.linspace(0, len(levels) - 1, _LEVELS).astype(int))]
    for number, level in enumerate(levels):
        few = degree <= level
        if best.beats(few):
            continue
        inner = pairs.among(few)
        best = best.or_better(inner, few)
        pieces = _pieces(inner, few)
        if pieces is not None:
            best = best.or_better(inner.among(pieces), pieces)
        if (len(levels) - 1 - number) % _SPARED == 0:
            apart = _apart(inner, few)
            best = best.or_better(inner.among(apart), apart)
    for mask in _largest(groups):
        both = mask | best.mask
        best = best.or_better(pairs.among(both), both)
    return best.labels


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of entries that meet: the graph of a pattern, or of a part of it."""

    rows: np.ndarray
    columns: np.ndarray
    degree: np.ndarray  # (size,): with how many others an entry meets in all of the pattern

    def among(self, mask: np.ndarray) -> _Pairs:
        """The pairs both of whose entries are chosen."""
        inside = mask[self.rows] & mask[self.columns]
        return replace(self, rows=self.rows[inside], columns=self.columns[inside])

    def components(self) -> np.ndarray:
        """The connected set of each entry."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        size = len(self.degree)
        if not len(self.rows):
            return np.arange(size)
        ones = np.ones(len(self.rows), np.int8)
        graph = coo_array((ones, (self.rows, self.columns)), (size, size))
        labels: np.ndarray = connected_components(graph, directed=False)[1]
        return labels


@dataclass(frozen=True, eq=False)
class _Choice:
    """Entries that are eliminated, and the work with them."""

    mask: np.ndarray
    sets: np.ndarray  # (size,): the connected set of each of them
    work: float

    @classmethod
    def nothing(cls, size: int) -> _Choice:
        return cls(np.zeros(size, bool), np.arange(size), _PAYS * float(size) ** 3 / 3)

    @property
    def labels(self) -> np.ndarray:
        """The connected sets of those that are chosen, numbered; -1 for the others."""
        found = np.full(len(self.mask), -1)
        found[self.mask] = np.unique(self.sets[self.mask], return_inverse=True)[1]
        return found

    def beats(self, mask: np.ndarray) -> bool:
        """Whether it makes less work than a candidate that has only to do what that leaves."""
        return self.work <= STAGE + float(np.count_nonzero(~mask)) ** 3 / 3

    def or_better(self, inner: _Pairs, mask: np.ndarray) -> _Choice:
        """The small connected sets of a candidate, where they make less work than this."""
        most = (LARGEST_BLOCK - 1) / 2 * np.count_nonzero(mask)
        if self.beats(mask) or len(inner.rows) > most:  # more pairs than small sets can have
            return self
        sets = inner.components()
        small = mask & (np.bincount(sets, minlength=len(mask))[sets] <= LARGEST_BLOCK)
        scattered = float(np.sum((inner.degree[small] + 1.0) ** 2))
        left = float(np.count_nonzero(~small))
        work = STAGE + SCATTERED * scattered + left**3 / 3
        return _Choice(small, sets, work) if work < self.work else self


def _largest(groups: np.ndarray) -> Iterator[np.ndarray]:
    names, counts = np.unique(groups, return_counts=True)
    for name in names[np.argsort(-counts, kind="stable")[:_GROUPS]]:
        yield groups == name


def _pieces(inner: _Pairs, mask: np.ndarray) -> np.ndarray | None:
    """Chains and bands without every few of their entries, so that they fall into blocks."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    rows, columns, size = inner.rows, inner.columns, len(mask)
    if not 0 < len(rows) <= _WIDEST * np.count_nonzero(mask):
        return None
    both = np.concatenate([rows, columns]), np.concatenate([columns, rows])
    graph = csr_array((np.ones(2 * len(rows), np.int8), both), (size, size))
    place = np.empty(size, np.int64)
    place[reverse_cuthill_mckee(graph, symmetric_mode=True)] = np.arange(size)
    width = int(np.abs(place[rows] - place[columns]).max())
    if width > _WIDEST:
        return None
    return np.asarray(mask & (place % (LARGEST_BLOCK + width) < LARGEST_BLOCK))


def _apart(inner: _Pairs, mask: np.ndarray) -> np.ndarray:
    """Entries no two of which meet: of two that do, the one with fewer neighbours is preferred."""
    rows, columns, size = inner.rows, inner.columns, len(mask)
    chance = np.random.default_rng(0).permutation(size)  # any fixed order will do
    rank = np.empty(size, np.int64)
    rank[np.lexsort((chance, inner.degree))] = np.arange(size)
    chosen, free = np.zeros(size, bool), mask.copy()
    for _ in range(_ROUNDS):
        first = free.copy()
        first[np.where(rank[rows] > rank[columns], rows, columns)] = False
        chosen |= first
        free &= ~first
        free[rows[first[columns]]] = False
        free[columns[first[rows]]] = False
        still = free[rows] & free[columns]
        rows, columns = rows[still], columns[still]
    return chosen
