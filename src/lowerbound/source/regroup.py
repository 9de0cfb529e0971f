"""Blocks of rows of any length, cut anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from lowerbound.source.call import Batch


class Cutter:
    """Takes any number of rows at a time from a series of blocks, in their order."""

    def __init__(self, blocks: Iterator[Batch]) -> None:
        self._blocks = blocks
        self._left: Batch | None = None

    def take(self, count: int) -> Batch:
        """The next `count` rows, fewer at the end; nothing after it."""
        group: list[Batch] = []
        while count > 0:
            block = self._left if self._left is not None else next(self._blocks, None)
            if block is None:
                break
            beyond = length(block) > count
            self._left = {name: rows[count:] for name, rows in block.items()} if beyond else None
            group.append({name: rows[:count] for name, rows in block.items()} if beyond else block)
            count -= length(group[-1])
        return _join(group) if group else {}


def regroup(blocks: Iterator[Batch], counts: Iterable[int]) -> Iterator[Batch]:
    """The rows of the blocks in order, in groups of these lengths; the last may be shorter."""
    cutter = Cutter(blocks)
    for count in counts:
        group = cutter.take(count)
        if not group:
            return
        yield group


def length(block: Batch) -> int:
    """The number of rows of a block."""
    return len(next(iter(block.values())))


def _join(group: list[Batch]) -> Batch:
    if len(group) == 1:
        return group[0]
    joined: Batch = {}
    for name, first in group[0].items():
        arrays = [block[name] for block in group]
        rows = np.concatenate([np.ma.getdata(array) for array in arrays])
        if isinstance(first, np.ma.MaskedArray):
            mask = np.concatenate([np.ma.getmaskarray(array) for array in arrays])
            rows = np.ma.MaskedArray(rows, mask=mask)
        joined[name] = rows
    return joined
