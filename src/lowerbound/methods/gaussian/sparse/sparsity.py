"""Which entries of u meet in log p: the sparsity of its second derivatives, found by probing.

The best Gaussian of all has precision -E[H], with H the second derivatives of log p, so it has the
zeros of H. Units that are independent given the globals, and Markov chains, have many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowerbound.ascent.bordered import Bordered
from lowerbound.cost import allowance, numbers_computed
from lowerbound.methods.gaussian.sparse.curvature import (
    Directions,
    Groups,
    groups_of,
    second_derivatives,
)
from lowerbound.methods.gaussian.target import Target

BINS, ROUNDS = 24, 3  # into which the columns of a large group are thrown, and how often
EXACT_BELOW = 500  # columns of a group that are looked at one by one
PAYS = 0.2  # of the work with a full covariance
MOST_WORK = 1e10  # operations of one factorisation with a border
MOST_CURVATURE = 1e10  # numbers computed for the second derivatives at a point
_NOTHING = 1e5  # roundings of the largest product in a row
_PEELED = 20
_GRADIENTS = 2  # that a product with H takes the time of, roughly
_LOOKING = 0.2  # of what the fit may take: more is not spent on looking


class NoCurvatureError(Exception):
    """The second derivatives of log p are no numbers, where log p and its slope are."""


@dataclass(frozen=True, eq=False)
class Sparsity:
    """An order of the entries of u in which the precision is banded with a dense border.

    `directions` give all second derivatives: those of a unit's number for all units at once.
    """

    groups: Groups
    order: np.ndarray  # (d,): entries of u, those of the border last
    border: int  # G, the number of globals
    width: int  # b, how far banded entries reach in their order
    largest: int  # the largest set of locals that meet given the globals
    directions: Directions
    row: np.ndarray  # (d,): the direction that holds the column of an entry
    kept: np.ndarray  # (b + 1, N): whether two neighbours meet

    @property
    def size(self) -> int:
        """The dimension d."""
        return len(self.order)

    @property
    def count(self) -> int:
        """The number of directions."""
        return sum(map(len, self.directions))

    @property
    def local(self) -> int:
        """The number of banded entries."""
        return self.size - self.border

    def __str__(self) -> str:
        if self.largest == self.local:
            return f"{self.border} globals, a chain of {self.local} that meet {self.width} apart"
        each = f"{self.local} locals in sets of up to {self.largest}"
        return f"{self.border} globals, {each}"

    def read(self, products: np.ndarray) -> Bordered:
        """The matrix H, in this order, from its products with the directions."""
        local, last = self.order[: self.local], self.order[self.local :]
        band = np.zeros(self.kept.shape)
        for k in range(self.width + 1):
            low, high = local[: self.local - k], local[k:]
            band[k, : self.local - k] = self._entries(products, high, low)
        band[~self.kept] = 0.0
        border = products[self.row[last][None, :], local[:, None]]
        corner = self._entries(products, last[:, None], last[None, :])
        return Bordered(band, border, 0.5 * (corner + corner.T))

    def _entries(self, products: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """H at (rows, columns), from whichever of both has been computed."""
        known = self._table[self.groups.owner[columns], self.groups.owner[rows]]
        direct, other = products[self.row[columns], rows], products[self.row[rows], columns]
        return np.asarray(np.where(known, direct, other))

    @property
    def _table(self) -> np.ndarray:
        count = len(self.groups.entries)
        table = np.zeros((count, count), bool)
        for group, wanted in enumerate(self.groups.wanted):
            table[group, list(wanted)] = True
        return table


def sparsity_of(target: Target, points: np.ndarray, most: float) -> Sparsity | None:
    """The sparsity of H at some points, as a band and a border of the least work.

    None where no order is found in which a factorisation takes fewer than `most` operations. Raises
    NoCurvatureError where H is finite at none of the points.
    """
    groups = groups_of(target)
    pattern = _pattern(target, groups, points)
    return None if pattern is None else _ordered(groups, pattern, most)


def work(border: int, local: int, width: int) -> float:
    """Operations of one factorisation, roughly."""
    return local * float(width + 1 + border) ** 2 + float(border) ** 3


def work_that_pays(size: int) -> float:
    """Operations of a factorisation that saves most of a full covariance's, and is affordable."""
    return min(PAYS * full_work(size), MOST_WORK)


def full_work(size: int) -> float:
    """Operations of one factorisation of a full covariance, roughly."""
    return work(size, 0, 0)


