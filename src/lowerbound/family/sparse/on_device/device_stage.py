"""The fronts of a stage laid out on an accelerator, and the factors of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lowerbound.family.numerics.orders import order_of
from lowerbound.family.sparse.deflated import (
    Deflated,
    begun_with,
    closed,
    coloured,
    deflated,
    inverse_of,
    opened,
    variance_error,
)
from lowerbound.family.sparse.fronts import Reduced
from lowerbound.family.sparse.implicit import PROBES, Implicit, ImplicitFactor, steps_for
from lowerbound.family.sparse.low_rank_inverse import Inverse
from lowerbound.family.sparse.on_device import device_kernels as kernels
from lowerbound.family.sparse.on_device.device_border import DeviceBorder, jitted, room_for, spanned
from lowerbound.family.sparse.on_device.device_kernels import Done, Layout, Piecewise, Together
from lowerbound.family.sparse.twins import Scheme
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
    scheme: Scheme
    kept: Any  # entries that are left
    kept_values: Any  # of pairs of them

    @cached_property
    def members(self) -> tuple[np.ndarray, ...]:
        """What is eliminated, (b, n) of each layout."""
        return tuple(np.asarray(layout.members) for layout in self.layouts)

    @classmethod
    def of(cls, stage: Stage) -> DeviceStage:
        """Lay out the fronts of a stage whose rest is implicit, and have programs compiled."""
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
        parts = layouts, together, own, stage.scheme, stage.kept, stage.own_from
        with jax.enable_x64(True):
            placed = cls(stage, *jax.device_put(parts))  # which compiles nothing
            placed._prepare()
        return placed

    def border(self, done: tuple[Done, ...], values: Any) -> DeviceBorder:
        """Of a matrix whose blocks are eliminated."""
        return DeviceBorder(self.layouts, done, self.own, values, self.together, self.scheme)

    def factor(self, values: np.ndarray) -> DeviceFactor | None:
        """Of the matrix with these values; None where it is not positive definite."""
        rest = self.stage.rest
        assert isinstance(rest, Implicit)
        with jax.enable_x64(True):
            found = jitted(kernels.eliminated)(self.layouts, self.kept_values, values)
        done, own, log_det = found
        border = self.border(done, own)
        factor = rest.factor(border)
        if factor is None:
            return None
        total = float(log_det) + factor.log_det
        return DeviceFactor(self, values, border, factor, total) if math.isfinite(total) else None

    def _prepare(self) -> None:
        """Compile, side by side, what factors, variances, solutions and draws take."""

        def shape(*sizes: int) -> Any:
            return jax.ShapeDtypeStruct(sizes, np.float64)  # type: ignore[no-untyped-call]

        def prepared(function: Any, *args: Any) -> Any:
            return jitted(function).prepare(*args)

        def based(start: Any) -> tuple[Any, Any]:
            program = spanned(room_for(start, steps_for(start)))
            span = prepared(program, one, start, shape())
            return span.basis, shape(*span.diagonal.shape)

        def backward(left: Any) -> None:
            width = left.shape[1]
            halves = tuple(shape(*layout.members.shape, width) for layout in self.layouts)
            prepared(kernels.backward, *where, halves, left)

        eliminated = self.layouts, self.kept_values, shape(self.stage.count)
        done, own, _ = prepared(kernels.eliminated, *eliminated)
        border, where = self.border(done, own), (self.layouts, done, self.kept)
        parts, probes, _ = prepared(deflated, border)
        one = Deflated(border, *parts)
        probed = based(probes)
        _, left = prepared(kernels.forward, *where, shape(len(self.stage.diagonal), 1))
        inside, goal, found = prepared(opened, one, left)
        backward(prepared(closed, one, inside, found, *based(goal)))
        inverse = Inverse(self.scheme, *prepared(inverse_of, one, *probed))
        prepared(kernels.variances, *where, self.together, inverse)
        prepared(variance_error, one, *probed)
        normals = shape(*probes.shape)
        prepared(begun_with, one, normals)
        backward(prepared(coloured, one, normals, *probed))


@dataclass(frozen=True, eq=False)
class DeviceFactor(Reduced):
    """P = L L', what a `Factor` is on the host."""

    laid: DeviceStage
    values: np.ndarray
    border: DeviceBorder
    rest: ImplicitFactor
    log_det: float

    def solve(self, rhs: np.ndarray) -> np.ndarray:
        """P^-1 rhs, (d,) or (d, k)."""
        return _in_parts(self._solved, np.asarray(rhs, np.float64))

    def coloured(self, normals: np.ndarray) -> np.ndarray:
        """L'^-1 normals, (d,) or (d, k): of covariance P^-1 where those are standard normal."""
        return _in_parts(self._coloured, np.asarray(normals, np.float64))

    def variance(self) -> np.ndarray:
        """The diagonal of P^-1, (d,)."""
        return np.asarray(self._run(kernels.variances, self.laid.together, self.rest.inverse))

    def _run(self, function: Any, *args: Any) -> Any:
        where = self.border.layouts, self.border.done, self.laid.kept
        return self.border.run(function, *where, *args)

    def _solved(self, rhs: np.ndarray) -> np.ndarray:
        halves, left = self._run(kernels.forward, rhs)
        return np.asarray(self._run(kernels.backward, halves, self.rest.solve(left)))

    def _coloured(self, normals: np.ndarray) -> np.ndarray:
        left = self.rest.coloured(normals[self.laid.stage.kept])
        halves = tuple(normals[members] for members in self.laid.members)
        return np.asarray(self._run(kernels.backward, halves, left))

    @cached_property
    def _on_host(self) -> Any:
        return self.laid.stage.factor_on_host(self.values)

    def covariance(self) -> np.ndarray:
        """P^-1 at the entries of the pattern, in their order, by the host."""
        return np.asarray(self._on_host.covariance())


def _in_parts(function: Callable[[np.ndarray], np.ndarray], vectors: np.ndarray) -> np.ndarray:
    """Of columns (d, k), or of one (d,), so many at a time that programs of two widths do."""
    if vectors.ndim == 1:
        return function(vectors[:, None])[:, 0]
    count = vectors.shape[1]
    if count == 1:
        return function(vectors)
    padded = np.pad(vectors, [(0, 0), (0, -count % PROBES)])
    parts = range(0, padded.shape[1], PROBES)
    found = [np.zeros((len(vectors), 0))]
    found += [function(padded[:, at : at + PROBES]) for at in parts]
    return np.concatenate(found, axis=1)[:, :count]


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
