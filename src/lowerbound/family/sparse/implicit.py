"""What elimination leaves where it is too large to be written down: S = P_RR - W' W, implicitly.

Only products with S are formed. They are preconditioned by the diagonal blocks C of S, which hold
what belongs together (the intercept and the slopes of a group), and a few directions Z are solved
exactly: entries that meet very many others, and the mean of every site, which is what crossed
factors hardly tell apart. With M = R^-1 S R^-T, C = R R', and V an orthonormal basis of R' Z,

    log |S| = log |C| + log |V'MV| + tr log N,    N = M - MV (V'MV)^-1 V'M off V.

N is near the identity. The trace is that of N - I, which is known exactly, and an average over a
few fixed random signs of what is left (Hutchinson; Lanczos quadrature), so that it is a smooth
function of the entries of P, with an error that the signs tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from lowerbound.errors import IllConditionedError
from lowerbound.family.sparse.deflated import (
    Deflated,
    begun_with,
    closed,
    coloured,
    deflated,
    improved,
    inverse_of,
    opened,
    variance_error,
)
from lowerbound.family.sparse.fronts import inverse_cholesky
from lowerbound.family.sparse.krylov import Krylov, lanczos
from lowerbound.family.sparse.low_rank_inverse import Inverse
from lowerbound.family.sparse.twins import Scheme, Twins, met_by_many, together, twins_of

__all__ = ["Border", "HostBorder", "Implicit", "ImplicitFactor"]

PROBES = 8
ROUGHLY = 1e-4  # relative residual of probes, whose errors count squared
CLOSELY, LOOSELY = 1e-8, 1e-4  # of solutions: what is sought, and what will do
RESTARTS = 6
MOST_STEPS = 300
_AT_ONCE = 2**25  # numbers of a basis
_SITES = 32  # whose means are solved exactly


@dataclass(frozen=True, eq=False)
class Implicit:
    """The pattern of S, and how products with it are preconditioned."""

    size: int
    rows: np.ndarray  # (count,): entries of P_RR, rows >= columns
    columns: np.ndarray
    coarse: np.ndarray  # (q, k): Z
    blocks: np.ndarray  # (q,): which entries belong together, by number

    @classmethod
    def of(
        cls, rows: np.ndarray, columns: np.ndarray, size: int, met: np.ndarray, groups: np.ndarray
    ) -> Implicit:
        """Of the entries of P_RR; `met` are pairs of an eliminated block and an entry, (2, m)."""
        off = rows != columns
        first, second = rows[off], columns[off]
        degree = np.bincount(np.concatenate([first, second, met[1]]), minlength=size)
        several = int(met[0].max(initial=-1)) + 1 + size
        border = met_by_many(degree, groups, several)
        unit = np.zeros((size, len(border)))
        unit[border, np.arange(len(border))] = 1.0
        bulk = np.ones(size, bool)
        bulk[border] = False
        names, counts = np.unique(groups[bulk], return_counts=True)
        largest = names[np.argsort(-counts, kind="stable")[:_SITES]]
        means = (groups[:, None] == largest) & bulk[:, None]
        coarse = np.concatenate([means.astype(float), unit], axis=1)
        blocks = together(first, second, met, bulk)
        return cls(size, rows, columns, coarse, blocks)

    @property
    def count(self) -> int:
        """How many values it has: those of P_RR."""
        return len(self.rows)

    @property
    def exactly(self) -> int:
        """How many directions are solved exactly."""
        return int(self.coarse.shape[1])

    @cached_property
    def probes(self) -> np.ndarray:
        """Random signs, (q, PROBES), always the same."""
        rng = np.random.default_rng(self.size)
        return rng.choice([-1.0, 1.0], size=(self.size, PROBES))

    def twins(self, columns: np.ndarray, real: np.ndarray) -> list[Twins]:
        """Where W, of these columns row by row, has the blocks, but for entries on paper only."""
        return twins_of(self.blocks, (self.rows, self.columns), columns, real)

    def scheme(self, twins: Sequence[Twins]) -> Scheme:
        """With these blocks."""
        return Scheme.of(self.coarse, self.probes, twins)

    def whole(self, values: np.ndarray) -> Any:
        """P_RR with these values, by rows."""
        from scipy.sparse import coo_array

        off = self.rows != self.columns
        at = (
            np.concatenate([self.rows, self.columns[off]]),
            np.concatenate([self.columns, self.rows[off]]),
        )
        return coo_array((np.append(values, values[off]), at), (self.size, self.size)).tocsr()

    def factor(self, border: Border) -> ImplicitFactor | None:
        """Of P_RR and W as the border has them; None where S is not positive definite."""
        parts, probes, log_det = border.run(deflated, border)
        if not math.isfinite(log_det):
            return None
        one = Deflated(border, *parts)
        space = border.space(one, probes, ROUGHLY, steps_for(probes))
        if space is None:
            return None
        rest = space.quadratic(lambda x: np.log(x) - (x - 1.0))
        error = float(np.std(rest, ddof=1)) / math.sqrt(len(rest))
        if space.residual > ROUGHLY:  # what the last steps still changed may not be all
            before = space.shortened().quadratic(lambda x: np.log(x) - (x - 1.0))
            error += float(abs(rest - before).mean())
        return ImplicitFactor(self, one, space, float(log_det) + float(rest.mean()), error)


class Border(Protocol):
    """P_RR and W, wherever they are, and what is computed there."""

    @property
    def scheme(self) -> Scheme:
        """How S is preconditioned."""
        ...

    @property
    def values(self) -> Any:
        """Those of P_RR, and 0."""
        ...

    def times(self, vectors: Any) -> Any:
        """S v = (P_RR - W' W) v."""
        ...

    def within(self, number: int) -> Any:
        """W' W within blocks of one size, the lower triangles of (b, b, n)."""
        ...

    def inverse_cholesky(self, blocks: Any) -> tuple[Any, Any]:
        """R^-1 of blocks and the sum of log-determinants, which is NaN where one has no R."""
        ...

    def inverse_root(self, matrix: Any) -> Any:
        """L^-1 of a small L L', NaN where there is no L."""
        ...

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """The value of a function of such arrays as it has."""
        ...

    def space(self, one: Deflated, start: Any, tolerance: float, most: int) -> Krylov | None:
        """The bases of N from a start; None where it is not positive definite."""
        ...


@dataclass(frozen=True, eq=False)
class HostBorder:
    """Both as sparse matrices, by rows."""

    own: Any  # P_RR
    values: np.ndarray
    matrix: Any  # W
    scheme: Scheme
    twins: Sequence[Twins]

    def times(self, vectors: np.ndarray) -> np.ndarray:
        """S v."""
        product: np.ndarray = self.own @ vectors - self.matrix.T @ (self.matrix @ vectors)
        return product

    def within(self, number: int) -> np.ndarray:
        """W' W within blocks of one size, the lower triangles of (b, b, n)."""
        twins = self.twins[number]
        data = self.matrix.data[twins.places]
        size, n = twins.members.shape
        found = np.zeros((size, size, n))
        for i in range(size):
            for j in range(i + 1):
                found[i, j] = np.bincount(twins.which, data[i] * data[j], minlength=n)
        return found

    def inverse_cholesky(self, blocks: np.ndarray) -> tuple[np.ndarray, float]:
        """R^-1 of blocks, and the sum of log-determinants."""
        found = inverse_cholesky(blocks)
        return (np.full_like(blocks, np.nan), math.nan) if found is None else found

    def inverse_root(self, matrix: np.ndarray) -> np.ndarray:
        """L^-1 of a small L L'."""
        try:
            return np.asarray(np.linalg.inv(np.linalg.cholesky(matrix)))
        except np.linalg.LinAlgError:
            return np.full_like(matrix, np.nan)

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """The value of a function."""
        return function(*args)

    def space(self, one: Deflated, start: Any, tolerance: float, most: int) -> Krylov | None:
        """The bases of N from a start."""
        return lanczos(one.times, start, tolerance, most)


@dataclass(frozen=True, eq=False)
class ImplicitFactor:
    """S as far as products with it tell. `error` is that of the log-determinant, in nats."""

    pattern: Implicit
    deflated: Deflated
    probed: Krylov
    log_det: float
    error: float

    @property
    def border(self) -> Border:
        """P_RR and W."""
        border: Border = self.deflated.border
        return border

    def solve(self, rhs: Any) -> Any:
        """S^-1 rhs, (q, m); raises IllConditionedError."""
        return self._in_parts(self._solved, rhs)

    def coloured(self, normals: Any) -> Any:
        """A root of S^-1 times standard normals, (q, m); raises IllConditionedError."""
        return self._in_parts(self._coloured, normals)

    def _in_parts(self, function: Callable[[Any], Any], vectors: Any) -> Any:
        step = max(PROBES, int(_AT_ONCE // (64 * len(vectors))))
        if vectors.shape[1] <= step:
            return function(vectors)
        parts = range(0, vectors.shape[1], step)
        return np.concatenate([function(vectors[:, at : at + step]) for at in parts], axis=1)

    def _solved(self, rhs: Any) -> Any:
        """Exactly in V, then by conjugate gradients, begun anew where need be."""
        one, run = self.deflated, self.border.run
        inside, goal, found = run(opened, one, rhs)
        rest, left = goal, 1.0
        for _ in range(RESTARTS):
            space = self._space(rest, max(CLOSELY / left, 1e-14))
            weights = space.weights(_inverted)
            if left * space.residual <= CLOSELY:
                return run(closed, one, inside, found, space.basis, weights)
            found, rest, most = run(improved, one, goal, found, space.basis, weights)
            left = float(most)
        if left > LOOSELY:
            raise IllConditionedError(len(rhs), RESTARTS * steps_for(rhs), left)
        return run(closed, one, inside, found, space.basis, 0.0 * weights)

    def _coloured(self, normals: Any) -> Any:
        run = self.border.run
        space = self._space(run(begun_with, self.deflated, normals), CLOSELY)
        if space.residual > math.sqrt(LOOSELY):
            raise IllConditionedError(len(normals), steps_for(normals), space.residual)
        weights = space.weights(lambda x: 1.0 / np.sqrt(x))
        return run(coloured, self.deflated, normals, space.basis, weights)

    def _space(self, start: Any, tolerance: float) -> Krylov:
        space = self.border.space(self.deflated, start, tolerance, steps_for(start))
        assert space is not None, "a matrix is positive definite for one vector, not for another"
        return space

    def covariance(self) -> np.ndarray:
        """S^-1 where P_RR has entries."""
        return self.inverse.at(self.pattern.rows, self.pattern.columns)

    @cached_property
    def _probed(self) -> tuple[Any, np.ndarray]:
        return self.probed.basis, self.probed.weights(_inverted)

    @cached_property
    def inverse(self) -> Inverse:
        """S^-1 about: what is exact, and what probes tell of the rest."""
        parts = self.border.run(inverse_of, self.deflated, *self._probed)
        return Inverse(self.border.scheme, *parts)

    @cached_property
    def variance_error(self) -> float:
        """The relative error of variances, root mean square, as two halves of the probes tell."""
        return float(self.border.run(variance_error, self.deflated, *self._probed))


def _inverted(values: np.ndarray) -> np.ndarray:
    return 1.0 / values


def steps_for(vectors: Any) -> int:
    return int(min(MOST_STEPS, max(30, _AT_ONCE // max(vectors.size, 1))))
