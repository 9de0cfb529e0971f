"""Damped Newton steps for many small convex functions at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

__all__ = ["Local", "minimise"]

ROUNDS: Final = 100
_RIDGE: Final = 8.0  # in roundings of the diagonal: directions that change nothing stay put


class Local(NamedTuple):
    """A convex function near a point: value, gradient, Hessian, and whether it is defined there."""

    value: Array  # batch
    gradient: Array  # batch + (d,)
    hessian: Array  # batch + (d, d)
    defined: Array  # batch


class _State(NamedTuple):
    x: Array
    local: Local
    step: Array
    direction: Array
    decrease: Array  # that the quadratic model promises, doubled
    round: Array


def minimise(function: Callable[[Array], Local], start: Array) -> tuple[Array, Array]:
    """The minimum of every function of the batch, shape batch + (d,), and whether it was reached.

    From a `start` where the functions are defined, a step is kept if the function falls by a share
    of what its quadratic model promises; otherwise it is shortened. Within the last digits of the
    value every defined step is kept.
    """
    eps = float(np.finfo(start.dtype).eps)

    def begun(x: Array, local: Local, step: Array, round: Array) -> _State:
        diagonal = jnp.diagonal(local.hessian, axis1=-2, axis2=-1)
        scale = jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1))
        ridge = _RIDGE * eps * start.shape[-1] * jnp.eye(start.shape[-1], dtype=start.dtype)
        scaled = local.hessian / (scale[..., :, None] * scale[..., None, :]) + ridge
        solved = jnp.linalg.solve(scaled, -(local.gradient / scale)[..., None])[..., 0]
        direction = solved / scale
        direction = jnp.where(jnp.isfinite(direction), direction, 0)
        decrease = -jnp.sum(direction * local.gradient, axis=-1)
        return _State(x, local, step, direction, decrease, round)

    def active(s: _State) -> Array:
        return jnp.logical_and(s.decrease > eps**1.5, s.step > eps)

    def going(s: _State) -> Array:
        return (s.round < ROUNDS) & jnp.any(active(s))

    def stepped(s: _State) -> _State:
        x = s.x + (s.step * active(s))[..., None] * s.direction
        there = function(x)
        error = eps**0.6 * (1 + jnp.abs(s.local.value))  # a quadrature knows no more digits
        promised = jnp.where(jnp.isfinite(s.decrease), 0.1 * s.step * s.decrease, 0)
        falls = there.value <= s.local.value - promised + error
        kept = there.defined & falls & active(s)

        def chosen(new: Array, old: Array) -> Array:
            return jnp.where(kept.reshape(kept.shape + (1,) * (new.ndim - kept.ndim)), new, old)

        local = Local(*(chosen(n, o) for n, o in zip(there, s.local, strict=True)))
        # Short of a boundary by a quarter, so that the next direction can turn away from it.
        shorter = s.step / jnp.where(there.defined, 4, 16)
        step = jnp.where(kept, jnp.minimum(1, 2 * s.step), shorter)
        return begun(chosen(x, s.x), local, step, s.round + 1)

    # The first round stays at the start, so that the function is compiled once.
    nowhere = jnp.full_like(start[..., 0], jnp.inf)
    identity = jnp.broadcast_to(jnp.eye(start.shape[-1]), (*start.shape, start.shape[-1]))
    unknown = Local(nowhere, 0 * start, identity.astype(start.dtype), nowhere > 0)
    first = _State(start, unknown, jnp.ones_like(nowhere), 0 * start, nowhere, jnp.zeros((), int))
    last = lax.while_loop(going, stepped, first)
    return last.x, last.decrease < 1e4 * eps
