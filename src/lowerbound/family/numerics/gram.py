"""A' W A for a sparse A whose pattern is fixed: its values, and the variances of A z.

Pairs of entries of A in one row are listed once and for all. Both are sums over these pairs, linear
in the weights and in the covariances, so that a caller can write them as traced sums as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

__all__ = ["Gram", "distinct", "gram_pattern"]

_AT_ONCE = 2**20  # pairs


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
    owner: np.ndarray
    count: int  # rows of A

    @property
    def multiplicity(self) -> np.ndarray:
        """How often a symmetric matrix has each entry, (nnz,): twice off the diagonal."""
        return np.where(self.rows == self.columns, 1.0, 2.0)

    def values(self, a_values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The entries of A' W A, (nnz,)."""
        out = np.zeros(len(self.rows))
        for some in self._parts():
            np.add.at(out, self.place[some], self._products(a_values, some, weights, self.owner))
        return out

    def quadratic(self, a_values: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """The diagonal of A C A', (count,), from the entries of C at the pattern, (nnz,)."""
        out = np.zeros(self.count)
        twice = self.multiplicity * covariance
        for some in self._parts():
            np.add.at(out, self.owner[some], self._products(a_values, some, twice, self.place))
        return out

    def _parts(self) -> Iterator[slice]:
        for begin in range(0, len(self.place), _AT_ONCE):
            yield slice(begin, begin + _AT_ONCE)

    def _products(
        self, a_values: np.ndarray, some: slice, factor: np.ndarray, at: np.ndarray
    ) -> np.ndarray:
        products = np.take(a_values, self.first[some]) * np.take(a_values, self.second[some])
        products *= np.take(factor, at[some])
        return np.asarray(products, np.float64)


def gram_pattern(rows: np.ndarray, columns: np.ndarray, count: int, size: int) -> Gram:
    """The pattern of A' W A for A of shape (count, size) with entries at (rows, columns).

    Entries may be in any order; those at the same place add up.

    >>> gram = gram_pattern(np.array([0, 0, 1]), np.array([0, 1, 1]), 2, 2)
    >>> gram.rows.tolist(), gram.columns.tolist()
    ([0, 1, 1], [0, 0, 1])
    >>> gram.values(np.array([1.0, 2.0, 3.0]), np.ones(2)).tolist()
    [1.0, 2.0, 13.0]
    """
    order = np.argsort(rows, kind="stable").astype(np.int32)
    widths = np.bincount(rows, minlength=count)
    begins = np.cumsum(widths) - widths
    diagonal = np.arange(size, dtype=np.int64) * (size + 1)
    parts = [_Part.of(np.zeros((3, 0), np.int32), diagonal)]
    for width in np.unique(widths[widths > 0]):
        low, high = np.tril_indices(width)[::-1]
        alike = np.flatnonzero(widths == width)
        step = max(1, _AT_ONCE // len(low))
        for begin in range(0, len(alike), step):
            some = alike[begin : begin + step, None]
            first, second = order[begins[some] + low], order[begins[some] + high]
            owner = np.broadcast_to(some, first.shape)
            pairs = np.stack([first, second, owner]).astype(np.int32).reshape(3, -1)
            parts.append(_Part.between(pairs, columns, size))
    keys = distinct(np.concatenate([part.keys for part in parts]))
    place = np.concatenate([part.place(keys) for part in parts[1:]] or [np.zeros(0, np.int32)])
    first, second, owner = np.concatenate([part.pairs for part in parts], axis=1)
    return Gram(
        (keys // size).astype(np.int32),
        (keys % size).astype(np.int32),
        first,
        second,
        place,
        owner,
        count,
    )


@dataclass(frozen=True, eq=False)
class _Part:
    """Some pairs, and where their products are: a few at once, so that sorting takes no memory."""

    pairs: np.ndarray  # (3, pairs): first, second, owner
    keys: np.ndarray  # row * size + column, once each, sorted
    which: np.ndarray  # (pairs,): the key of a pair

    @classmethod
    def of(cls, pairs: np.ndarray, keys: np.ndarray) -> _Part:
        known = distinct(keys)
        return cls(pairs, known, np.searchsorted(known, keys).astype(np.int32))

    @classmethod
    def between(cls, pairs: np.ndarray, columns: np.ndarray, size: int) -> _Part:
        one, other = columns[pairs[0]].astype(np.int64), columns[pairs[1]].astype(np.int64)
        same = np.flatnonzero((one == other) & (pairs[0] != pairs[1]))
        keys = np.maximum(one, other) * size + np.minimum(one, other)
        again = pairs[:, same][[1, 0, 2]]
        return cls.of(np.concatenate([pairs, again], axis=1), np.concatenate([keys, keys[same]]))

    def place(self, keys: np.ndarray) -> np.ndarray:
        """The position of each product among all keys."""
        return np.asarray(np.searchsorted(keys, self.keys).astype(np.int32)[self.which])


def distinct(keys: np.ndarray) -> np.ndarray:
    """The integers that occur, in order; `np.unique` takes ten times as long for many of them."""
    ordered = np.sort(keys)
    new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return np.asarray(ordered[new])
