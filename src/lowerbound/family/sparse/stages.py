"""Stages of an elimination: fronts, and what they leave as the next stage.

The last stage is dense, or, where it is too large, implicit.

A stage has a flat array of values; those of the dense one are all entries of its matrix, column by
column, of which only the lower triangle is read and written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lowerbound.family.sparse.fronts import Eliminated, Front, Reduced
from lowerbound.family.sparse.implicit import HostBorder, Implicit, ImplicitFactor
from lowerbound.family.sparse.low_rank_inverse import Inverse
from lowerbound.family.sparse.on_device import DeviceFactor, DeviceStage, has_accelerator
from lowerbound.family.sparse.twins import Scheme, Twins

__all__ = ["AnyFactor", "Dense", "DenseFactor", "Factor", "Stage"]


@dataclass(frozen=True, eq=False)
class Dense:
    """A matrix without zeros."""

    size: int

    @property
    def count(self) -> int:
        """How many values it has."""
        return self.size**2

    def factor(self, values: np.ndarray) -> DenseFactor | None:
        """The Cholesky factor, which takes the place of the values; None if there is none."""
        from scipy.linalg.lapack import dpotrf

        matrix = values.reshape(self.size, self.size).T
        if not self.size:
            return DenseFactor(matrix, 0.0)
        lower, failed = dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
        if failed:
            return None
        return DenseFactor(lower, 2.0 * float(np.log(np.diagonal(lower)).sum()))


@dataclass(frozen=True, eq=False)
class DenseFactor:
    """A lower Cholesky factor; what is above the diagonal means nothing."""

    lower: np.ndarray
    log_det: float
    error = variance_error = 0.0

    def solve(self, rhs: np.ndarray) -> np.ndarray:
        """P^-1 rhs, (n, k)."""
        from scipy.linalg.lapack import dpotrs

        return rhs if not rhs.size else np.asarray(dpotrs(self.lower, rhs, lower=1)[0])

    def coloured(self, normals: np.ndarray) -> np.ndarray:
        """L'^-1 normals, (n, k)."""
        from scipy.linalg.lapack import dtrtrs

        if not normals.size:
            return normals
        return np.asarray(dtrtrs(self.lower, normals, lower=1, trans=1)[0])

    def covariance(self) -> np.ndarray:
        """The inverse, as the values of a dense stage."""
        from scipy.linalg.lapack import dpotri

        if not len(self.lower):
            return np.zeros(0)
        return np.asarray(dpotri(self.lower, lower=1)[0]).T.reshape(-1)


