"""Minibatches: a seeded, endless sequence of rows in groups of one size."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from lowerbound.errors import BatchSizeError
from lowerbound.source.call import Batch, Indexed, Order, Ordered, Source, batch_sizes
from lowerbound.source.permutation import Permutation, permutation
from lowerbound.source.read_ahead import make_in_order, read_ahead

# One purpose, one stream of random numbers: a key is (seed, purpose, number).
HELD_OUT, EPOCH, STEP = 1, 2, 3


def workers() -> int:
    """Threads that draw rows in memory: a few, as the device's own work needs most processors."""
    return max(1, min(4, (os.cpu_count() or 1) // 2))


@dataclass(frozen=True)
class Batches:
    """Batch t = 0, 1, ... of rows of a source, a function of the source, the seed and t alone.

    `sampling="epochs"` draws without replacement, one random order of all rows after another;
    "uniform" draws every row independently. `held_out` rows are set aside and never drawn. With
    `part=(p, P)` this process gives the p-th of P equal shares of every batch.
    """

    source: Source
    size: int
    seed: int
    sampling: str = "epochs"
    held_out: int = 0
    part: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        rows = self.source.total
        parts = self.part[1]
        if not 0 <= self.held_out < rows:
            raise BatchSizeError(
                f"{self.held_out} rows are to be held out of {rows}.\n"
                "Expected some rows to remain. Hold out fewer."
            )
        if not 1 <= self.size <= self.total:
            aside = f" ({self.held_out} of {rows} are held out)" if self.held_out else ""
            raise BatchSizeError(
                f"The batch size is {self.size}, for {self.total} rows of data{aside}.\n"
                f"Expected between 1 and {self.total}. Use a smaller batch_size; with all rows in "
                "every batch, method=lb.CAVI() is the same algorithm without noise."
            )
        if self.size % parts:
            raise BatchSizeError(
                f"The batch size is {self.size}, for {parts} processes.\n"
                f"Expected a multiple of {parts}, so that every process has an equal share. Use "
                f"batch_size={parts * -(-self.size // parts)}."
            )
        if self.sampling not in ("epochs", "uniform"):
            raise BatchSizeError(
                f"sampling = {self.sampling!r}.\nExpected 'epochs' (without replacement) or "
                "'uniform' (with replacement)."
            )
        if self.sampling == "uniform" and not self.source.random_access:
            raise BatchSizeError(
                "sampling = 'uniform' needs rows in any order; a stream gives them one after "
                "another.\nExpected arrays or tables in memory. Use sampling='epochs', which draws "
                "without replacement."
            )
        if isinstance(self.source, Ordered):
            self.source.accept(self._order)

    @property
    def total(self) -> int:
        """The number of rows that batches are drawn from."""
        return self.source.total - self.held_out

    def held_out_rows(self) -> Batch:
        """The rows set aside, all of them on every process."""
        if isinstance(self.source, Indexed):
            return self.source.take(self._aside)
        return self._ordered.held_out(self._order)

    def chunks(
        self, start: int, steps: int, stop: int, ends: Sequence[int] = ()
    ) -> Generator[Batch]:
        """Batches start, ..., stop - 1, stacked `steps` at a time: arrays (steps, size, *row).

        A chunk is shorter where it would go beyond `stop`, or a multiple of some of `ends`.
        Threads read ahead until the iterator is closed.
        """
        spans = chunk_spans(start, steps, stop, ends)
        if isinstance(self.source, Indexed):
            return make_in_order(self._tasks(self.source, spans), workers())
        return read_ahead(lambda: self._chunks(start, spans))

    def lap(self) -> Generator[Batch]:
        """All rows that are drawn, once and in a fixed order, `size` at a time.

        The last batch may be shorter. Every process gives the same number of batches, and in each
        its share of up to size / P rows; in the last that share may be empty.
        """
        if isinstance(self.source, Indexed):
            return make_in_order(self._lap_tasks(self.source), workers())
        return read_ahead(lambda: self._ordered.lap(self._order))

    @cached_property
    def lap_sizes(self) -> np.ndarray:
        """The number of rows in each batch of a lap, those of all processes together."""
        if not isinstance(self.source, Indexed):
            return self._ordered.lap_sizes(self._order)
        return batch_sizes(self.total, self.size)

    @property
    def _share(self) -> int:
        return self.size // self.part[1]

    @property
    def _order(self) -> Order:
        return Order(self.seed, self.held_out, self._share, self.part)

    @property
    def _ordered(self) -> Ordered:
        if not isinstance(self.source, Ordered):
            raise TypeError(f"{type(self.source).__name__} can neither take nor read rows")
        return self.source

    @cached_property
    def _shuffle(self) -> Permutation:
        """The fixed permutation whose first rows are those held out."""
        return permutation(self.source.total, (self.seed, HELD_OUT))

    @cached_property
    def _aside(self) -> np.ndarray:
        if not self.held_out:
            return np.zeros(0, np.int64)
        return np.sort(self._shuffle(np.arange(self.held_out)))

    def _tasks(
        self, source: Indexed, spans: Iterator[tuple[int, int]]
    ) -> Iterator[Callable[[], Batch]]:
        index = self._uniform_index if self.sampling == "uniform" else self._epoch_index

        def chunk(t: int, count: int) -> Batch:
            return _stack(source.take(index(t, count)), count)

        return (partial(chunk, t, count) for t, count in spans)

    def _chunks(self, start: int, spans: Iterator[tuple[int, int]]) -> Iterator[Batch]:
        share = self._share
        counts = (count * share for _, count in spans)
        for batch in self._ordered.read(self._order, start * share, counts):
            yield _stack(batch, len(batch[self.source.names[0]]) // share)

    def _epoch_index(self, start: int, count: int) -> np.ndarray:
        """The rows of `count` batches: the orders of the epochs, end to end, cut every `size`."""
        first = self.part[0] * self._share
        steps = np.arange(start, start + count, dtype=np.int64)[:, None]
        place = (steps * self.size + first + np.arange(self._share)).ravel()
        drawn = []
        for epoch in range(place[0] // self.total, place[-1] // self.total + 1):
            low, high = np.searchsorted(place, (epoch * self.total, (epoch + 1) * self.total))
            order = permutation(self.total, (self.seed, EPOCH, int(epoch)))
            drawn.append(order(place[low:high] - epoch * self.total))
        return self._rows(np.concatenate(drawn))

    def _uniform_index(self, start: int, count: int) -> np.ndarray:
        first = self.part[0] * self._share
        drawn = [
            np.random.default_rng((self.seed, STEP, t)).integers(self.total, size=self.size)[
                first : first + self._share
            ]
            for t in range(start, start + count)
        ]
        return self._rows(np.concatenate(drawn))

    def _rows(self, drawn: np.ndarray) -> np.ndarray:
        """Row numbers of the source, from numbers among the rows that are not held out."""
        return self._shuffle(self.held_out + drawn) if self.held_out else drawn

    def _lap_tasks(self, source: Indexed) -> Iterator[Callable[[], Batch]]:
        first, share = self.part[0] * self._share, self._share
        # Row i of those that remain is row i + (how many are held out before it) of the source.
        before = self._aside - np.arange(self.held_out)

        def batch(start: int) -> Batch:
            drawn = np.arange(min(start, self.total), min(start + share, self.total))
            return source.take(drawn + np.searchsorted(before, drawn, side="right"))

        return (partial(batch, start) for start in range(first, first + self.total, self.size))


def chunk_spans(
    start: int, steps: int, stop: int, ends: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """First batch and number of batches of each chunk; lazy, as `stop` may be far away.

    >>> list(chunk_spans(0, 4, 13, ends=(6,)))
    [(0, 4), (4, 2), (6, 4), (10, 2), (12, 1)]
    """
    while start < stop:
        end = min(start + steps, stop, *(start - start % each + each for each in ends))
        yield start, end - start
        start = end


def _stack(batch: Batch, count: int) -> Batch:
    return {name: rows.reshape(count, -1, *rows.shape[1:]) for name, rows in batch.items()}
