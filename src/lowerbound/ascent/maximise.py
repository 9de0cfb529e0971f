"""Maximising a smooth function of a few or of many real numbers, inside a compiled program.

Newton's method while a Hessian is affordable (a quadratic function then takes one step), else
L-BFGS; every step is a step uphill, or none is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

Objective = Callable[[Array], Array]

FEW = 50  # parameters up to which a Hessian is formed
STEPS = 25
SHORTER = 60  # times that a step is cut
MEMORY = 10
SUFFICIENT = 1e-4  # of the gain that the slope promises (Armijo)
SETTLED = 1e-13  # relative gain that is within rounding
LEAST_CURVATURE = 1e-12  # of a Hessian with a diagonal of ones


class Climb(NamedTuple):
    """Where a maximisation has come to."""

    point: Array
    value: Array
    gain: Array  # what the next step promises; above rounding when no step uphill was found
    direction: Array  # that step


def maximise(objective: Objective, start: Array) -> Climb:
    """Climb from `start` for a bounded number of steps; the value never falls."""
    return _newton(objective, start) if start.size <= FEW else _quasi_newton(objective, start)


def _rounding(value: Array) -> Array:
    return SETTLED * (1.0 + abs(value))


def _search(
    objective: Objective, point: Array, value: Array, direction: Array, slope: Array
) -> tuple[Array, Array, Array]:
    """Shorten the step until it gains enough; the step taken, its value, and whether there is one.

    A step that promises no more than rounding is taken whole if the value does not tell.
    """
    tiny = slope <= _rounding(value)

    def better(t: Array, new: Array) -> Array:
        enough = jnp.where(tiny, value - _rounding(value), value + SUFFICIENT * t * slope)
        return jnp.isfinite(new) & (new >= enough)

    def more(loop: tuple[Array, Array, Array]) -> Array:
        count, t, new = loop
        return ~better(t, new) & (count < SHORTER) & ~tiny

    def body(loop: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, t, _ = loop
        # A vanishing curvature promises steps that are absurdly long.
        t = jnp.where(count == 0, 1.0, jnp.where(count < 6, 0.5, 0.01) * t)
        return count + 1, t, objective(point + t * direction)

    first = (jnp.zeros((), int), jnp.ones(()), jnp.full((), -jnp.inf))
    count, t, new = body(first)
    _, t, new = jax.lax.while_loop(more, body, (count, t, new))
    # A step cut down to nothing is none.
    found = better(t, new) & (tiny | (point + t * direction != point).any())
    moved = jnp.where(found, point + t * direction, point)
    return moved, jnp.where(found, new, value), found


# --------------------------------------------------------------------------------------------------
# Newton's method


def newton_direction(gradient: Array, hessian: Array, point: Array) -> Array:
    """-|H|^-1 gradient: uphill whatever the signs of the curvatures.

    The Hessian is scaled to a diagonal of ones, so that the units of the numbers do not matter. In
    directions that do not curve downwards no step is longer than the point is far from zero.
    """
    scale = unit_scale(hessian)
    curvature, axes = jnp.linalg.eigh(hessian * scale[:, None] * scale)
    size = jnp.maximum(abs(curvature), LEAST_CURVATURE)
    step = scale * (axes @ ((axes.T @ (scale * gradient)) / size))
    longest = 1.0 + jnp.linalg.norm(point)
    shrink = jnp.minimum(1.0, longest / jnp.maximum(jnp.linalg.norm(step), 1e-300))
    concave = (curvature < -LEAST_CURVATURE).all()
    limited: Array = jnp.where(concave, 1.0, shrink) * step
    return limited


def unit_scale(hessian: Array) -> Array:
    """The units in which the diagonal of a Hessian is one in size (or zero)."""
    size = abs(jnp.diagonal(hessian))
    return jnp.where(size > 0.0, 1.0 / jnp.sqrt(jnp.where(size > 0.0, size, 1.0)), 1.0)


def _newton(objective: Objective, start: Array) -> Climb:
    slope_at = jax.value_and_grad(objective)

    def derivatives(point: Array) -> tuple[Array, Array, Array]:
        # One pass for value, gradient and Hessian: forward over reverse.
        def along(tangent: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            found, change = jax.jvp(slope_at, (point,), (tangent,))
            return found, change

        (value, gradient), (_, hessian) = jax.vmap(along, out_axes=((None, None), (0, 0)))(
            jnp.eye(point.size)
        )
        return value, gradient, 0.5 * (hessian + hessian.T)

    Loop = tuple[Array, Climb, Array]

    def more(loop: Loop) -> Array:
        count, _, going = loop
        return (count < STEPS) & going

    def body(loop: Loop) -> Loop:
        count, climb, _ = loop
        value, gradient, hessian = derivatives(climb.point)
        direction = newton_direction(gradient, hessian, climb.point)
        slope = gradient @ direction
        point, new, found = _search(objective, climb.point, value, direction, slope)
        going = found & (slope > _rounding(value))
        left = jnp.where(found, 0.0, slope)
        return count + 1, Climb(point, new, left, direction), going

    zero = jnp.zeros(())
    first = Climb(start, zero, zero, jnp.zeros_like(start))
    _, climb, _ = jax.lax.while_loop(more, body, (jnp.zeros((), int), first, jnp.array(True)))
    return climb


# --------------------------------------------------------------------------------------------------
# L-BFGS


class _Memory(NamedTuple):
    """The last steps and changes of the gradient, newest last; weight 0 where there is none."""

    steps: Array
    changes: Array
    weights: Array  # 1 / <step, change>

    def remember(self, step: Array, change: Array) -> _Memory:
        """With one more pair, if the function curves downwards along the step."""
        product = -(step @ change)
        fine = product > 1e-14 * jnp.linalg.norm(step) * jnp.linalg.norm(change)
        weight = 1.0 / jnp.where(fine, product, 1.0)
        pairs = ((self.steps, step), (self.changes, -change), (self.weights, weight))
        return _Memory(*(jnp.where(fine, jnp.concatenate([a[1:], b[None]]), a) for a, b in pairs))

    def direction(self, gradient: Array) -> Array:
        """-H^-1 gradient by the two loops of Nocedal (1980)."""

        def down(vector: Array, pair: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            step, change, weight = pair
            amount = weight * (step @ vector)
            return vector - amount * change, amount

        def up(vector: Array, pair: tuple[Array, Array, Array, Array]) -> tuple[Array, None]:
            step, change, weight, amount = pair
            return vector + (amount - weight * (change @ vector)) * step, None

        pairs = (self.steps, self.changes, self.weights)
        vector, amounts = jax.lax.scan(down, gradient, pairs, reverse=True)
        last = self.changes[-1] @ self.changes[-1]
        known = self.weights[-1] > 0.0
        size = 1.0 / jnp.where(known, self.weights[-1] * last, 1.0)
        vector = jnp.where(known, size, 1.0 / (1.0 + jnp.linalg.norm(gradient))) * vector
        vector, _ = jax.lax.scan(up, vector, (*pairs, amounts))
        return vector


def _quasi_newton(objective: Objective, start: Array) -> Climb:
    slope_at = jax.value_and_grad(objective)
    Loop = tuple[Array, Climb, Array, _Memory, Array]

    def more(loop: Loop) -> Array:
        count, _, _, _, going = loop
        return (count < 2 * STEPS) & going

    def body(loop: Loop) -> Loop:
        count, climb, gradient, memory, _ = loop
        direction = memory.direction(gradient)
        slope = gradient @ direction
        point, new, found = _search(objective, climb.point, climb.value, direction, slope)
        value, after = slope_at(point)
        memory = memory.remember(point - climb.point, after - gradient)
        going = found & (slope > _rounding(new))
        left = jnp.where(found, 0.0, slope)
        return count + 1, Climb(point, value, left, direction), after, memory, going

    value, gradient = slope_at(start)
    blank = jnp.zeros((MEMORY, start.size))
    memory = _Memory(blank, blank, jnp.zeros(MEMORY))
    first = Climb(start, value, jnp.zeros(()), jnp.zeros_like(start))
    loop = (jnp.zeros((), int), first, gradient, memory, jnp.array(True))
    _, climb, *_ = jax.lax.while_loop(more, body, loop)
    return climb
