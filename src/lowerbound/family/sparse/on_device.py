"""A stage whose rest is implicit, on an accelerator: all that is as large as the border W.

Blocks D are factored, D = L L', and W = L^-1 B is held twice, by the blocks and by the columns that
they meet, so that W v and W' u are both sums of `Chunks`. What is as small as the rest is left to
the host: directions solved exactly, Lanczos' bases, preconditioners. Everything is in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.compiled import Jitted, jit
from lowerbound.family.sparse.implicit import Implicit, ImplicitFactor
from lowerbound.family.sparse.twins import Twins
from lowerbound.family.sparse.uneven_sums import Chunks

if TYPE_CHECKING:
    from lowerbound.family.sparse.stages import Stage

__all__ = ["DeviceFactor", "DeviceStage", "has_accelerator"]


def has_accelerator() -> bool:
    """Whether the device that computes by default is one."""
    return bool(jax.default_backend() != "cpu")


class Layout(NamedTuple):
    """Blocks of one size b, n of them, and where their values are; the one after the last is 0.

    inner: (b, b, n). members: (b, n). by_block and by_column: chunks of W, of its rows and of its
    columns, with `source` (b, pieces, width), what each item meets, and the group of each piece.
    """

    inner: Any
    members: Any
    by_block: Piecewise
    by_column: Piecewise


class Piecewise(NamedTuple):
    """Chunks of a border: values, what items meet (pieces, width), groups of pieces."""

    source: Any
    meets: Any
    group: Any


class Together(NamedTuple):
    """Of twins of one size b: their pieces by columns (b, p), and which block each is of."""

    pieces: Any
    which: Any


class Done(NamedTuple):
    """A factored layout: L^-1 (b, b, n), and W (b, pieces, width) by blocks and by columns."""

    inverse: Any
    by_block: Any
    by_column: Any


@dataclass(frozen=True, eq=False)
class DeviceStage:
    """The fronts of a stage, laid out on the device once."""

    stage: Stage
    layouts: tuple[Layout, ...]
    together: tuple[tuple[Together, ...], ...]  # of each layout, of each size of twins
    own: Piecewise  # P_RR by rows

    @classmethod
    def of(cls, stage: Stage) -> DeviceStage:
        """Lay out the fronts of a stage whose rest is implicit."""
        rest = stage.rest
        assert isinstance(rest, Implicit)
        sizes = sorted({len(front.members) for front in stage.fronts})
        found = [_laid_out(stage, size, rest.size) for size in sizes]
        layouts, columns = tuple(one for one, _ in found), [chunks for _, chunks in found]
        together = tuple(
            tuple(Together(*chunks.pieces_of(twin.members)) for twin in stage.twins)
            for chunks in columns
        )
        off = rest.rows != rest.columns
        rows = np.concatenate([rest.rows, rest.columns[off]])
        meets = np.concatenate([rest.columns, rest.rows[off]])
        source = np.concatenate([np.arange(rest.count), np.flatnonzero(off)])
        order = np.argsort(rows, kind="stable")
        chunks = Chunks.of(rows[order], rest.size)
        own = _piecewise(chunks, source[order][None], meets[order], rest.count)
        with jax.enable_x64(True):
            placed = jax.tree.map(jnp.asarray, (layouts, together, own))
        return cls(stage, *placed)

    @cached_property
    def members(self) -> tuple[np.ndarray, ...]:
        """What is eliminated, (b, n) of each layout."""
        return tuple(np.asarray(layout.members) for layout in self.layouts)

    def factor(self, values: np.ndarray) -> DeviceFactor | None:
        """Of the matrix with these values; None where it is not positive definite."""
        stage, rest = self.stage, self.stage.rest
        assert isinstance(rest, Implicit)
        with jax.enable_x64(True):
            done, log_det = _jitted(_eliminated)(self.layouts, values)
            own = values[stage.own_from]
            border = DeviceBorder(self, done, jnp.asarray(np.append(own, 0.0)))
            if not np.isfinite(log_det):
                return None
        found = rest.factor(own, border, stage.twins)
        if found is None or not np.isfinite(found.log_det):
            return None
        return DeviceFactor(values, border, found, float(log_det) + found.log_det)


@dataclass(frozen=True, eq=False)
class DeviceBorder:
    """W, and P_RR."""

    laid: DeviceStage
    done: tuple[Done, ...]
    own: Any  # values of P_RR, and 0

    def _run(self, function: Any, *args: Any) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(_jitted(function)(self.laid.layouts, self.done, *args))

    def times(self, vectors: np.ndarray) -> np.ndarray:
        """(P_RR - W' W) v."""
        return self._run(_complement, self.laid.own, self.own, vectors)

    def within(self, twins: Twins) -> np.ndarray:
        """W' W within blocks of twins, (b, b, n)."""
        number = next(n for n, one in enumerate(self.laid.stage.twins) if one is twins)
        together = tuple(one[number] for one in self.laid.together)
        like = np.zeros(twins.members.shape[1])
        return self._run(_twin_products, together, like)

    def forward(self, rhs: np.ndarray) -> tuple[Any, np.ndarray]:
        """L^-1 rhs of what is eliminated, and W' of it."""
        with jax.enable_x64(True):
            halves, left = _jitted(_forward)(
                self.laid.layouts, self.done, rhs, np.zeros(len(self.laid.stage.kept))
            )
        return halves, np.asarray(left)

    def members(self, vectors: np.ndarray) -> Any:
        """Of vectors, what is eliminated."""
        return tuple(vectors[members] for members in self.laid.members)

    def backward(self, halves: Any, left: np.ndarray) -> np.ndarray:
        """The whole of a solution: L'^-1 (halves - W left), and what is left."""
        return self._run(_backward, halves, left, self.laid.stage.kept)

    def variances(self, found: ImplicitFactor) -> np.ndarray:
        """The diagonal of P^-1, (d,), from C^-1 + L Q L' of what is left."""
        stage, inverse = self.laid.stage, found.inverse
        given = inverse.blocks, inverse.columns, inverse.middle
        with jax.enable_x64(True):
            parts = _jitted(_variances)(self.laid.layouts, self.done, self.laid.together, given)
        out = np.empty(len(stage.diagonal))
        out[stage.kept] = inverse.diagonal
        for members, part in zip(self.laid.members, parts, strict=True):
            out[members] = np.asarray(part)
        return out


@dataclass(frozen=True, eq=False)
class DeviceFactor:
    """P = L L', what a `Factor` is on the host."""

    values: np.ndarray
    border: DeviceBorder
    rest: ImplicitFactor
    log_det: float

    @property
    def error(self) -> float:
        """Of the log-determinant, in nats."""
        return self.rest.error

    @property
    def variance_error(self) -> float:
        """The relative error of variances, root mean square."""
        return self.rest.variance_error

    def solve(self, rhs: np.ndarray) -> np.ndarray:
        """P^-1 rhs, (d,) or (d, k)."""
        rhs = np.asarray(rhs, np.float64)
        if rhs.ndim == 1:
            return self.solve(rhs[:, None])[:, 0]
        halves, met = self.border.forward(rhs)
        left = self.rest.solve(rhs[self.border.laid.stage.kept] - met)
        return self.border.backward(halves, left)

    def coloured(self, normals: np.ndarray) -> np.ndarray:
        """L'^-1 normals, (d,) or (d, k): of covariance P^-1 where those are standard normal."""
        normals = np.asarray(normals, np.float64)
        if normals.ndim == 1:
            return self.coloured(normals[:, None])[:, 0]
        left = self.rest.coloured(normals[self.border.laid.stage.kept])
        return self.border.backward(self.border.members(normals), left)

    def variance(self) -> np.ndarray:
        """The diagonal of P^-1, (d,)."""
        return self.border.variances(self.rest)

    @cached_property
    def _on_host(self) -> Any:
        return self.border.laid.stage.factor_on_host(self.values)

    def covariance(self) -> np.ndarray:
        """P^-1 at the entries of the pattern, in their order, by the host."""
        return np.asarray(self._on_host.covariance())


# --------------------------------------------------------------------------------------------------
# Layouts


def _piecewise(chunks: Chunks, source: np.ndarray, meets: np.ndarray, none: int) -> Piecewise:
    """Items (b, m) with their sources and what they meet, in chunks."""
    padded = np.concatenate([source, np.full((len(source), 1), none)], axis=1)
    met = np.append(meets, 0)[chunks.items]
    return Piecewise(padded[:, chunks.items].astype(np.int32), met.astype(np.int32), chunks.group)


def _laid_out(stage: Stage, size: int, left: int) -> tuple[Layout, Chunks]:
    """The blocks of one size, and the chunks of their columns."""
    fronts = [front for front in stage.fronts if len(front.members) == size]
    members = np.concatenate([front.members for front in fronts], axis=1)
    inner, source, column, block, begin = [], [], [], [], 0
    for front in fronts:
        assert front.border is not None
        n, m = front.border.shape
        own = np.full(size * size * n, stage.count)
        own[front.inner_to] = front.inner_from
        inner.append(own.reshape(size, size, n))
        outer = np.full(size * n * m, stage.count)
        outer[front.outer_to] = front.outer_from
        real = np.ones((n, m), bool)  # in order, and 0 after the last
        real[:, 1:] = front.border[:, 1:] > front.border[:, :-1]
        source.append(outer.reshape(size, n, m)[:, real])
        column.append(front.border[real])
        block.append(begin + np.nonzero(real)[0])
        begin += n
    met, of, at = np.concatenate(column), np.concatenate(block), np.concatenate(source, axis=1)
    by_block = _piecewise(Chunks.of(of, members.shape[1]), at, met, stage.count)
    order = np.argsort(met, kind="stable")  # blocks of a column stay in order
    chunks = Chunks.of(met[order], left)
    by_column = _piecewise(chunks, at[:, order], of[order], stage.count)
    return Layout(np.concatenate(inner, axis=2), members, by_block, by_column), chunks


# --------------------------------------------------------------------------------------------------
# What is compiled


@cache
def _jitted(function: Any) -> Jitted:
    return jit(function, ahead=True)


def _added(parts: Array, pieces: Piecewise, count: int) -> Array:
    """Sums of pieces (p, ...) by their groups."""
    return jax.ops.segment_sum(parts, pieces.group, count, indices_are_sorted=True)


def _eliminated(layouts: tuple[Layout, ...], values: Array) -> tuple[tuple[Done, ...], Array]:
    """The factors of blocks; the log-determinant is NaN where one is not positive definite."""
    found, log_det = [], jnp.zeros(())
    values = jnp.append(values, 0.0)
    for layout in layouts:
        inverse, own = _inverse_cholesky(values[layout.inner])
        rows = inverse[:, :, layout.by_block.group][..., None]
        columns = inverse[:, :, layout.by_column.meets]
        by_block = jnp.sum(rows * values[layout.by_block.source], axis=1)
        by_column = jnp.sum(columns * values[layout.by_column.source], axis=1)
        found.append(Done(inverse, by_block, by_column))
        log_det += own
    return tuple(found), log_det


def _inverse_cholesky(matrix: Array) -> tuple[Array, Array]:
    """L^-1 of each block (b, b, n), from its lower triangle, and the sum of log-determinants."""
    size, zero = len(matrix), jnp.zeros_like(matrix[0, 0])
    lower = [[zero] * size for _ in range(size)]
    inverse = [[zero] * size for _ in range(size)]
    log_det = jnp.zeros(())
    for j in range(size):
        pivot = matrix[j, j] - sum((lower[j][k] ** 2 for k in range(j)), zero)
        log_det += jnp.sum(jnp.log(pivot))
        lower[j][j] = jnp.sqrt(pivot)
        for i in range(j + 1, size):
            rest = matrix[i, j] - sum((lower[i][k] * lower[j][k] for k in range(j)), zero)
            lower[i][j] = rest / lower[j][j]
        inverse[j][j] = 1.0 / lower[j][j]
        for k in range(j):
            rest = sum((lower[j][m] * inverse[m][k] for m in range(k, j)), zero)
            inverse[j][k] = -rest * inverse[j][j]
    return jnp.stack([jnp.stack(row) for row in inverse]), log_det


def _rows_of(layout: Layout, border: Array, vectors: Array) -> Array:
    """W v, (b, n, k)."""
    met = vectors[layout.by_block.meets]  # (pieces, width, k)
    parts = jnp.einsum("bpw,pwk->pbk", border, met)
    return _added(parts, layout.by_block, layout.members.shape[1]).transpose(1, 0, 2)


def _columns_of(layout: Layout, border: Array, rows: Array, count: int) -> Array:
    """W' u, (q, k), of rows u (b, n, k)."""
    met = rows[:, layout.by_column.meets]  # (b, pieces, width, k)
    parts = jnp.einsum("bpw,bpwk->pk", border, met)
    return _added(parts, layout.by_column, count)


def _complement(
    layouts: tuple[Layout, ...], done: tuple[Done, ...], own: Piecewise, values: Array, v: Array
) -> Array:
    found = jnp.einsum("pw,pwk->pk", values[own.source[0]], v[own.meets])
    total = _added(found, own, len(v))
    for layout, one in zip(layouts, done, strict=True):
        rows = _rows_of(layout, one.by_block, v)
        total -= _columns_of(layout, one.by_column, rows, len(v))
    return total


def _twin_products(
    layouts: tuple[Layout, ...], done: tuple[Done, ...], together: tuple[Together, ...], like: Array
) -> Array:
    del layouts
    size = len(together[0].pieces)
    total = jnp.zeros((size, size, len(like)))
    for one, twin in zip(done, together, strict=True):
        columns = [one.by_column[:, pieces] for pieces in twin.pieces]
        for i in range(size):
            for j in range(i + 1):
                parts = jnp.sum(columns[i] * columns[j], axis=(0, 2))
                added = jax.ops.segment_sum(parts, twin.which, len(like), indices_are_sorted=True)
                total = total.at[i, j].add(added)
    return total


def _forward(
    layouts: tuple[Layout, ...], done: tuple[Done, ...], rhs: Array, like: Array
) -> tuple[tuple[Array, ...], Array]:
    halves, met = [], jnp.zeros((len(like), rhs.shape[1]))
    for layout, one in zip(layouts, done, strict=True):
        half = jnp.einsum("ijn,jnk->ink", one.inverse, rhs[layout.members])
        met += _columns_of(layout, one.by_column, half, len(like))
        halves.append(half)
    return tuple(halves), met


def _backward(
    layouts: tuple[Layout, ...],
    done: tuple[Done, ...],
    halves: tuple[Array, ...],
    left: Array,
    kept: Array,
) -> Array:
    count = len(left) + sum(layout.members.size for layout in layouts)
    out = jnp.zeros((count, left.shape[1])).at[kept].set(left)
    for layout, one, half in zip(layouts, done, halves, strict=True):
        rest = half - _rows_of(layout, one.by_block, left)
        out = out.at[layout.members].set(jnp.einsum("jin,jnk->ink", one.inverse, rest))
    return out


def _variances(
    layouts: tuple[Layout, ...],
    done: tuple[Done, ...],
    together: tuple[tuple[Together, ...], ...],
    given: tuple[tuple[Array, ...], Array, Array],
) -> tuple[Array, ...]:
    """Variances of what is eliminated, (b, n) of each layout."""
    blocks, low, middle = given
    found = []
    for layout, one, twins in zip(layouts, done, together, strict=True):
        count = layout.members.shape[1]
        own = jnp.einsum("kin,kin->in", one.inverse, one.inverse)
        rows = one.inverse.transpose(1, 0, 2)[:, :, layout.by_block.group][..., None]
        turned = jnp.sum(rows * one.by_block, axis=1)
        met = _rows_of(layout, turned, low)
        far = jnp.einsum("bnr,rs,bns->bn", met, middle, met)
        columns = one.inverse.transpose(1, 0, 2)[:, :, layout.by_column.meets]
        across = jnp.sum(columns * one.by_column, axis=1)  # (b, pieces, width)
        near = jnp.zeros_like(own)
        for twin, block in zip(twins, blocks, strict=True):
            inside = [across[:, pieces] for pieces in twin.pieces]
            total = jnp.zeros_like(inside[0])
            for i in range(len(block)):
                for j in range(i + 1):
                    weight = block[i, j] if i == j else 2.0 * block[i, j]
                    total += inside[i] * inside[j] * weight[twin.which][:, None]
            to = layout.by_column.meets[twin.pieces[0]].ravel()
            for slot in range(len(own)):
                added = jax.ops.segment_sum(total[slot].ravel(), to, count)
                near = near.at[slot].add(added)
        found.append(own + jnp.maximum(near + far, 0.0))
    return tuple(found)
