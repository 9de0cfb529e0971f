"""Gaussians with a sparse precision P: factor, solves, draws and the covariances that matter.

Small independent blocks are eliminated first, and what is left loses its Schur complement,
S = P_RR - B' D^-1 B. Where S is sparse, blocks of it are eliminated in turn (nested designs, trees,
chains); in the end it is dense, or, where that is too large, known by its products alone.
Covariances are computed where P has entries and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lowerbound.errors import ArgumentError, TooDenseError
from lowerbound.family.numerics.orders import order_of
from lowerbound.family.sparse.fronts import Front
from lowerbound.family.sparse.gram import distinct
from lowerbound.family.sparse.implicit import PROBES, Implicit
from lowerbound.family.sparse.independent_sets import blocks_of
from lowerbound.family.sparse.stages import AnyFactor, Dense, Factor, Stage

__all__ = ["AnyFactor", "Factor", "Pattern"]

MOST_DENSE = 5000  # entries that are left
# What is left is looked at as sparse up to this share of its entries, so many of them, and so many
# products that add up to them. More take longer to order than they save.
_FILLED, _MOST_ENTRIES, _MOST_PRODUCTS = 0.125, 1e7, 3e7
_PAIRS, _MIXED = 64, 2654435761  # of a block at once; Knuth's multiplier, by which keys are told
_FULL = 0.25  # of what is left: a border that meets more is treated as meeting all
_SPARSER = 2.0  # entries of what is left, to those of its border, up to which it is written down
_MOST_MET = 5e7  # pairs of a block and what it meets, where products are formed in their place
_AT_ONCE = 2**21  # numbers that a front computes


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where a symmetric positive definite matrix has entries, and how it is factored.

    `Pattern.of` remakes it from its first four fields, which are plain arrays.

    >>> pattern = Pattern.of(np.array([0, 1, 1]), np.array([0, 0, 1]), 2, np.zeros(2, int))
    >>> factor = pattern.factor(np.array([2.0, 1.0, 2.0]))
    >>> factor.covariance().round(3).tolist()
    [0.667, -0.333, 0.667]
    """

    rows: np.ndarray  # (nnz,): of the lower triangle, with the diagonal, each pair once
    columns: np.ndarray
    size: int
    groups: np.ndarray  # (size,): the site of each entry, candidates for elimination
    stage: Stage

    @classmethod
    def of(cls, rows: np.ndarray, columns: np.ndarray, size: int, groups: np.ndarray) -> Pattern:
        """The pattern with entries at rows >= columns, of least work.

        Where more than 5000 entries are left they are not written down as a matrix; where none is
        eliminated, or too many meet, TooDenseError is raised.
        """
        rows, columns, groups = (np.asarray(x) for x in (rows, columns, groups))
        _check(rows, columns, size, groups)
        at = rows.astype(np.int64), columns.astype(np.int64)
        return cls(rows, columns, size, groups, _stage_of(*at, size, groups))

    @property
    def last(self) -> Dense | Implicit:
        """What is left in the end."""
        return _last(self.stage)

    @property
    def is_exact(self) -> bool:
        """Whether log-determinants and covariances are, rather than estimated."""
        return isinstance(self.last, Dense)

    @property
    def dense(self) -> int:
        """How many entries are left in the end, as a dense matrix."""
        return self.last.size if isinstance(self.last, Dense) else self.last.exactly

    def __str__(self) -> str:
        last = self.last
        if isinstance(last, Implicit):
            return (
                f"{self.size - last.size:,} eliminated in small blocks; {last.size:,} left, more "
                f"than the {MOST_DENSE:,} that may be dense: by conjugate gradients, "
                f"{last.exactly} directions exactly, log-determinants by {PROBES} fixed probes"
            )
        return f"{self.size - self.dense:,} eliminated in small blocks, {self.dense:,} dense"

    def prepare(self) -> None:
        """Say that there will be factors: what an accelerator needs for them is compiled."""
        self.stage.prepare()

    def factor(self, values: np.ndarray) -> AnyFactor | None:
        """The factor of the matrix with these entries, (nnz,); None if not positive definite."""
        values = np.asarray(values, np.float64)
        return self.stage.factor(values) if np.isfinite(values).all() else None


def _check(rows: np.ndarray, columns: np.ndarray, size: int, groups: np.ndarray) -> None:
    key = rows.astype(np.int64) * size + columns
    fine = groups.shape == (size,) and rows.shape == columns.shape
    fine = fine and bool(((columns >= 0) & (columns <= rows) & (rows < size)).all())
    if not fine or len(distinct(key)) < len(key) or np.count_nonzero(rows == columns) < size:
        raise ArgumentError(
            f"{len(rows)} entries are no pattern of a symmetric matrix of {size} rows.\nExpected "
            "each pair once, in the lower triangle, with all of the diagonal, and a group for "
            "each row."
        )