def affordable(target: Target, directions: int) -> bool:
    """Whether second derivatives in so many directions cost little enough."""
    return curvature_work(target, directions) <= MOST_CURVATURE


def curvature_work(target: Target, directions: int) -> float:
    """Numbers computed for the second derivatives at one point, roughly."""
    return numbers_computed(target.closed.jaxpr) * float(directions)


def dense(target: Target) -> Sparsity:
    """No zeros at all: every entry is in the border. It is as large as a covariance."""
    groups = groups_of(target)
    order = np.concatenate(groups.entries[::-1])  # small sites last, where draws are best
    directions = tuple(np.eye(len(entries)) for entries in groups.entries)
    row = np.empty(len(order), int)
    row[np.concatenate(groups.entries)] = np.arange(len(order))
    kept = np.zeros((1, 0), bool)
    return Sparsity(groups, order, len(order), 0, 0, directions, row, kept)


def _pattern(target: Target, groups: Groups, points: np.ndarray) -> Any | None:
    """The pairs of entries that meet, as a sparse matrix.

    None where they are too many to tell, and where to look would take too long.
    """
    from scipy.sparse import coo_matrix

    size, epsilon = target.size, float(np.finfo(target.dtype).eps)
    looks = [_look(entries, number) for number, entries in enumerate(groups.entries)]
    directions = tuple(look.directions for look in looks)
    gradients = _GRADIENTS * len(points) * sum(map(len, directions))
    if target.seconds(gradients) > _LOOKING * allowance().seconds:
        return None
    pairs = [np.stack([np.arange(size)] * 2)]
    every = [second_derivatives(target, groups, directions, point[None]) for point in points]
    fine = [bool(np.isfinite(products).all()) for products in every]
    if not any(fine):
        raise NoCurvatureError
    if not all(fine):
        return None
    for products in every:
        begin = 0
        for look in looks:
            own = products[begin : begin + len(look.directions)]
            begin += len(look.directions)
            found = look.read(own, epsilon)
            if found is None:
                return None
            pairs.append(found)
    rows, columns = np.concatenate(pairs, axis=1)
    one = coo_matrix((np.ones(len(rows), bool), (rows, columns)), (size, size)).tocsr()
    return (one + one.T).astype(bool)


@dataclass(frozen=True, eq=False)
class _Look:
    """Columns of H thrown into bins, each bin added up twice: plainly, and by a code of the column.

    Where one column of a bin has an entry in a row, the ratio of both sums is its code. What is
    known is taken off, and others become alone in their bins.
    """

    entries: np.ndarray
    bins: np.ndarray  # (rounds, columns): the bin of each column
    directions: np.ndarray

    def read(self, products: np.ndarray, epsilon: float) -> np.ndarray | None:
        """The pairs (row, column) that meet; None where they cannot be told apart."""
        from scipy.sparse import csr_matrix

        count, size = len(self.entries), products.shape[1]
        if not len(self.bins):  # one by one
            columns, rows = np.nonzero(products)
            return np.stack([rows, self.entries[columns]])
        half = len(products) // 2
        plain, coded = csr_matrix(self.directions[:half]), csr_matrix(self.directions[half:])
        known = csr_matrix((count, size))
        scale = np.abs(products).max(axis=0)
        for _ in range(_PEELED):
            left = products[:half] - (plain @ known).toarray()
            by_code = products[half:] - (coded @ known).toarray()
            some = np.maximum(np.abs(left), np.abs(by_code)) > _NOTHING * epsilon * scale
            if not some.any():
                break
            with np.errstate(all="ignore"):
                place = (by_code / left - 1.0) * count
                rounding = count * epsilon * (1e6 + 1e2 * scale / np.abs(left))
            index = np.clip(np.nan_to_num(np.rint(place), nan=-1.0), -1, count).astype(int)
            alone = some & (index >= 0) & (index < count)
            index = np.where(alone, index, 0)
            alone &= np.abs(place - index) < np.minimum(0.1, rounding)
            which, rows = np.nonzero(alone)
            columns = index[which, rows]
            weights = self.directions[which, columns]
            fine = weights != 0
            which, rows, columns = which[fine], rows[fine], columns[fine]
            _, first = np.unique(columns * size + rows, return_index=True)
            if not len(first):
                return None
            which, rows, columns = which[first], rows[first], columns[first]
            values = left[which, rows] / self.directions[which, columns]
            known = known + csr_matrix((values, (columns, rows)), (count, size))
        else:
            return None
        columns, rows = known.nonzero()
        return np.stack([rows, self.entries[columns]])


