"""A' W A for a sparse A whose pattern is fixed: its values, and the variances of A z.

Pairs of entries of A in one row are listed once and for all. Both are sums over these pairs, linear
in the weights and in the covariances: products with one sparse matrix, and a caller can write them
as traced sums as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lowerbound.family.numerics.orders import order_of

__all__ = ["Gram", "distinct", "gram_pattern"]


@dataclass(frozen=True, eq=False)
class Gram:
    """The lower triangle of A' W A, as a function of A's entries and of a weight for each row.

    For every pair of entries in a row of A, `first` <= `second` are their positions in the list of
    entries, `place` is that of their product in the pattern, and `owner` is the row:

        values[place]    += a[first] a[second] weights[owner]
        quadratic[owner] += a[first] a[second] (multiplicity covariance)[place]

    Two entries in the same row and column are a pair in both orders, since (a + b)^2 has 2 a b.
    """

    rows: np.ndarray  # (nnz,): rows >= columns, sorted, with all of the diagonal
    columns: np.ndarray
    first: np.ndarray  # (pairs,)
    second: np.ndarray
    place: np.ndarray
    owner: np.ndarray  # in order
    count: int  # rows of A

    @property
    def pairs(self) -> int:
        """How many products are summed."""
        return len(self.place)

    @property
    def multiplicity(self) -> np.ndarray:
        """How often a symmetric matrix has each entry, (nnz,): twice off the diagonal."""
        return np.where(self.rows == self.columns, 1.0, 2.0)

    @cached_property
    def _begins(self) -> np.ndarray:
        """Where the pairs of each row begin."""
        counts = np.bincount(self.owner, minlength=self.count)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    def products(self, a_values: np.ndarray) -> Any:
        """The matrix (count, nnz) of products of A's entries: its pairs, by rows.

        Times weights from the left it is A' W A, times covariances the diagonal of A C A'.
        """
        from scipy.sparse import csr_array

        both = np.take(a_values, self.first) * np.take(a_values, self.second)
        shape = self.count, len(self.rows)
        return csr_array((both.astype(np.float64, copy=False), self.place, self._begins), shape)

    def values(self, products: Any, weights: np.ndarray) -> np.ndarray:
        """The entries of A' W A, (nnz,), from the products of A's entries."""
        return np.asarray(products.T @ weights)

    def quadratic(self, products: Any, covariance: np.ndarray) -> np.ndarray:
        """The diagonal of A C A', (count,), from the entries of C at the pattern, (nnz,)."""
        return np.asarray(products @ (self.multiplicity * covariance))


