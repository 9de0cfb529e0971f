"""Conjugate gradients for the response of many statistics (Hestenes and Stiefel 1952)."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

MOST = 500  # iterations
SMALL = 1e-8  # of what is left, relative to the start


def solved(
    spread: Callable[[Array], Array], bent: Callable[[Array], Array], pulls: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """(I - V H)^-1 V b for the rows b of `pulls`; V and H are applied to rows by functions.

    I - H V is symmetric in the inner product <a, b> = a' V b, and positive at a maximum: y solves
    (I - H V) y = b, and V y is wanted. Also V b; whether each row is done; the least curvature that
    was met, where V alone has 1; and the direction that has it.
    """

    def inner(one: Array, other: Array) -> Array:
        return jnp.sum(one * other, axis=-1)

    first = spread(pulls)
    size = inner(pulls, first)

    def more(loop: tuple[Array, ...]) -> Array:
        count, live = loop[0], loop[-1]
        return (count < MOST) & live.any()

    def step(loop: tuple[Array, ...]) -> tuple[Array, ...]:
        count, found, left, towards, spread_towards, before, least, worst, live = loop
        moved = towards - bent(spread_towards)
        along = inner(spread_towards, moved)
        own = inner(towards, spread_towards)
        curvature = along / jnp.where(own > 0, own, 1.0)
        lower = live & (curvature < least)
        least = jnp.where(lower, curvature, least)
        worst = jnp.where(lower[:, None], spread_towards, worst)
        live = live & (curvature > 1e-10)
        length = jnp.where(live, before / jnp.where(along > 0, along, 1.0), 0.0)[:, None]
        found = found + length * spread_towards
        left = left - length * moved
        spread_left = spread(left)
        now = inner(left, spread_left)
        ratio = jnp.where(before > 0, now / jnp.where(before > 0, before, 1.0), 0.0)[:, None]
        towards = left + ratio * towards
        spread_towards = spread_left + ratio * spread_towards
        live = live & (now > SMALL**2 * size)
        return count + 1, found, left, towards, spread_towards, now, least, worst, live

    start: tuple[Array, ...] = (
        jnp.zeros((), int),
        jnp.zeros_like(pulls),
        pulls,
        pulls,
        first,
        size,
        jnp.full(size.shape, jnp.inf),
        jnp.zeros_like(pulls),
        size > 0,
    )
    _, found, _, _, _, now, least, worst, _ = jax.lax.while_loop(more, step, start)
    done = now <= SMALL**2 * size
    return found, first, done, least, worst
