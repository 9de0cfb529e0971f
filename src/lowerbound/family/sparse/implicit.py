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
from lowerbound.family.sparse.fronts import inverse_cholesky
from lowerbound.family.sparse.krylov import Krylov, lanczos
from lowerbound.family.sparse.low_rank_inverse import Inverse
from lowerbound.family.sparse.twins import Twins, met_by_many, together, twins_of

__all__ = ["Border", "HostBorder", "Implicit", "ImplicitFactor"]

PROBES = 8
ROUGHLY = 1e-4  # relative residual of probes, whose errors count squared
CLOSELY, LOOSELY = 1e-8, 1e-4  # of solutions: what is sought, and what will do
RESTARTS = 6
MOST_STEPS = 300
_AT_ONCE = 2**25  # numbers of a basis
_ROUNDING = 1e-12
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

    def whole(self, values: np.ndarray) -> Any:
        """P_RR with these values, by rows."""
        from scipy.sparse import coo_array

        off = self.rows != self.columns
        at = (
            np.concatenate([self.rows, self.columns[off]]),
            np.concatenate([self.columns, self.rows[off]]),
        )
        return coo_array((np.append(values, values[off]), at), (self.size, self.size)).tocsr()

    def factor(
        self, values: np.ndarray, border: Border, twins: Sequence[Twins]
    ) -> ImplicitFactor | None:
        """Of P_RR with these values, and W; None where S is not positive definite."""
        padded = np.append(values, 0.0)
        inverses, log_det = [], 0.0
        for block in twins:
            found = inverse_cholesky(padded[block.own] - border.within(block))
            if found is None:
                return None
            inverses.append(found[0])
            log_det += found[1]
        return _Preconditioned(self, border, tuple(twins), tuple(inverses), log_det).factor()


class Border(Protocol):
    """What S needs of P_RR and W, wherever they are."""

    def times(self, vectors: np.ndarray) -> np.ndarray:
        """S v = (P_RR - W' W) v."""
        ...

    def within(self, twins: Twins) -> np.ndarray:
        """W' W within blocks of twins, the lower triangles of (b, b, n)."""
        ...


@dataclass(frozen=True, eq=False)
class HostBorder:
    """Both as sparse matrices, by rows."""

    own: Any  # P_RR
    matrix: Any  # W

    def times(self, vectors: np.ndarray) -> np.ndarray:
        """S v."""
        product: np.ndarray = self.own @ vectors - self.matrix.T @ (self.matrix @ vectors)
        return product

    def within(self, twins: Twins) -> np.ndarray:
        """W' W within blocks of twins, the lower triangles of (b, b, n)."""
        data = self.matrix.data[twins.places]
        size, n = twins.members.shape
        found = np.zeros((size, size, n))
        for i in range(size):
            for j in range(i + 1):
                found[i, j] = np.bincount(twins.which, data[i] * data[j], minlength=n)
        return found