@dataclass(frozen=True, eq=False)
class Stage:
    """Fronts that do not meet each other, and what they leave.

    Fronts that meet only some of what is left come first; their borders make one sparse matrix.
    """

    fronts: tuple[Front, ...]
    kept: np.ndarray  # (r,): entries that are left
    own_from: np.ndarray  # values of pairs of them, and where they go
    own_to: np.ndarray
    rest: Stage | Dense | Implicit
    count: int  # values
    diagonal: np.ndarray  # (d,): those of the diagonal

    def factor(self, values: np.ndarray) -> AnyFactor | None:
        """The factor of the matrix; None where it is not positive definite."""
        if isinstance(self.rest, Implicit) and has_accelerator():
            return self.on_device.factor(values)
        return self.factor_on_host(values)

    def prepare(self) -> None:
        """Have compiled what an accelerator computes of a factor, while something else is done."""
        if isinstance(self.rest, Stage):
            self.rest.prepare()
        elif isinstance(self.rest, Implicit) and has_accelerator():
            _ = self.on_device

    @cached_property
    def on_device(self) -> DeviceStage:
        """What is there of a stage whose rest is implicit."""
        return DeviceStage.of(self)

    def factor_on_host(self, values: np.ndarray) -> Factor | None:
        """The same by NumPy."""
        done = []
        left = np.zeros(self.rest.count)
        left[self.own_to] = values[self.own_from]
        for front in self.fronts:
            eliminated = front.eliminated(values)
            if eliminated is None:
                return None
            if not isinstance(self.rest, Implicit):
                front.reduce(eliminated, left)
            done.append(eliminated)
        rest: Factor | DeviceFactor | DenseFactor | ImplicitFactor | None
        if isinstance(self.rest, Implicit):
            own, padded = self.rest.whole(left), np.append(left, 0.0)
            border = HostBorder(own, padded, self.border(done), self.scheme, self.twins)
            rest = self.rest.factor(border)
        else:
            rest = self.rest.factor(left)
        if rest is None:
            return None
        log_det = math.fsum(part.log_det for part in done) + rest.log_det
        return Factor(self, tuple(done), rest, log_det) if math.isfinite(log_det) else None

    @cached_property
    def sparse(self) -> int:
        """The number of fronts that meet only some of what is left."""
        return sum(front.border is not None for front in self.fronts)

    @cached_property
    def borders(self) -> tuple[np.ndarray, np.ndarray]:
        """Columns, and where rows begin, of the matrix W of the sparse fronts."""
        columns, widths = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        for front in self.fronts[: self.sparse]:
            assert front.border is not None
            b, n = front.members.shape
            columns.append(np.broadcast_to(front.border, (b, *front.border.shape)).ravel())
            widths.append(np.full(b * n, front.width, np.int32))
        begins = np.concatenate([[0], np.cumsum(np.concatenate(widths))])
        return np.concatenate(columns).astype(np.int32), begins.astype(np.int32)

    @cached_property
    def lines(self) -> np.ndarray:
        """The row of each entry of W."""
        widths = np.diff(self.borders[1])
        return np.repeat(np.arange(len(widths), dtype=np.int32), widths)

    @cached_property
    def twins(self) -> list[Twins]:
        """Where W has what belongs together, for an implicit rest."""
        assert isinstance(self.rest, Implicit)
        real = [np.zeros(0, bool)]
        for front in self.fronts:
            assert front.border is not None
            known = np.ones(front.border.shape, bool)  # in order, and 0 after the last
            known[:, 1:] = front.border[:, 1:] > front.border[:, :-1]
            real += [known.ravel()] * len(front.members)
        return self.rest.twins(self.borders[0], np.concatenate(real))

    @cached_property
    def scheme(self) -> Scheme:
        """How an implicit rest is preconditioned."""
        assert isinstance(self.rest, Implicit)
        return self.rest.scheme(self.twins)

    def border(self, done: Sequence[Eliminated]) -> Any:
        """W of the sparse fronts."""
        parts = [part.outer.ravel() for part in done[: self.sparse]]
        return self.by_rows(np.concatenate([np.zeros(0), *parts]))

    def by_rows(self, values: np.ndarray) -> Any:
        """A sparse matrix with the pattern of W."""
        from scipy.sparse import csr_array

        columns, begins = self.borders
        return csr_array((values, columns, begins), (len(begins) - 1, len(self.kept)))


