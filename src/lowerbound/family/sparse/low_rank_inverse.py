"""The inverse of a matrix that is about block diagonal, as the inverse blocks and a few columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lowerbound.family.sparse.twins import Scheme, Twins

__all__ = ["Inverse", "blockwise"]


class Inverse(NamedTuple):
    """S^-1, about: C^-1 + L Q L' with few columns L, of a size that W and P meet."""

    scheme: Scheme
    blocks: tuple[Any, ...]  # (b, b, n): of C^-1
    columns: Any  # L, (q, r)
    middle: Any  # Q, (r, r)

    @property
    def diagonal(self) -> Any:
        """Its diagonal, (q,)."""
        xp = self.columns.__array_namespace__()
        flat = xp.einsum("nr,nr->n", self.columns @ self.middle, self.columns)
        own = xp.concatenate([xp.einsum("iin->in", block).ravel() for block in self.blocks])
        own = own[self.scheme.place]  # given the others, and so no more than it
        return xp.maximum(flat + own, 0.5 * own)

    def at(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Entries."""
        turned = self.columns @ self.middle
        out: np.ndarray = np.einsum("nr,nr->n", turned[rows], self.columns[columns])
        for members, block in zip(self.scheme.members, self.blocks, strict=True):
            number = np.full(len(self.columns), -1)
            slot = np.zeros(len(self.columns), int)
            number[members] = np.arange(members.shape[1])
            slot[members] = np.arange(len(members))[:, None]
            same = np.flatnonzero((number[rows] >= 0) & (number[rows] == number[columns]))
            out[same] += block[slot[rows[same]], slot[columns[same]], number[rows[same]]]
        return out

    def within(
        self, twins: Sequence[Twins], values: np.ndarray, rows: np.ndarray, count: int
    ) -> np.ndarray:
        """The diagonal of B C^-1 B', (count,), of such a matrix B with its entries in `rows`."""
        out = np.zeros(count)
        for twin, block in zip(twins, self.blocks, strict=True):
            inside = values[twin.places]
            total = np.zeros(inside.shape[1])
            for i in range(len(block)):
                for j in range(i + 1):
                    weight = block[i, j] if i == j else 2.0 * block[i, j]
                    total += inside[i] * inside[j] * weight[twin.which]
            out += np.bincount(rows[twin.places[0]], total, minlength=count)
        return out

    def blockwise(self, twins: Sequence[Twins], values: np.ndarray) -> np.ndarray:
        """B C^-1 at the entries of a matrix B whose pattern is that of W."""
        out = np.zeros_like(values)
        for twin, block in zip(twins, self.blocks, strict=True):
            inside = values[twin.places]
            for i in range(len(block)):
                out[twin.places[i]] = sum(
                    inside[j] * block[j, i][twin.which] for j in range(len(block))
                )
        return out


def blockwise(scheme: Scheme, blocks: Sequence[Any], vectors: Any) -> Any:
    """Vectors (q, k) times a matrix of these blocks (b, b, n)."""
    xp = vectors.__array_namespace__()
    parts = [
        xp.einsum("ijn,jnk->ink", block, vectors[members]).reshape(-1, vectors.shape[1])
        for members, block in zip(scheme.members, blocks, strict=True)
    ]
    return xp.concatenate(parts)[scheme.place]