@dataclass(frozen=True, eq=False)
class _Preconditioned:
    """M = R^-1 S R^-T."""

    pattern: Implicit
    border: Border
    twins: tuple[Twins, ...]
    inverses: tuple[np.ndarray, ...]  # (b, b, n): R^-1 of the blocks
    log_det: float  # log |C|

    def factor(self) -> ImplicitFactor | None:
        """The directions solved exactly, then the trace of what is left."""
        coarse = self.pattern.coarse
        turned = self.scaled(coarse)
        lower = np.linalg.cholesky(turned.T @ turned)
        basis = np.linalg.solve(lower, turned.T).T
        ahead = self(basis)
        inner = basis.T @ ahead
        try:
            root = np.linalg.cholesky(0.5 * (inner + inner.T))
        except np.linalg.LinAlgError:
            return None
        log_det = self.log_det + 2.0 * float(np.log(np.diag(root)).sum())
        deflated = _Deflated(self, basis, ahead, np.linalg.inv(root))
        probes = deflated.begun(self.pattern.probes)
        space = lanczos(deflated, probes, ROUGHLY, _steps(probes))
        if space is None:
            return None
        first = basis.shape[1] - float(np.sum(deflated.half**2))
        rest = space.quadratic(lambda x: np.log(x) - (x - 1.0))
        error = float(np.std(rest, ddof=1)) / math.sqrt(len(rest))
        if space.residual > ROUGHLY:  # what the last steps still changed may not be all
            before = space.shortened().quadratic(lambda x: np.log(x) - (x - 1.0))
            error += float(abs(rest - before).mean())
        return ImplicitFactor(deflated, space, log_det + first + float(rest.mean()), error)

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """M v."""
        inner = self.back(vectors)
        return self.forward(self.border.times(inner))

    def forward(self, vectors: np.ndarray) -> np.ndarray:
        """R^-1 v."""
        return self._blockwise(vectors, self.inverses)

    def back(self, vectors: np.ndarray) -> np.ndarray:
        """R^-T v."""
        return self._blockwise(vectors, [one.transpose(1, 0, 2) for one in self.inverses])

    def scaled(self, vectors: np.ndarray) -> np.ndarray:
        """R' v."""
        roots = []
        for one in self.inverses:
            inverted = np.linalg.inv(one.transpose(2, 1, 0))
            roots.append(np.ascontiguousarray(inverted.transpose(1, 2, 0)))
        return self._blockwise(vectors, roots)

    def _blockwise(self, vectors: np.ndarray, blocks: Sequence[np.ndarray]) -> np.ndarray:
        out = np.empty_like(vectors)
        for twin, block in zip(self.twins, blocks, strict=True):
            inside = vectors[twin.members]
            out[twin.members] = np.einsum("ijn,jnk->ink", block, inside)
        return out


@dataclass(frozen=True, eq=False)
class _Deflated:
    """N, off the directions V that are solved exactly."""

    whole: _Preconditioned
    basis: np.ndarray  # V
    ahead: np.ndarray  # M V
    root: np.ndarray  # L^-1 of V'MV = L L'

    @cached_property
    def half(self) -> np.ndarray:
        """L^-1 V'M, (k, q)."""
        half: np.ndarray = self.root @ self.ahead.T
        return half

    def off(self, vectors: np.ndarray) -> np.ndarray:
        """Without their part in V."""
        rest: np.ndarray = vectors - self.basis @ (self.basis.T @ vectors)
        return rest

    def begun(self, vectors: np.ndarray) -> np.ndarray:
        """The same, with nothing left of those that are in V but for rounding."""
        rest = self.off(self.off(vectors))
        return np.where(_norms(rest) > _ROUNDING * _norms(vectors), rest, 0.0)

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """N v."""
        found: np.ndarray = self.whole(vectors) - self.half.T @ (self.half @ vectors)
        return self.off(found)

    def joined(self, vectors: np.ndarray) -> np.ndarray:
        """J v = v - V (V'MV)^-1 V'M v, which is M-orthogonal to V."""
        found: np.ndarray = vectors - self.basis @ (self.root.T @ (self.half @ vectors))
        return found


