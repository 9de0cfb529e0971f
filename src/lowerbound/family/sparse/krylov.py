"""Functions of a large positive definite operator, from products with it alone (Lanczos 1950).

Every column u of a start has a basis Q of its own, of u, N u, N^2 u, ..., in which N is a
tridiagonal T: f(N) u = |u| Q f(T) e_1 and u' f(N) u = |u|^2 e_1' f(T) e_1, a Gaussian quadrature
(Golub and Meurant 1994). With f(x) = 1 / x the steps are those of conjugate gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["Krylov", "lanczos"]

Function = Callable[[np.ndarray], np.ndarray]
_NOTHING = 1e-13  # a step that leads nowhere, relatively


@dataclass(frozen=True, eq=False)
class Krylov:
    """Bases (m, n, k) of k columns; `diagonal` (m, k) and `beside` (m - 1, k) of T."""

    basis: np.ndarray
    diagonal: np.ndarray
    beside: np.ndarray
    norms: np.ndarray  # (k,): of the columns
    residual: float  # of N x = u, relative to u: the largest

    @cached_property
    def _eigen(self) -> tuple[np.ndarray, np.ndarray]:
        steps, columns = self.diagonal.shape
        matrix = np.zeros((columns, steps, steps))
        each = np.arange(steps)
        matrix[:, each, each] = self.diagonal.T
        matrix[:, each[1:], each[:-1]] = matrix[:, each[:-1], each[1:]] = self.beside.T
        return np.linalg.eigh(matrix)

    def shortened(self) -> Krylov:
        """As it was two steps before, or after the first."""
        steps = max(1, len(self.basis) - 2)
        parts = self.basis[:steps], self.diagonal[:steps], self.beside[: steps - 1]
        return Krylov(*parts, self.norms, self.residual)

    def applied(self, function: Function) -> np.ndarray:
        """f(N) u of every column, (n, k)."""
        values, vectors = self._eigen
        weights = np.einsum("kij,kj,kj->ik", vectors, function(values), vectors[:, 0, :])
        out: np.ndarray = np.einsum("mnk,mk->nk", self.basis, weights * self.norms)
        return out

    def quadratic(self, function: Function) -> np.ndarray:
        """The forms u' f(N) u of every column, (k,)."""
        values, vectors = self._eigen
        return np.asarray(np.sum(function(values) * vectors[:, 0, :] ** 2, axis=1) * self.norms**2)


def lanczos(operator: Function, start: np.ndarray, tolerance: float, most: int) -> Krylov | None:
    """Bases in which N x = u is solved to a relative residual, or of `most` vectors.

    `operator` gives N of columns (n, k). None where N turns out not to be positive definite.
    """
    norms = np.sqrt(np.sum(start**2, axis=0))
    vector = start / np.where(norms > 0, norms, 1.0)
    basis, diagonal = [vector], []
    beside: list[np.ndarray] = []
    pivot, product = np.ones_like(norms), np.ones_like(norms)
    residual = 0.0
    for step in range(most):
        ahead = operator(vector)
        along = np.sum(vector * ahead, axis=0)
        alive = np.sum(vector**2, axis=0) > 0.5
        diagonal.append(np.where(alive, along, 1.0))  # what has ended stands apart
        last = beside[-1] if beside else np.zeros_like(norms)
        pivot = np.where(alive, diagonal[-1] - last**2 / pivot, 1.0)
        if not (pivot > 0).all():
            return None
        for _ in range(2):  # twice is enough
            for known in basis:
                ahead -= known * np.sum(known * ahead, axis=0)
        length = np.sqrt(np.sum(ahead**2, axis=0))
        length = np.where(alive & (length > _NOTHING * abs(along)), length, 0.0)
        product = product / pivot
        residual = float(np.max(length * product, initial=0.0, where=norms > 0))
        if residual <= tolerance or step == most - 1 or len(basis) >= len(start):
            break
        product = product * length
        beside.append(length)
        vector = np.where(length > 0, ahead / np.where(length > 0, length, 1.0), 0.0)
        basis.append(vector)
    shape = len(basis) - 1, len(norms)
    return Krylov(
        np.stack(basis), np.stack(diagonal), np.array(beside).reshape(shape), norms, residual
    )