def _stage_of(rows: np.ndarray, columns: np.ndarray, size: int, groups: np.ndarray) -> Stage:
    off = rows != columns
    blocks = _Blocks.of(blocks_of(rows[off], columns[off], size, groups), rows, columns)
    own = np.flatnonzero(~blocks.is_out[rows] & ~blocks.is_out[columns])
    pair = blocks.left[rows[own]], blocks.left[columns[own]]
    rest, keys = _rest(blocks, pair, groups)
    fronts = tuple(_fronts(blocks, rows, columns, rest, keys))
    to = np.arange(len(own), dtype=np.int32)
    if not isinstance(rest, Implicit):
        to = _located(*pair, len(blocks.kept), keys)
    diagonal = np.empty(size, np.int64)
    diagonal[rows[~off]] = np.flatnonzero(~off)
    return Stage(fronts, blocks.kept, own, to, rest, len(rows), diagonal)


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Blocks to eliminate, and with which of those that are left each of them meets."""

    label: np.ndarray  # (d,): the block of an entry, or -1
    slot: np.ndarray  # (d,): which of its block it is
    kept: np.ndarray  # (r,): entries that are left
    left: np.ndarray  # (d,): which of them an entry is, or -1
    members: np.ndarray  # eliminated entries, block by block
    sizes: np.ndarray  # (blocks,)
    crossing: np.ndarray  # entries of the pattern between a block and what is left
    key: np.ndarray  # the pair of block and what is left, of each of them: block * r + left
    borders: np.ndarray  # such pairs, once each, in order
    widths: np.ndarray  # (blocks,): how many of them a block has

    @classmethod
    def of(cls, label: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> _Blocks:
        kept = np.flatnonzero(label < 0)
        left = np.full(len(label), -1)
        left[kept] = np.arange(len(kept))
        members = order_of(label + 1)[len(kept) :]
        sizes = np.bincount(label[members])
        slot = np.full(len(label), -1)
        slot[members] = np.arange(len(members)) - _begins(sizes)[label[members]]
        crossing = np.flatnonzero((label[rows] < 0) != (label[columns] < 0))
        block = np.maximum(label[rows[crossing]], label[columns[crossing]])
        other = np.maximum(left[rows[crossing]], left[columns[crossing]])
        key = block * len(kept) + other
        borders = distinct(key)
        widths = np.bincount(borders // max(1, len(kept)), minlength=len(sizes))
        return cls(label, slot, kept, left, members, sizes, crossing, key, borders, widths)

    @property
    def is_out(self) -> np.ndarray:
        """Whether an entry is eliminated."""
        return self.label >= 0

    def border(self, blocks: np.ndarray, width: int) -> np.ndarray:
        """What each block meets, (n, width), in order; -1 after the last."""
        slots = np.arange(width)
        at = _begins(self.widths)[blocks][:, None] + slots
        known = self.borders[np.minimum(at, len(self.borders) - 1)] % len(self.kept)
        return np.asarray(np.where(slots < self.widths[blocks][:, None], known, -1))


def _begins(counts: np.ndarray) -> np.ndarray:
    return np.asarray(np.cumsum(counts) - counts)


def _rest(
    blocks: _Blocks, own: tuple[np.ndarray, np.ndarray], groups: np.ndarray
) -> tuple[Stage | Dense | Implicit, np.ndarray | None]:
    """The next stage, and the keys of its values in order; None where it has no list of them."""
    size = len(blocks.kept)
    products = len(own[0]) + float(np.sum(blocks.widths * (blocks.widths + 1.0))) / 2
    if len(blocks.members) and products < min(_FILLED * float(size) ** 2, _MOST_PRODUCTS):
        every = 1 if products < _MOST_ENTRIES else 16
        known = _met(blocks, own, every)
        if every > 1 and every * len(known) <= _MOST_ENTRIES:
            known, every = _met(blocks, own, 1), 1
        if every == 1 and len(known) <= _MOST_ENTRIES:
            stage = _next(known, size, groups[blocks.kept])
            if stage is not None and (
                isinstance(_last(stage), Dense) or len(known) < _SPARSER * len(blocks.crossing)
            ):
                return stage, known
    if size > MOST_DENSE:
        met = np.stack([blocks.borders // size, blocks.borders % size])
        if not met.size or len(blocks.borders) > _MOST_MET:
            raise TooDenseError(len(blocks.label), size, MOST_DENSE)
        return Implicit.of(*own, size, met, groups[blocks.kept]), None
    return Dense(size), None


def _next(keys: np.ndarray, size: int, groups: np.ndarray) -> Stage | None:
    """The stage that eliminates some of what is left; None where there is none."""
    try:
        stage = _stage_of(keys // size, keys % size, size, groups)
    except TooDenseError:
        return None
    return stage if stage.fronts else None


def _last(stage: Stage | Dense | Implicit) -> Dense | Implicit:
    while isinstance(stage, Stage):
        stage = stage.rest
    return stage


def _met(blocks: _Blocks, own: tuple[np.ndarray, np.ndarray], every: int) -> np.ndarray:
    """The keys row * size + column of what is left, in order; or only every so many, by chance."""
    size = len(blocks.kept)
    keys = [_some(own[0] * size + own[1], every)]
    for width in np.unique(blocks.widths):
        border = blocks.border(np.flatnonzero(blocks.widths == width), int(width))
        first, second = np.tril_indices(int(width))
        for begin in range(0, len(first), _PAIRS):
            part = slice(begin, begin + _PAIRS)
            key = border.take(first[part], 1) * size + border.take(second[part], 1)
            keys.append(_some(key.ravel(), every))
    return distinct(np.concatenate(keys))


def _some(keys: np.ndarray, every: int) -> np.ndarray:
    return keys if every == 1 else keys[keys * _MIXED % 2**32 // 2**16 % every == 0]


def _located(
    rows: np.ndarray, columns: np.ndarray, size: int, keys: np.ndarray | None
) -> np.ndarray:
    """Where the values of a stage have the pairs rows >= columns."""
    if keys is None:
        return np.asarray(columns * size + rows, np.int32)
    return np.asarray(np.searchsorted(keys, rows * size + columns), np.int32)


def _fronts(
    blocks: _Blocks,
    rows: np.ndarray,
    columns: np.ndarray,
    rest: Stage | Dense | Implicit,
    keys: np.ndarray | None,
) -> Iterator[Front]:
    """Blocks of one size whose borders have about one width, a few of them at once."""
    if not len(blocks.members):
        return
    size = len(blocks.kept)
    full = (blocks.widths > _FULL * size) & isinstance(rest, Dense)
    width = np.where(full, size, np.minimum(_rounded(blocks.widths), size))
    order = np.lexsort((width, blocks.sizes, full))
    kind = np.stack([full, blocks.sizes, width])[:, order]
    cuts = np.flatnonzero((np.diff(kind, axis=1) != 0).any(axis=0)) + 1
    chosen = []
    for alike in np.split(order, cuts):
        b, m = blocks.sizes[alike[0]], width[alike[0]]
        each = b * m if full[alike[0]] else max(b * m, m * (m + 1) // 2)
        step = max(1, _AT_ONCE // max(1, int(each)))
        chosen += [alike[k : k + step] for k in range(0, len(alike), step)]
    front_of, place = np.empty(len(order), int), np.empty(len(order), int)
    for number, some in enumerate(chosen):
        front_of[some], place[some] = number, np.arange(len(some))
    inside = np.flatnonzero(blocks.is_out[rows] & blocks.is_out[columns])
    inner = _by(front_of[blocks.label[rows[inside]]], inside, len(chosen))
    crossed = front_of[blocks.key // max(1, size)]
    outer = _by(crossed, np.arange(len(crossed)), len(chosen))
    begins = _begins(blocks.widths)
    for some, own, across in zip(chosen, inner, outer, strict=True):
        b, n, m = int(blocks.sizes[some[0]]), len(some), int(width[some[0]])
        is_full = bool(full[some[0]])
        members = blocks.members[_begins(blocks.sizes)[some] + np.arange(b)[:, None]]
        slots = blocks.slot[rows[own]] * b + blocks.slot[columns[own]]
        inner_to = slots * n + place[blocks.label[rows[own]]]
        key, entry = blocks.key[across], blocks.crossing[across]
        block = key // max(1, size)
        line = np.maximum(blocks.slot[rows[entry]], blocks.slot[columns[entry]])
        at = key % size if is_full else np.searchsorted(blocks.borders, key) - begins[block]
        outer_to = (line * n + place[block]) * m + at
        border, target = None, None
        if not is_full:
            met = blocks.border(some, m)
            border = np.maximum(met, 0).astype(np.int32)
        if border is not None and not isinstance(rest, Implicit):
            high, low = np.tril_indices(m)
            target = _located(met.take(high, 1), met.take(low, 1), size, keys)
            target[met.take(high, 1) < 0] = 0  # nothing is added there
        yield Front(members, border, m, own, inner_to, entry, outer_to, target)


def _rounded(widths: np.ndarray) -> np.ndarray:
    """Up to the next of eight steps an octave, so that there are few kinds."""
    step = 2 ** np.maximum(0, np.floor(np.log2(np.maximum(widths, 1))).astype(int) - 3)
    return np.asarray(-(-widths // step) * step)


def _by(kind: np.ndarray, items: np.ndarray, kinds: int) -> list[np.ndarray]:
    """The items of each kind."""
    order = order_of(kind)
    return np.split(items[order], np.searchsorted(kind[order], np.arange(1, kinds)))
