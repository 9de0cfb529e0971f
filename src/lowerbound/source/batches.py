"""Minibatches: a seeded, endless sequence of rows in groups of one size."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lowerbound.source.call import Batch, Indexed, Order, Ordered, Source
from lowerbound.source.errors import BatchSizeError
from lowerbound.source.permutation import Permutation, permutation
from lowerbound.source.read_ahead import read_ahead

# One purpose, one stream of random numbers: a key is (seed, purpose, number).
HELD_OUT, EPOCH, STEP = 1, 2, 3


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

    def chunks(self, start: int, steps: int, stop: int) -> Generator[Batch]:
        """Batches start, ..., stop - 1, stacked `steps` at a time: arrays (steps, size, *row).

        The last chunk may have fewer batches. A thread reads ahead until the iterator is closed.
        """
        return read_ahead(lambda: self._chunks(start, steps, stop))

    def lap(self) -> Generator[Batch]:
        """All rows that are drawn, once and in a fixed order, `size` at a time.

        The last batch may be shorter. Every process gives the same number of batches, of size / P
        rows of its own, the last of which may then be empty.
        """
        return read_ahead(self._lap)

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

    def _chunks(self, start: int, steps: int, stop: int) -> Iterator[Batch]:
        # Lazy: `stop` may be far beyond what is ever read.
        starts, share = range(start, stop, steps), self._share
        if isinstance(self.source, Indexed):
            index = self._uniform_index if self.sampling == "uniform" else self._epoch_index
            for t in starts:
                count = min(steps, stop - t)
                yield _stack(self.source.take(index(t, count)), count)
            return
        counts = (min(steps, stop - t) * share for t in starts)
        for batch in self._ordered.read(self._order, start * share, counts):
            yield _stack(batch, len(batch[self.source.names[0]]) // share)

    def _epoch_index(self, start: int, count: int) -> np.ndarray:
        """The rows of `count` batches: the orders of the epochs, end to end, cut every `size`."""
        first = self.part[0] * self._share
        steps = np.arange(start, start + count, dtype=np.int64)[:, None]
        place = (steps * self.size + first + np.arange(self._share)).ravel()
        epoch, inside = np.divmod(place, self.total)
        cuts = np.flatnonzero(np.diff(epoch)) + 1
        drawn = [
            permutation(self.total, (self.seed, EPOCH, int(number[0])))(index)
            for number, index in zip(np.split(epoch, cuts), np.split(inside, cuts), strict=True)
        ]
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

    def _lap(self) -> Iterator[Batch]:
        if not isinstance(self.source, Indexed):
            yield from self._ordered.lap(self._order)
            return
        p, parts = self.part
        longest = -(-self.total // parts)
        low, high = min(p * longest, self.total), min((p + 1) * longest, self.total)
        # Row i of those that remain is row i + (how many are held out before it) of the source.
        before = self._aside - np.arange(self.held_out)
        for start in range(low, low + longest, self._share):
            drawn = np.arange(min(start, high), min(start + self._share, high, low + longest))
            yield self.source.take(drawn + np.searchsorted(before, drawn, side="right"))


def _stack(batch: Batch, count: int) -> Batch:
    return {name: rows.reshape(count, -1, *rows.shape[1:]) for name, rows in batch.items()}
