"""What topics looked like on the way: a few numbers of each topic, kept during training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

WORDS: Final = 10  # kept of each topic


@dataclass(frozen=True, eq=False)
class Snapshots:
    """The topics after S moments of training: how much each held, and its most probable words."""

    documents: np.ndarray  # (S,) int64, documents seen
    weights: np.ndarray  # (S, K) float64, expected shares of tokens
    words: np.ndarray  # (S, K, n) int32, in order of probability; n = 10, or V where that is less
    score: np.ndarray  # (S,) float64, the figure that training reports; NaN where it was not taken

    def __len__(self) -> int:
        return len(self.documents)

    def with_one(
        self, documents: int, weights: np.ndarray, words: np.ndarray, score: float = float("nan")
    ) -> Snapshots:
        """These and one more: weights (K,), words (K, n)."""
        return Snapshots(
            np.append(self.documents, np.int64(documents)),
            np.concatenate([self.weights, np.asarray(weights, np.float64)[None]]),
            np.concatenate([self.words, np.asarray(words, np.int32)[None]]),
            np.append(self.score, np.float64(score)),
        )


def no_snapshots(topics: int, words: int = WORDS) -> Snapshots:
    """The snapshots of a training that has not begun."""
    return Snapshots(
        np.zeros(0, np.int64),
        np.zeros((0, topics)),
        np.zeros((0, topics, words), np.int32),
        np.zeros(0),
    )
