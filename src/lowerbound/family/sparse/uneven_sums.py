"""Sums over many groups of uneven sizes, in pieces of one width: how accelerators add quickly.

Items are listed group by group. Pieces of `width` consecutive items of one group are added as rows
of a matrix, and the few pieces of a group after that, so that no two threads meet in one sum, and a
group of a hundred thousand items takes no longer than the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Chunks"]

WIDEST = 256


@dataclass(frozen=True, eq=False)
class Chunks:
    """Pieces of groups.

    >>> chunks = Chunks.of(np.array([0, 0, 0, 2]), 3)
    >>> chunks.items.tolist(), chunks.group.tolist()
    ([[0, 1], [2, 4], [3, 4]], [0, 0, 2])
    """

    items: np.ndarray  # (pieces, width): numbers of items, or the one after the last
    group: np.ndarray  # (pieces,): in order

    @classmethod
    def of(cls, group: np.ndarray, groups: int) -> Chunks:
        """Of items whose groups are in order; as wide as a group has items on average."""
        sizes = np.bincount(group, minlength=groups)
        average = len(group) / max(1, int(np.count_nonzero(sizes)))
        width = int(min(WIDEST, 2 ** np.ceil(np.log2(max(average, 1.0)))))
        pieces = -(-sizes // width)
        owner = np.repeat(np.arange(groups), pieces)
        number = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        ends = np.cumsum(sizes)
        items = ((ends - sizes)[owner] + width * number)[:, None] + np.arange(width)
        items = np.where(items < ends[owner][:, None], items, len(group))
        return cls(items.astype(np.int32), owner.astype(np.int32))

    def pieces_of(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The pieces of some groups (b, n), (b, p), and which of the n each is of.

        The b groups of a column must have as many items as each other.
        """
        begins = np.searchsorted(self.group, groups)
        counts = np.searchsorted(self.group, groups[0], side="right") - begins[0]
        which = np.repeat(np.arange(groups.shape[1]), counts)
        within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        return begins[:, which] + within, which
