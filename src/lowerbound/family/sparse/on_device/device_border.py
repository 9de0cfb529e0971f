"""What is implicit, on an accelerator: each part of a solution is one program there."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from lowerbound.compiled import Jitted, jit, untried_options
from lowerbound.family.sparse.deflated import Deflated
from lowerbound.family.sparse.krylov import Krylov, State, advanced, begin
from lowerbound.family.sparse.on_device import device_kernels as kernels
from lowerbound.family.sparse.on_device.device_kernels import Done, Layout, Piecewise, Together
from lowerbound.family.sparse.twins import Scheme

__all__ = ["DeviceBorder", "Span", "jitted", "room_for", "spanned"]

_ROOM = 32  # vectors of a basis, which seldom do not do


@cache
def jitted(function: Any) -> Jitted:
    """A function of arrays there, compiled once for all of its uses."""
    return jit(function, ahead=True, compiler_options=untried_options())


class DeviceBorder(NamedTuple):
    """W, and P_RR."""

    layouts: tuple[Layout, ...]
    done: tuple[Done, ...]
    own: Piecewise  # P_RR by rows
    values: Any  # of P_RR, and 0
    together: tuple[tuple[Together, ...], ...]  # of each layout, of each size of twins
    scheme: Scheme

    def times(self, vectors: Array) -> Array:
        """(P_RR - W' W) v."""
        return kernels.complement(self.layouts, self.done, self.own, self.values, vectors)

    def within(self, number: int) -> Array:
        """W' W within blocks of one size, (b, b, n)."""
        together = tuple(one[number] for one in self.together)
        return kernels.twin_products(self.done, together, self.scheme.members[number].shape[1])

    def inverse_cholesky(self, blocks: Array) -> tuple[Array, Array]:
        """R^-1 of blocks, and the sum of log-determinants."""
        return kernels.inverse_cholesky(blocks)

    def inverse_root(self, matrix: Array) -> Array:
        """L^-1 of a small L L'."""
        lower = jnp.linalg.cholesky(matrix)
        return solve_triangular(lower, jnp.eye(len(matrix)), lower=True)

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """The value of a function, compiled: arrays that are there, perhaps not computed yet."""
        with jax.enable_x64(True):
            return jitted(function)(*args)

    def space(self, one: Deflated, start: Any, tolerance: float, most: int) -> Krylov | None:
        """The bases of N from a start, made there; the host is told of T."""
        limit, room = np.float64(tolerance), min(most, len(start))
        span: Span = self.run(spanned(room_for(start, most)), one, start, limit)
        known: Span = jax.device_get(span._replace(basis=None, state=None))
        if known.goes_on(tolerance, room):
            span = self.run(continued(room), one, span, limit)
            known = jax.device_get(span._replace(basis=None, state=None))
        if not known.positive:
            return None
        parts = known.diagonal[: known.steps], known.beside[: known.steps - 1]
        return Krylov(span.basis, *parts, known.norms, float(known.residual))


# --------------------------------------------------------------------------------------------------
# Bases


class Span(NamedTuple):
    """Bases in the making, with room for a number of vectors; 0 where there are none yet."""

    basis: Any  # (room, n, k)
    diagonal: Any  # (room, k)
    beside: Any
    norms: Any
    residual: Any
    steps: Any
    positive: Any
    state: State | None

    def goes_on(self, tolerance: Any, room: int) -> Any:
        """Whether there is a step to take, and room for it."""
        return self.positive & ~(self.residual <= tolerance) & (self.steps < room)


def room_for(start: Any, most: int) -> int:
    """Room for the vectors that usually do, of a basis of so many at most."""
    return min(most, len(start), _ROOM)


@cache
def spanned(room: int) -> Callable[[Deflated, Any, Any], Span]:
    """A program that makes bases from a start."""

    def spanned(one: Deflated, start: Any, tolerance: Any) -> Span:
        norms, state = begin(start)
        basis = jnp.zeros((room, *start.shape)).at[0].set(state.vector)
        none = jnp.zeros((room, len(norms)))
        begun = jnp.array(jnp.inf), jnp.array(0), jnp.array(True)
        return _stepped(one, Span(basis, none, none, norms, *begun, state), tolerance)

    return spanned


@cache
def continued(room: int) -> Callable[[Deflated, Span, Any], Span]:
    """A program that goes on with bases for which there was no room."""

    def continued(one: Deflated, span: Span, tolerance: Any) -> Span:
        assert span.state is not None
        more = [(0, room - len(span.basis)), (0, 0)]
        basis = jnp.pad(span.basis, [*more, (0, 0)]).at[span.steps].set(span.state.vector)
        diagonal, beside = jnp.pad(span.diagonal, more), jnp.pad(span.beside, more)
        wider = span._replace(basis=basis, diagonal=diagonal, beside=beside)
        return _stepped(one, wider, tolerance)

    return continued


def _stepped(one: Deflated, span: Span, tolerance: Any) -> Span:
    """Until the residual is small, there is no room, or N is not positive definite."""
    room = len(span.basis)

    def step(span: Span) -> Span:
        def without(vectors: Array) -> Array:
            inside = jnp.sum(span.basis * vectors, axis=1)
            return vectors - jnp.sum(span.basis * inside[:, None], axis=0)

        assert span.state is not None
        found, state = advanced(one.times(span.state.vector), span.state, span.norms, without)
        return Span(
            span.basis.at[span.steps + 1].set(state.vector, mode="drop"),
            span.diagonal.at[span.steps].set(found.diagonal),
            span.beside.at[span.steps].set(state.length),
            span.norms,
            found.residual,
            span.steps + 1,
            found.positive,
            state,
        )

    found: Span = jax.lax.while_loop(lambda span: span.goes_on(tolerance, room), step, span)
    return found