def _look(entries: np.ndarray, seed: int) -> _Look:
    count = len(entries)
    if count <= EXACT_BELOW:
        return _Look(entries, np.zeros((0, count), int), np.eye(count))
    rng = np.random.default_rng(seed)
    bins = rng.integers(BINS, size=(ROUNDS, count))
    thrown = (bins[:, None, :] == np.arange(BINS)[:, None]).reshape(-1, count)
    plain = np.where(thrown, rng.uniform(0.5, 2.0, count), 0.0)
    code = 1.0 + np.arange(count) / count
    return _Look(entries, bins, np.concatenate([plain, plain * code]))


def _ordered(groups: Groups, pattern: Any, most: float) -> Sparsity | None:
    """The globals are the entries that meet most others: as many of them as make least work.

    None where that is not less than `most`.
    """
    from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

    degree = np.diff(pattern.indptr) - 1
    levels = np.unique(degree)
    levels = levels[np.unique(np.linspace(0, len(levels) - 1, 20).astype(int))]
    best: tuple[float, np.ndarray, np.ndarray, int] | None = None
    for level in levels:
        last = np.flatnonzero(degree > level)
        local = np.flatnonzero(degree <= level)
        inner = pattern[local][:, local]
        order = reverse_cuthill_mckee(inner, symmetric_mode=True)
        place = np.empty(len(local), int)
        place[order] = np.arange(len(local))
        rows, columns = inner.nonzero()
        width = int(np.abs(place[rows] - place[columns]).max(initial=0))
        spent = work(len(last), len(local), width)
        if best is None or spent < best[0]:
            best = spent, local[order], last, width
    assert best is not None
    spent, local, last, width = best
    if spent >= most:
        return None
    inner = pattern[local][:, local]
    _, labels = connected_components(inner, directed=False)
    largest = int(np.bincount(labels).max())
    kept = np.zeros((width + 1, len(local)), bool)
    rows, columns = inner.nonzero()
    below = rows >= columns
    kept[(rows - columns)[below], columns[below]] = True
    directions, row = _directions(groups, pattern, local, last)
    order = np.concatenate([local, last])
    wanted = _wanted(groups, last)
    return Sparsity(
        replace(groups, wanted=wanted), order, len(last), width, largest, directions, row, kept
    )


def _wanted(groups: Groups, last: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """All rows of the columns of globals, which are not computed from those of locals."""
    every = tuple(range(len(groups.entries)))
    return tuple(
        wanted if not np.isin(entries, last).any() or number == 0 else every
        for number, (entries, wanted) in enumerate(zip(groups.entries, groups.wanted, strict=True))
    )


def _directions(
    groups: Groups, pattern: Any, local: np.ndarray, last: np.ndarray
) -> tuple[Directions, np.ndarray]:
    """One direction a global, and one for all locals no two of which meet a third in a row."""
    size = pattern.shape[0]
    is_last = np.zeros(size, bool)
    is_last[last] = True
    place = np.zeros(size, int)
    place[local] = np.arange(len(local))
    inner = pattern[local][:, local]
    neighbours = [
        inner.indices[a:b] for a, b in zip(inner.indptr[:-1], inner.indptr[1:], strict=True)
    ]
    matrices, row, begin = [], np.empty(size, int), 0
    for entries in groups.entries:
        colours = _coloured(place[entries[~is_last[entries]]], neighbours)
        count = max(colours.values(), default=-1) + 1
        own = entries[is_last[entries]]
        matrix = np.zeros((count + len(own), len(entries)))
        for number, entry in enumerate(entries):
            if not is_last[entry]:
                line = colours[place[entry]]
            else:
                line = count + int(np.searchsorted(own, entry))
            matrix[line, number] = 1.0
            row[entry] = begin + line
        matrices.append(matrix)
        begin += len(matrix)
    return tuple(matrices), row


def _coloured(places: Sequence[int] | np.ndarray, neighbours: list[np.ndarray]) -> dict[int, int]:
    """Colours such that no entry meets two of the same colour."""
    taken: dict[int, set[int]] = {}
    found: dict[int, int] = {}
    for place in places:
        near = neighbours[place]
        used: set[int] = set().union(*(taken.get(i, ()) for i in near))
        colour = next(c for c in range(len(used) + 1) if c not in used)
        found[int(place)] = colour
        for i in near:
            taken.setdefault(int(i), set()).add(colour)
    return found
