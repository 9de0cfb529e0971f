"""The inverse of a matrix that is about block diagonal, as the inverse blocks and a few columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lowerbound.family.sparse.twins import Twins

__all__ = ["Inverse"]


@dataclass(frozen=True, eq=False)
class Inverse:
    """S^-1, about: C^-1 + L Q L' with few columns L, of a size that W and P meet."""

    blocks: tuple[np.ndarray, ...]  # (b, b, n): of C^-1
    twins: tuple[Twins, ...]
    columns: np.ndarray  # L, (q, r)
    middle: np.ndarray  # Q, (r, r)

    def at(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Entries."""
        turned = self.columns @ self.middle
        out: np.ndarray = np.einsum("nr,nr->n", turned[rows], self.columns[columns])
        for twin, block in zip(self.twins, self.blocks, strict=True):
            number = np.full(len(self.columns), -1)
            slot = np.zeros(len(self.columns), int)
            number[twin.members] = np.arange(twin.members.shape[1])
            slot[twin.members] = np.arange(len(twin.members))[:, None]
            same = np.flatnonzero((number[rows] >= 0) & (number[rows] == number[columns]))
            out[same] += block[slot[rows[same]], slot[columns[same]], number[rows[same]]]
        return out

    @property
    def diagonal(self) -> np.ndarray:
        """Its diagonal, (q,)."""
        out: np.ndarray = np.einsum("nr,nr->n", self.columns @ self.middle, self.columns)
        for twin, block in zip(self.twins, self.blocks, strict=True):
            each = np.arange(len(block))
            own = block[each, each]  # given the others, and so no more than it
            out[twin.members] = np.maximum(out[twin.members] + own, 0.5 * own)
        return out

    def within(self, values: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
        """The diagonal of B C^-1 B', (count,), of such a matrix B with its entries in `rows`."""
        out = np.zeros(count)
        for twin, block in zip(self.twins, self.blocks, strict=True):
            inside = values[twin.places]
            total = np.zeros(inside.shape[1])
            for i in range(len(block)):
                for j in range(i + 1):
                    weight = block[i, j] if i == j else 2.0 * block[i, j]
                    total += inside[i] * inside[j] * weight[twin.which]
            out += np.bincount(rows[twin.places[0]], total, minlength=count)
        return out

    def blockwise(self, values: np.ndarray) -> np.ndarray:
        """B C^-1 at the entries of a matrix B whose pattern is that of W."""
        out = np.zeros_like(values)
        for twin, block in zip(self.twins, self.blocks, strict=True):
            inside = values[twin.places]
            for i in range(len(block)):
                out[twin.places[i]] = sum(
                    inside[j] * block[j, i][twin.which] for j in range(len(block))
                )
        return out
