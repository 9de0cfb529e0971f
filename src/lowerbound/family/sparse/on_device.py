"""A stage whose rest is implicit, on an accelerator: all that is as large as the border W.

Blocks D are factored, D = L L', and W = L^-1 B is held twice, by the blocks and by the columns that
they meet, so that W v and W' u are both sums of `Chunks`. What is as small as the rest is left to
the host: directions solved exactly, Lanczos' bases, preconditioners. Everything is in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lowerbound.family.numerics.orders import order_of
from lowerbound.family.sparse import device_kernels as kernels
from lowerbound.family.sparse.device_kernels import Done, Layout, Piecewise, Together
from lowerbound.family.sparse.fronts import Reduced
from lowerbound.family.sparse.implicit import Implicit, ImplicitFactor
from lowerbound.family.sparse.twins import Twins
from lowerbound.family.sparse.uneven_sums import Chunks

if TYPE_CHECKING:
    from lowerbound.family.sparse.stages import Stage

__all__ = ["DeviceFactor", "DeviceStage", "has_accelerator"]


def has_accelerator() -> bool:
    """Whether the device that computes by default is one."""
    return bool(jax.default_backend() != "cpu")


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
        order = order_of(rows)
        chunks = Chunks.of(rows[order], rest.size)
        own = _piecewise(chunks, source[order][None], meets[order], rest.count)
        with jax.enable_x64(True):
            placed = jax.device_put((layouts, together, own))  # which compiles nothing
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
            done, log_det = kernels.jitted(kernels.eliminated)(self.layouts, values)
            own = values[stage.own_from]
            border = DeviceBorder(self, done, jax.device_put(np.append(own, 0.0)))
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
            return np.asarray(kernels.jitted(function)(self.laid.layouts, self.done, *args))

    def times(self, vectors: np.ndarray) -> np.ndarray:
        """(P_RR - W' W) v."""
        return self._run(kernels.complement, self.laid.own, self.own, vectors)

    def within(self, twins: Twins) -> np.ndarray:
        """W' W within blocks of twins, (b, b, n)."""
        number = next(n for n, one in enumerate(self.laid.stage.twins) if one is twins)
        together = tuple(one[number] for one in self.laid.together)
        like = np.zeros(twins.members.shape[1])
        return self._run(kernels.twin_products, together, like)

    def forward(self, rhs: np.ndarray) -> tuple[Any, np.ndarray]:
        """L^-1 rhs of what is eliminated, and W' of it."""
        with jax.enable_x64(True):
            halves, left = kernels.jitted(kernels.forward)(
                self.laid.layouts, self.done, rhs, np.zeros(len(self.laid.stage.kept))
            )
        return halves, np.asarray(left)

    def members(self, vectors: np.ndarray) -> Any:
        """Of vectors, what is eliminated."""
        return tuple(vectors[members] for members in self.laid.members)

    def backward(self, halves: Any, left: np.ndarray) -> np.ndarray:
        """The whole of a solution: L'^-1 (halves - W left), and what is left."""
        return self._run(kernels.backward, halves, left, self.laid.stage.kept)

    def variances(self, found: ImplicitFactor) -> np.ndarray:
        """The diagonal of P^-1, (d,), from C^-1 + L Q L' of what is left."""
        stage, inverse = self.laid.stage, found.inverse
        given = inverse.blocks, inverse.columns, inverse.middle
        with jax.enable_x64(True):
            parts = kernels.jitted(kernels.variances)(
                self.laid.layouts, self.done, self.laid.together, given
            )
        out = np.empty(len(stage.diagonal))
        out[stage.kept] = inverse.diagonal
        for members, part in zip(self.laid.members, parts, strict=True):
            out[members] = np.asarray(part)
        return out


@dataclass(frozen=True, eq=False)
class DeviceFactor(Reduced):
    """P = L L', what a `Factor` is on the host."""

    values: np.ndarray
    border: DeviceBorder
    rest: ImplicitFactor
    log_det: float

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
    order = order_of(met)  # blocks of a column stay in order
    chunks = Chunks.of(met[order], left)
    by_column = _piecewise(chunks, at[:, order], of[order], stage.count)
    return Layout(np.concatenate(inner, axis=2), members, by_block, by_column), chunks
