"""Bags of words: what latent Dirichlet allocation sees of a corpus (paper section 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Documents:
    """Documents as counts of distinct words, in compressed sparse rows.

    Document d holds the words `words[starts[d]:starts[d + 1]]`, in increasing order and each once,
    with `counts` at the same places. Entries are positive whole numbers; a document may be empty.
    """

    starts: np.ndarray  # (D + 1,) int64, starts[0] == 0
    words: np.ndarray  # (entries,) int32
    counts: np.ndarray  # (entries,) float32
    vocabulary: int  # V, the number of words that exist

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def tokens(self) -> float:
        """The number of words, repetitions included."""
        return float(self.counts.sum(dtype=float))

    @cached_property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each document, (D,) float64."""
        ends = np.concatenate([[0.0], np.cumsum(self.counts, dtype=float)])
        found: np.ndarray = ends[self.starts[1:]] - ends[self.starts[:-1]]
        return found

    @property
    def distinct(self) -> np.ndarray:
        """The number of distinct words of each document, (D,) int64."""
        return np.diff(self.starts)

    def between(self, first: int, last: int) -> Documents:
        """Documents first, ..., last - 1; their arrays are views, not copies."""
        low, high = self.starts[first], self.starts[last]
        return Documents(
            self.starts[first : last + 1] - low,
            self.words[low:high],
            self.counts[low:high],
            self.vocabulary,
        )

    def take(self, chosen: np.ndarray) -> Documents:
        """The documents with these numbers, in this order."""
        sizes = self.distinct[chosen]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        places = np.arange(starts[-1]) + np.repeat(self.starts[chosen] - starts[:-1], sizes)
        return Documents(starts, self.words[places], self.counts[places], self.vocabulary)

    def matrix(self) -> Any:
        """The counts as a SciPy sparse array (D, V)."""
        from scipy.sparse import csr_array

        shape = (len(self), self.vocabulary)
        return csr_array((self.counts, self.words, self.starts), shape=shape)


def joined(parts: Sequence[Documents]) -> Documents:
    """Documents one after another; all parts have the same vocabulary."""
    ends = np.cumsum([0, *(part.starts[-1] for part in parts)])
    starts = [part.starts[1:] + end for part, end in zip(parts, ends[:-1], strict=True)]
    return Documents(
        np.concatenate([[0], *starts]).astype(np.int64),
        np.concatenate([part.words for part in parts]),
        np.concatenate([part.counts for part in parts]),
        parts[0].vocabulary,
    )
