"""Units in which draws are about standard normal: the metric of every chain here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

MATRIX = 1000  # numbers up to which a covariance is a matrix
FEW = 5  # draws of each number, from which on it is


class Units(NamedTuple):
    """A mean (k,), and a root of a covariance: a matrix (k, k), or the sds of many numbers (k,)."""

    loc: Any
    root: Any

    @classmethod
    def of(cls, vectors: np.ndarray, before: Units | None = None) -> Units:
        """Those of draws (n, k).

        A few draws more than numbers: what they say of correlations counts by how many they are,
        beside the units before, or the sds of the draws.
        """
        count, size = vectors.shape
        loc = vectors.mean(axis=0)
        sd = np.maximum(vectors.std(axis=0), 1e-12 * (1.0 + abs(loc)))
        if before is None or before.root.ndim == 1:
            before = cls(loc, sd)
            if size > min(MATRIX, count // FEW):
                return before
        inside = before.inward(vectors - loc)
        share = count / (count + 5.0 + size)
        spread = share * (inside.T @ inside) / count + (1.0 - share) * np.eye(size)
        return cls(loc, before.outward(np.linalg.cholesky(spread).T).T)

    @property
    def dense(self) -> Units:
        """The same, with a matrix."""
        return self if self.root.ndim == 2 else Units(self.loc, np.diag(self.root))

    def inward(self, rows: np.ndarray) -> np.ndarray:
        """Steps (n, k) in these units."""
        root = self.root
        found: np.ndarray = rows / root if root.ndim == 1 else np.linalg.solve(root, rows.T).T
        return found

    def outward(self, rows: np.ndarray) -> np.ndarray:
        """Steps of these units (n, k) as they are."""
        found: np.ndarray = rows * self.root if self.root.ndim == 1 else rows @ self.root.T
        return found

    def slopes(self, rows: np.ndarray) -> np.ndarray:
        """Slopes (n, k) by numbers in these units."""
        found: np.ndarray = rows * self.root if self.root.ndim == 1 else rows @ self.root
        return found
