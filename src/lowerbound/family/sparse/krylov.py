"""Functions of a large positive definite operator, from products with it alone (Lanczos 1950).

Every column u of a start has a basis Q of its own, of u, N u, N^2 u, ..., in which N is a
tridiagonal T: f(N) u = |u| Q f(T) e_1 and u' f(N) u = |u|^2 e_1' f(T) e_1, a Gaussian quadrature
(Golub and Meurant 1994). With f(x) = 1 / x the steps are those of conjugate gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Found", "Krylov", "State", "advanced", "begin", "combined", "lanczos"]

Function = Callable[[np.ndarray], np.ndarray]
_NOTHING = 1e-13  # a step that leads nowhere, relatively


@dataclass(frozen=True, eq=False)
class Krylov:
    """Bases of k columns and m vectors each; `diagonal` (m, k) and `beside` (m - 1, k) of T.

    `basis` (at least m, n, k) may have more, and may be on an accelerator.
    """

    basis: Any
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
        steps = max(1, len(self.diagonal) - 2)
        parts = self.diagonal[:steps], self.beside[: steps - 1]
        return Krylov(self.basis, *parts, self.norms, self.residual)

    def weights(self, function: Function) -> np.ndarray:
        """What to take of each vector of the basis for f(N) u: see `combined`."""
        values, vectors = self._eigen
        weights = np.einsum("kij,kj,kj->ik", vectors, function(values), vectors[:, 0, :])
        out = np.zeros((len(self.basis), len(self.norms)))
        out[: len(weights)] = weights * self.norms
        return out

    def quadratic(self, function: Function) -> np.ndarray:
        """The forms u' f(N) u of every column, (k,)."""
        values, vectors = self._eigen
        return np.asarray(np.sum(function(values) * vectors[:, 0, :] ** 2, axis=1) * self.norms**2)


def combined(basis: Any, weights: Any) -> Any:
    """f(N) u of every column, (n, k)."""
    return basis.__array_namespace__().einsum("mnk,mk->nk", basis, weights)


class State(NamedTuple):
    """Of all columns: the last vector, its place beside the diagonal of T, and T = L D L'."""

    vector: Any  # (n, k)
    length: Any  # (k,)
    pivot: Any  # the last of D
    product: Any  # of what residuals are made of


class Found(NamedTuple):
    """What a step finds: entries of T, whether it is positive definite, and the residual."""

    diagonal: Any
    positive: Any
    residual: Any


def begin(start: Any) -> tuple[Any, State]:
    """The norms of columns (n, k), and where they begin."""
    xp = start.__array_namespace__()
    norms = xp.sqrt(xp.sum(start**2, axis=0))
    one = xp.ones_like(norms)
    return norms, State(start / xp.where(norms > 0, norms, 1.0), xp.zeros_like(norms), one, one)


def advanced(
    ahead: Any, state: State, norms: Any, without: Callable[[Any], Any]
) -> tuple[Found, State]:
    """A step, with N times the last vector; `without` takes off what is in the basis."""
    xp = norms.__array_namespace__()
    vector = state.vector
    along = xp.sum(vector * ahead, axis=0)
    alive = xp.sum(vector**2, axis=0) > 0.5
    diagonal = xp.where(alive, along, 1.0)  # what has ended stands apart
    pivot = xp.where(alive, diagonal - state.length**2 / state.pivot, 1.0)
    rest = without(without(ahead))  # twice is enough
    length = xp.sqrt(xp.sum(rest**2, axis=0))
    length = xp.where(alive & (length > _NOTHING * abs(along)), length, 0.0)
    product = state.product / xp.where(pivot > 0, pivot, 1.0)
    residual = xp.max(xp.where(norms > 0, length * product, 0.0), initial=0.0)
    vector = xp.where(length > 0, rest / xp.where(length > 0, length, 1.0), 0.0)
    found = Found(diagonal, xp.all(pivot > 0), residual)
    return found, State(vector, length, pivot, product * length)


def lanczos(
    operator: Callable[[Any], Any], start: np.ndarray, tolerance: float, most: int
) -> Krylov | None:
    """Bases in which N x = u is solved to a relative residual, or of `most` vectors.

    `operator` gives N of columns (n, k). None where N turns out not to be positive definite.
    """
    norms, state = begin(start)
    basis, diagonal = [state.vector], []
    beside: list[np.ndarray] = []

    def without(vectors: np.ndarray) -> np.ndarray:
        for known in basis:
            vectors = vectors - known * np.sum(known * vectors, axis=0)
        return vectors

    while True:
        found, state = advanced(operator(state.vector), state, norms, without)
        if not found.positive:
            return None
        diagonal.append(found.diagonal)
        residual = float(found.residual)
        if residual <= tolerance or len(basis) >= min(most, len(start)):
            break
        beside.append(state.length)
        basis.append(state.vector)
    parts = np.stack(diagonal), np.array(beside).reshape(len(basis) - 1, len(norms))
    return Krylov(np.stack(basis), *parts, norms, residual)
