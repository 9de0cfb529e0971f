"""Blocks of one size, with borders of one width, that are eliminated together.

A block with precision D and border B to what is left has the factor D = L L', W = L^-1 B; what is
left loses W' W. All blocks of a front are done at once: the block is the last axis but the border.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

__all__ = ["Eliminated", "Front", "Reduced", "inverse_cholesky"]


@dataclass(frozen=True, eq=False)
class Front:
    """n blocks of b entries that meet m of those that are left (some of them only on paper).

    `border` is None where all of them count as met. Entries of the pattern are read from `*_from`
    and put `*_to` the flat (b, b, n) and (b, n, m).
    """

    members: np.ndarray  # (b, n)
    border: np.ndarray | None  # (n, m)
    width: int  # m
    inner_from: np.ndarray
    inner_to: np.ndarray
    outer_from: np.ndarray
    outer_to: np.ndarray
    place: np.ndarray | None  # (n, m (m + 1) / 2): where the products of W go, if they are formed

    def eliminated(self, values: np.ndarray) -> Eliminated | None:
        """The factors of the blocks; None where one of them is not positive definite."""
        b, n = self.members.shape
        inner, outer = np.zeros(b * b * n), np.zeros(b * n * self.width)
        inner[self.inner_to] = values[self.inner_from]
        outer[self.outer_to] = values[self.outer_from]
        found = inverse_cholesky(inner.reshape(b, b, n))
        if found is None:
            return None
        inverse, log_det = found
        return Eliminated(inverse, _times(inverse, outer.reshape(b, n, self.width)), log_det)

    def reduce(self, done: Eliminated, left: np.ndarray) -> None:
        """Take W' W off the values of what is left, in place."""
        b, n = self.members.shape
        if self.border is None:
            from scipy.linalg.blas import dsyrk

            m = self.width
            factor = done.outer.reshape(b * n, m).T
            dsyrk(-1.0, factor, beta=1.0, c=left.reshape(m, m).T, lower=1, overwrite_c=1)
            return
        assert self.place is not None
        first, second = np.tril_indices(self.width)
        products = done.outer[0].take(first, 1) * done.outer[0].take(second, 1)
        for outer in done.outer[1:]:
            products += outer.take(first, 1) * outer.take(second, 1)
        np.subtract.at(left, self.place.ravel(), products.ravel())

    def covariance(self, done: Eliminated, left: np.ndarray, out: np.ndarray) -> None:
        """Put the covariances at the pattern's entries into `out`, from those of what is left."""
        b, n = self.members.shape
        outer, m = done.turned, self.width
        if self.border is None:
            from scipy.linalg.blas import dsymm

            full = dsymm(1.0, left.reshape(m, m).T, outer.reshape(b * n, m).T, lower=1)
            crossed = full.T.reshape(b, n, m)
        else:
            assert self.place is not None
            met = left.take(self.place).take(_square(m), 1).reshape(n, m, m)
            crossed = np.matmul(outer.transpose(1, 0, 2), met).transpose(1, 0, 2)
        self.put(done, crossed, out)

    def put(self, done: Eliminated, crossed: np.ndarray, out: np.ndarray) -> None:
        """Covariances into `out`, given those of D^-1 B z with what it meets, (b, n, m)."""
        own = np.einsum("kin,kjn->ijn", done.inverse, done.inverse)
        own += np.einsum("inm,jnm->ijn", crossed, done.turned)
        out[self.inner_from] = own.ravel()[self.inner_to]
        out[self.outer_from] = -crossed.ravel()[self.outer_to]


@dataclass(frozen=True, eq=False)
class Eliminated:
    """The factors of the blocks of a front."""

    inverse: np.ndarray  # (b, b, n): L^-1
    outer: np.ndarray  # (b, n, m): W = L^-1 B
    log_det: float

    @cached_property
    def turned(self) -> np.ndarray:
        """D^-1 B, (b, n, m)."""
        return _times(self.inverse.transpose(1, 0, 2), self.outer)

    def forward(self, rhs: np.ndarray) -> np.ndarray:
        """L^-1 rhs, (b, n, k)."""
        return _times(self.inverse, rhs)

    def backward(self, rhs: np.ndarray) -> np.ndarray:
        """L'^-1 rhs, (b, n, k)."""
        return _times(self.inverse.transpose(1, 0, 2), rhs)


class Reduced:
    """P = L L' of what is eliminated, and of the rest, whose errors are those of all."""

    rest: Any

    @property
    def error(self) -> float:
        """Of the log-determinant, in nats; 0 where it is exact."""
        return float(self.rest.error)

    @property
    def variance_error(self) -> float:
        """The relative error of variances, root mean square; 0 where they are exact."""
        return float(self.rest.variance_error)


def _times(matrix: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The product of each block (b, b, n) with its vectors (b, n, k)."""
    if len(matrix) == 1:
        return np.asarray(matrix[0, 0, :, None] * vectors[0])[None]
    return np.asarray(np.einsum("ijn,jnk->ink", matrix, vectors))


def inverse_cholesky(matrix: np.ndarray) -> tuple[np.ndarray, float] | None:
    """L^-1 of each block, from its lower triangle, and the sum of log-determinants of all."""
    size = len(matrix)
    lower, inverse = np.zeros_like(matrix), np.zeros_like(matrix)
    log_det = 0.0
    for j in range(size):
        pivot = matrix[j, j] - np.sum(lower[j, :j] ** 2, axis=0)
        if not (pivot > 0).all():  # NaN is not
            return None
        log_det += float(np.log(pivot).sum())
        lower[j, j] = np.sqrt(pivot)
        for i in range(j + 1, size):
            rest = matrix[i, j] - np.sum(lower[i, :j] * lower[j, :j], axis=0)
            lower[i, j] = rest / lower[j, j]
        inverse[j, j] = 1.0 / lower[j, j]
        for k in range(j):
            rest = np.sum(lower[j, k:j] * inverse[k:j, k], axis=0)
            inverse[j, k] = -rest * inverse[j, j]
    return inverse, log_det


def _square(width: int) -> np.ndarray:
    """Where each entry of a symmetric matrix is in the list of its lower triangle, row by row."""
    each = np.arange(width)
    high, low = np.maximum.outer(each, each), np.minimum.outer(each, each)
    return np.asarray(high * (high + 1) // 2 + low).ravel()