@dataclass(frozen=True, eq=False)
class Factor(Reduced):
    """P = L L' of a sparse positive definite matrix."""

    stage: Stage
    done: tuple[Eliminated, ...]
    rest: Factor | DeviceFactor | DenseFactor | ImplicitFactor
    log_det: float

    def solve(self, rhs: np.ndarray) -> np.ndarray:
        """P^-1 rhs, (d,) or (d, k)."""
        rhs = np.asarray(rhs, np.float64)
        if rhs.ndim == 1:
            return self.solve(rhs[:, None])[:, 0]
        halves = [
            part.forward(rhs[front.members])
            for front, part in zip(self.stage.fronts, self.done, strict=True)
        ]
        flat = self._flat(halves, rhs)
        left = rhs[self.stage.kept]
        for rows, border in self._borders:
            left = left - border.T @ flat[rows]
        return self._back(flat, self.rest.solve(left))

    def coloured(self, normals: np.ndarray) -> np.ndarray:
        """L'^-1 normals, (d,) or (d, k): of covariance P^-1 where those are standard normal."""
        normals = np.asarray(normals, np.float64)
        if normals.ndim == 1:
            return self.coloured(normals[:, None])[:, 0]
        flat = self._flat([normals[front.members] for front in self.stage.fronts], normals)
        return self._back(flat, self.rest.coloured(normals[self.stage.kept]))

    def covariance(self) -> np.ndarray:
        """P^-1 at the entries of the pattern, in their order: the selected inverse."""
        left = self.rest.covariance()
        out = np.empty(self.stage.count)
        out[self.stage.own_from] = left[self.stage.own_to]
        if isinstance(self.rest, ImplicitFactor):
            self._implicitly(self.rest.inverse, out)
            return out
        for front, part in zip(self.stage.fronts, self.done, strict=True):
            front.covariance(part, left, out)
        return out

    def variance(self) -> np.ndarray:
        """The diagonal of P^-1, (d,)."""
        if isinstance(self.rest, ImplicitFactor):
            return self._variance(self.rest.inverse)
        return np.asarray(self.covariance()[self.stage.diagonal])

    def _variance(self, inverse: Inverse) -> np.ndarray:
        """The same, from C^-1 + L Q L' of what is left."""
        out = np.empty(len(self.stage.diagonal))
        out[self.stage.kept] = inverse.diagonal
        turned = np.concatenate([np.zeros(0), *(part.turned.ravel() for part in self.done)])
        met = self.stage.by_rows(turned) @ inverse.columns
        near = inverse.within(self.stage.twins, turned, self.stage.lines, len(met))
        flat = np.maximum(near + np.einsum("nr,nr->n", met @ inverse.middle, met), 0.0)
        begin = 0
        for front, part in zip(self.stage.fronts, self.done, strict=True):
            end = begin + front.members.size
            own = np.einsum("kin,kin->in", part.inverse, part.inverse)
            out[front.members] = own + flat[begin:end].reshape(front.members.shape)
            begin = end
        return out

    def _implicitly(self, inverse: Inverse, out: np.ndarray) -> None:
        """Covariances of what is eliminated, from C^-1 + L Q L' of what is left."""
        turned = np.concatenate([np.zeros(0), *(part.turned.ravel() for part in self.done)])
        crossed = inverse.blockwise(self.stage.twins, turned)
        begin = 0
        for front, part in zip(self.stage.fronts, self.done, strict=True):
            end = begin + part.turned.size
            own = crossed[begin:end].reshape(part.turned.shape)
            near = inverse.columns[front.border]  # (n, m, r)
            inside = np.matmul(part.turned.transpose(1, 0, 2), near) @ inverse.middle  # (n, b, r)
            own += np.matmul(inside, near.transpose(0, 2, 1)).transpose(1, 0, 2)
            front.put(part, own, out)
            begin = end

    def _flat(self, parts: list[np.ndarray], like: np.ndarray) -> np.ndarray:
        width = like.shape[1]
        return np.concatenate([np.zeros((0, width)), *(part.reshape(-1, width) for part in parts)])

    def _back(self, flat: np.ndarray, left: np.ndarray) -> np.ndarray:
        """What is eliminated, from its half of a solution and from what is left."""
        out = np.empty((len(flat) + len(left), left.shape[1]))
        out[self.stage.kept] = left
        for rows, border in self._borders:
            flat[rows] -= border @ left
        begin = 0
        for front, part in zip(self.stage.fronts, self.done, strict=True):
            end = begin + front.members.size
            rhs = flat[begin:end].reshape(*front.members.shape, -1)
            out[front.members] = part.backward(rhs)
            begin = end
        return out

    @cached_property
    def _borders(self) -> list[tuple[slice, Any]]:
        """W in pieces, each with the rows that it has: a sparse one, then dense ones."""
        sparse, found = self.stage.sparse, []
        begin = len(self.stage.borders[1]) - 1
        if begin:
            rest = self.rest
            known = rest.border if isinstance(rest, ImplicitFactor) else None
            matrix = known.matrix if isinstance(known, HostBorder) else None
            found.append(
                (slice(0, begin), self.stage.border(self.done) if matrix is None else matrix)
            )
        for part in self.done[sparse:]:
            flat = part.outer.reshape(-1, part.outer.shape[-1])
            found.append((slice(begin, begin + len(flat)), flat))
            begin += len(flat)
        return found


AnyFactor = Factor | DeviceFactor  # on the host, or on an accelerator
