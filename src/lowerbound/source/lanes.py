"""How the rows of a set of files are divided: into lanes, row-group pieces and held-out runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LANES = 4
HELD_OUT_RUNS = 16
WINDOW = 16_384

Interval = tuple[int, int]


@dataclass(frozen=True)
class Piece:
    """The rows `keep` (intervals of numbers within it) of one row group."""

    group: int
    keep: tuple[Interval, ...]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(stop - start for start, stop in self.keep)


@dataclass(frozen=True)
class Lane:
    """A contiguous stretch of rows, read by one process: what is drawn and what is set aside."""

    number: int
    drawn: tuple[Interval, ...]
    aside: tuple[Interval, ...]

    @property
    def rows(self) -> int:
        """The number of rows that are drawn."""
        return sum(stop - start for start, stop in self.drawn)


def divide(total: int, held_out: int, parts: int, generator: np.random.Generator) -> list[Lane]:
    """Lanes of nearly equal length, as many for each process, with runs of rows set aside.

    Every batch takes rows from all lanes in turn, so rows that are far apart in the files meet.
    """
    lanes = parts * -(-LANES // parts)
    if total - held_out < lanes:
        lanes = parts
    lengths, drawn = _shares(total, lanes), _shares(total - held_out, lanes)
    runs = max(1, HELD_OUT_RUNS // lanes)
    divided, start = [], 0
    for number, (rows, kept) in enumerate(zip(lengths, drawn, strict=True)):
        aside = _runs(start, rows, rows - kept, runs, generator)
        divided.append(Lane(number, _between(start, start + rows, aside), aside))
        start += rows
    return divided


def pieces(intervals: Sequence[Interval], starts: np.ndarray) -> list[Piece]:
    """The row-group pieces of some rows; `starts` are the first rows of the groups, and the end."""
    found: dict[int, list[Interval]] = {}
    for low, high in intervals:
        group = int(np.searchsorted(starts, low, side="right")) - 1
        while low < high:
            first, end = int(starts[group]), int(starts[group + 1])
            if low < end:
                found.setdefault(group, []).append((low - first, min(high, end) - first))
                low = min(high, end)
            group += 1
    return [Piece(group, tuple(keep)) for group, keep in found.items()]


def lap_counts(lanes: Sequence[Lane], parts: int, share: int) -> np.ndarray:
    """How many rows each lane gives to each batch of a lap: (batches, lanes).

    Row g of a process is one of its lane g mod (its lanes), as long as that lane has rows.
    """
    width = len(lanes) // parts
    rows, place = np.asarray([lane.rows for lane in lanes]), np.arange(len(lanes)) % width
    batches = int(np.max((rows - 1) * width + place)) // share + 1
    # Of the rows 0 .. g-1, lane i gave (g - i) / width, rounded up.
    given = -((place - share * np.arange(batches + 1)[:, None]) // width)
    return np.diff(np.clip(given, 0, rows), axis=0)


def skip(ordered: Sequence[Piece], rows: int) -> list[Piece]:
    """The pieces without their first `rows` rows."""
    left = []
    for piece in ordered:
        if rows >= piece.rows:
            rows -= piece.rows
            continue
        keep = []
        for low, high in piece.keep:
            cut = min(rows, high - low)
            rows -= cut
            if low + cut < high:
                keep.append((low + cut, high))
        left.append(Piece(piece.group, tuple(keep)))
    return left


def _shares(total: int, count: int) -> list[int]:
    """Nearly equal shares; the first ones are longer by one."""
    return [total // count + (i < total % count) for i in range(count)]


def _runs(
    start: int, rows: int, held_out: int, count: int, generator: np.random.Generator
) -> tuple[Interval, ...]:
    """Disjoint runs of `held_out` rows in all, at random places."""
    lengths = [share for share in _shares(held_out, count) if share]
    gaps = np.sort(generator.integers(0, rows - held_out, size=len(lengths), endpoint=True))
    runs: list[Interval] = []
    before = 0
    for gap, length in zip(gaps, lengths, strict=True):
        low = start + int(gap) + before
        runs.append((low, low + length))
        before += length
    return tuple(runs)


def _between(start: int, stop: int, runs: Sequence[Interval]) -> tuple[Interval, ...]:
    """What the runs leave of an interval."""
    left = []
    for low, high in runs:
        if start < low:
            left.append((start, low))
        start = high
    if start < stop:
        left.append((start, stop))
    return tuple(left)