@dataclass(frozen=True, eq=False)
class ImplicitFactor:
    """S as far as products with it tell. `error` is that of the log-determinant, in nats."""

    deflated: _Deflated
    space: Krylov
    log_det: float
    error: float

    @property
    def border(self) -> Border:
        """P_RR and W."""
        return self.deflated.whole.border

    def solve(self, rhs: np.ndarray) -> np.ndarray:
        """S^-1 rhs, (q, m); raises IllConditionedError."""
        whole = self.deflated.whole
        return whole.back(self._in_parts(self._solved, whole.forward(rhs)))

    def coloured(self, normals: np.ndarray) -> np.ndarray:
        """A root of S^-1 times standard normals, (q, m); raises IllConditionedError."""
        return self.deflated.whole.back(self._in_parts(self._rooted, normals))

    def _in_parts(
        self, function: Callable[[np.ndarray], np.ndarray], vectors: np.ndarray
    ) -> np.ndarray:
        step = max(1, int(_AT_ONCE // (64 * len(vectors))))
        parts = range(0, vectors.shape[1], step)
        found = [function(vectors[:, begin : begin + step]) for begin in parts]
        return np.concatenate(found, axis=1) if found else vectors

    def _solved(self, rhs: np.ndarray) -> np.ndarray:
        """M^-1 rhs: exactly in V, then by conjugate gradients, begun anew where need be."""
        one = self.deflated
        inside = one.root.T @ (one.root @ (one.basis.T @ rhs))
        goal = one.begun(rhs - one.ahead @ inside)
        rest, found, left = goal, np.zeros_like(goal), 1.0
        for _ in range(RESTARTS):
            space = _space(one, rest, max(CLOSELY / left, 1e-14))
            found = found + space.applied(lambda x: 1.0 / x)
            if left * space.residual <= CLOSELY:
                break
            rest = one.begun(goal - one(found))
            left = float(np.max(_norms(rest) / np.maximum(_norms(goal), 1e-300)))
        else:
            if left > LOOSELY:
                raise IllConditionedError(len(rhs), RESTARTS * _steps(rhs), left)
        return np.asarray(one.joined(found) + one.basis @ inside)

    def _rooted(self, normals: np.ndarray) -> np.ndarray:
        """A root of M^-1 times normals."""
        one = self.deflated
        space = _space(one, one.begun(normals), CLOSELY)
        if space.residual > math.sqrt(LOOSELY):
            raise IllConditionedError(len(normals), _steps(normals), space.residual)
        inside = one.basis @ (one.root.T @ (one.basis.T @ normals))
        return np.asarray(one.joined(space.applied(lambda x: 1.0 / np.sqrt(x))) + inside)

    def covariance(self) -> np.ndarray:
        """S^-1 where P_RR has entries."""
        pattern = self.deflated.whole.pattern
        return self.inverse.at(pattern.rows, pattern.columns)

    @cached_property
    def inverse(self) -> Inverse:
        """S^-1 about: what is exact, and what probes tell of the rest."""
        return self._inverse(slice(None))

    def _inverse(self, probes: slice) -> Inverse:
        one, whole = self.deflated, self.deflated.whole
        signs = one.begun(whole.pattern.probes)[:, probes]
        rest = self.space.applied(lambda x: 1.0 / x)[:, probes] - signs
        # M^-1 = V G V' + J J' + J (N^+ - I) J', with G = (V'MV)^-1.
        k, p = one.basis.shape[1], signs.shape[1]
        inverse = one.root.T @ one.root
        columns = [one.basis, one.ahead, one.joined(signs), one.joined(rest)]
        middle = np.zeros((2 * k + 2 * p, 2 * k + 2 * p))
        middle[:k, :k] = inverse + inverse @ (one.ahead.T @ one.ahead) @ inverse
        middle[:k, k : 2 * k] = middle[k : 2 * k, :k] = -inverse
        each = 2 * k + np.arange(p)
        middle[each, each + p] = middle[each + p, each] = 0.5 / p
        blocks = tuple(np.einsum("kin,kjn->ijn", one, one) for one in whole.inverses)
        low = whole.back(np.concatenate(columns, axis=1))
        return Inverse(blocks, whole.twins, low, middle)

    @cached_property
    def variance_error(self) -> float:
        """The relative error of variances, root mean square, as two halves of the probes tell."""
        half = PROBES // 2
        first, second = (self._inverse(s).diagonal for s in (slice(half), slice(half, None)))
        whole = self.inverse.diagonal
        return float(np.sqrt(np.mean((0.5 * (first - second) / whole) ** 2)))


def _space(operator: _Deflated, start: np.ndarray, tolerance: float) -> Krylov:
    space = lanczos(operator, start, tolerance, _steps(start))
    assert space is not None, "a matrix is positive definite for one vector and not for another"
    return space


def _norms(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt(np.sum(vectors**2, axis=0)))


def _steps(vectors: np.ndarray) -> int:
    return int(min(MOST_STEPS, max(30, _AT_ONCE // max(vectors.size, 1))))
