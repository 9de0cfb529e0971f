"""Batches that are read ahead of the steps that take them."""

from __future__ import annotations

from collections.abc import Callable, Generator

from lowerbound.source.call import Batch


class Ahead:
    """Chunks of batches from any step on, their leading axis that of the steps.

    A cache: a run that goes on from where it was is given what was read ahead, and one that goes
    on elsewhere opens the batches anew.
    """

    def __init__(self, opened: Callable[[int], Generator[Batch]]) -> None:
        self.opened = opened
        self.at, self.left = -1, Batch()
        self.chunks: Generator[Batch] | None = None

    def take(self, step: int, until: int) -> Batch:
        """The batches of the steps from `step` on, up to `until` or fewer."""
        if self.chunks is None or step != self.at:
            self.close()
            self.chunks = self.opened(step)
        chunk = self.left or next(self.chunks)
        length = len(next(iter(chunk.values())))
        count = min(length, until - step)
        self.left = {n: a[count:] for n, a in chunk.items()} if count < length else {}
        self.at = step + count
        return {n: a[:count] for n, a in chunk.items()}

    def close(self) -> None:
        """Read no further."""
        if self.chunks is not None:
            self.chunks.close()
        self.chunks, self.left = None, {}