def gram_pattern(rows: np.ndarray, columns: np.ndarray, count: int, size: int) -> Gram:
    """The pattern of A' W A for A of shape (count, size) with entries at (rows, columns).

    Entries may be in any order; those at the same place add up.

    >>> gram = gram_pattern(np.array([0, 0, 1]), np.array([0, 1, 1]), 2, 2)
    >>> gram.rows.tolist(), gram.columns.tolist()
    ([0, 1, 1], [0, 0, 1])
    >>> gram.values(gram.products(np.array([1.0, 2.0, 3.0])), np.ones(2)).tolist()
    [1.0, 2.0, 13.0]
    """
    order = order_of(rows).astype(np.int32)
    widths = np.bincount(rows, minlength=count)
    begins = np.cumsum(widths) - widths
    parts = []
    for width in np.unique(widths[widths > 0]):
        owner = np.flatnonzero(widths == width)
        entries = order[begins[owner][:, None] + np.arange(width)]
        parts.append(_Rows.of(owner.astype(np.int32), entries, columns[entries].astype(np.int64)))
    diagonal = np.arange(size, dtype=np.int64) * (size + 1)
    met = [kind.keys(size).ravel() for part in parts for kind in part.kinds]
    keys = distinct(np.concatenate([diagonal, *met]))
    found = [part.pairs(keys, size) for part in parts] or [np.zeros((4, 0), np.int32)]
    first, second, place, owner = found[0] if len(found) == 1 else np.concatenate(found, axis=1)
    if (owner[1:] < owner[:-1]).any():
        by_row = order_of(owner)
        first, second, place, owner = (part[by_row] for part in (first, second, place, owner))
    at = (keys // size).astype(np.int32), (keys % size).astype(np.int32)
    return Gram(*at, first, second, place, owner, count)


@dataclass(frozen=True, eq=False)
class _Kind:
    """Pairs of slots (of a row's entries) whose columns are known from one pair of numbers.

    An effect's intercept and slopes, and all columns that every row has, differ by what is the
    same in all rows. So few pairs of numbers need sorting.
    """

    high: np.ndarray  # (p,): pairs of slots
    low: np.ndarray
    steps: tuple[np.ndarray, np.ndarray]  # (p,): of their columns to the pair of numbers
    known: tuple[np.ndarray, np.ndarray]  # (u,): the pairs of numbers, once each
    which: np.ndarray  # (n,): of each row

    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Of both entries, (u, p)."""
        (one, other), (first, second) = self.known, self.steps
        return one[:, None] + first, other[:, None] + second

    def keys(self, size: int) -> np.ndarray:
        """Row and column of the product as row * size + column, (u, p)."""
        one, other = self.columns()
        return np.asarray(np.maximum(one, other) * size + np.minimum(one, other))


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of A with the same number of entries."""

    owner: np.ndarray  # (n,)
    entries: np.ndarray  # (n, w): positions in the list of entries, in order
    kinds: list[_Kind]

    @classmethod
    def of(cls, owner: np.ndarray, entries: np.ndarray, columns: np.ndarray) -> _Rows:
        leader, step = _leaders(columns)
        high, low = np.tril_indices(columns.shape[1])
        kinds = []
        for one, other in np.unique(np.stack([leader[high], leader[low]]), axis=1).T:
            alike = np.flatnonzero((leader[high] == one) & (leader[low] == other))
            base = int(columns.max()) + 1
            code = columns[:, one] * base + columns[:, other]
            known = distinct(code)
            which = np.searchsorted(known, code).astype(np.int32)
            slots = high[alike], low[alike]
            steps = step[slots[0]], step[slots[1]]
            kinds.append(_Kind(*slots, steps, (known // base, known % base), which))
        return cls(owner, entries, kinds)

    def pairs(self, keys: np.ndarray, size: int) -> np.ndarray:
        """First, second, place and owner of all pairs, (4, pairs)."""
        (count, width), again = self.entries.shape, []
        high, low = np.tril_indices(width)
        found = np.empty((4, count, len(high)), np.int32)
        self.entries.take(low, 1, out=found[0], mode="clip")
        self.entries.take(high, 1, out=found[1], mode="clip")
        found[3] = self.owner[:, None]
        for kind in self.kinds:
            place = np.searchsorted(keys, kind.keys(size)).astype(np.int32)
            number = kind.high * (kind.high + 1) // 2 + kind.low
            found[2][:, number] = place.take(kind.which, 0)
            one, other = kind.columns()
            same = (one == other) & (kind.high != kind.low)
            if same.any():
                row, pair = np.nonzero(same[kind.which])
                again.append(found[:, row, number[pair]][[1, 0, 2, 3]])
        flat = found.reshape(4, -1)
        return np.concatenate([flat, *again], axis=1) if again else flat


def _leaders(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each slot, the first slot from which it is the same number of columns away in all rows.

    And that number.
    """
    width = columns.shape[1]
    leader, step = np.arange(width), np.zeros(width, np.int64)
    for slot in range(width):
        for other in np.flatnonzero(leader[:slot] == np.arange(slot)):
            away = columns[0, slot] - columns[0, other]
            if (columns[:, slot] - columns[:, other] == away).all():
                leader[slot], step[slot] = other, away
                break
    return leader, step


def distinct(keys: np.ndarray) -> np.ndarray:
    """The integers that occur, in order; `np.unique` takes ten times as long for many of them."""
    ordered = np.sort(keys)
    new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return np.asarray(ordered[new])
