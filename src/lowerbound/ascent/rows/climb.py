"""Stochastic steps of parameters and q together (Adam; Kingma and Ba 2015), in windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent.adam import direction, moments, usable
from lowerbound.ascent.few_draws import by_scale
from lowerbound.ascent.rows.objective import Data, Free, Objective
from lowerbound.ascent.rows.row_gaussians import Block

STEPS = 100  # of a window
_NARROWER = 0.5  # of log scales, where log p is not finite at a draw


class Point(NamedTuple):
    """Parameters, the q of every row, and the q that the rows share."""

    free: Free
    own: Block
    shared: Block


class State(NamedTuple):
    """A point, the moments of its gradients, and how often each part of it was moved."""

    now: Point
    first: Point
    second: Point
    counts: Array  # (rows,)
    steps: Array


def begin(now: Point, rows: int) -> State:
    """Before the first step."""
    zeros = jax.tree.map(lambda a: np.zeros(np.shape(a)), now)
    none: Any = np.zeros((), int)
    counts: Any = np.zeros(rows, int)
    return State(now, zeros, zeros, counts, none)


def window(
    objective: Objective, total: int, draws: int, moving: bool = True
) -> Callable[..., tuple[State, Point, Array]]:
    """A run of steps: (state, index, key, rate, data) -> state, average of iterates, ELBOs.

    `index` (steps, batch) are the rows of each step; where these are all, in order, None.
    `moving=False` leaves all but the q of the rows as they are.
    """
    batch = objective.rows
    weights = None if batch == total else jnp.full(batch, total / max(batch, 1))

    def step(state: State, index: Array | None, key: Array, rate: Array, data: Data) -> Any:
        here = state if index is None else _rows(state, index)
        noise = _noise(key, draws, here.now)
        given = data if index is None else objective.take(data, index)

        def bound(point: Point) -> Array:
            return jnp.mean(objective.bounds(*point, noise, given, weights))

        value, slope = jax.value_and_grad(bound)(here.now)
        fine, slope = usable(value, _by_scale(slope, here.now))
        counts, steps = here.counts + 1, here.steps + 1
        first, second = moments(here.first, here.second, slope)
        ahead = _ahead(first, second, counts, steps)
        ahead = _by_scale(ahead, here.now)
        go = jnp.where(fine, rate, 0.0)
        still = go if moving else jnp.zeros(())
        now = Point(
            jax.tree.map(lambda x, a: x + still * a, here.now.free, ahead.free),
            jax.tree.map(lambda x, a: x + go * a, here.now.own, ahead.own),
            jax.tree.map(lambda x, a: x + still * a, here.now.shared, ahead.shared),
        )
        narrower = jnp.where(fine, 0.0, _NARROWER)
        now = now._replace(own={**now.own, "log_scale": now.own["log_scale"] - narrower})
        if moving:
            shared = {**now.shared, "log_scale": now.shared["log_scale"] - narrower}
            now = now._replace(shared=shared)
        found = State(now, first, second, counts, steps)
        found = found if index is None else _put(state, found, index)
        return found, jnp.where(fine, value, -jnp.inf)

    def run(
        state: State, index: Array | None, key: Array, rate: Array, data: Data
    ) -> tuple[State, Point, Array]:
        def body(
            carry: tuple[State, Point], each: tuple[Array | None, Array]
        ) -> tuple[tuple[State, Point], Array]:
            state, value = step(carry[0], *each, rate, data)
            # Rows of a batch have moved, the others wait: only what is shared has an average.
            now = state.now if index is None else state.now._replace(own=carry[1].own)
            return (state, jax.tree.map(jnp.add, carry[1], now)), value

        keys = jax.random.split(key, STEPS)
        zeros = jax.tree.map(jnp.zeros_like, state.now)
        (state, sums), values = jax.lax.scan(body, (state, zeros), (index, keys))
        average = jax.tree.map(lambda a: a / STEPS, sums)
        return state, average if index is None else average._replace(own=state.now.own), values

    return run


def _noise(key: Array, draws: int, point: Point) -> tuple[Array, Array]:
    """Standard normal numbers in pairs e, -e."""
    keys = jax.random.split(key)

    def pairs(key: Array, shape: tuple[int, ...]) -> Array:
        half = jax.random.normal(key, (draws // 2, *shape))
        return jnp.concatenate([half, -half])

    return pairs(keys[0], point.own["loc"].shape), pairs(keys[1], point.shared["loc"].shape)


def _by_scale(tree: Point, point: Point) -> Point:
    """Means are measured by their own scales, before and after a step."""
    return Point(tree.free, by_scale(tree.own, point.own), by_scale(tree.shared, point.shared))


def _ahead(first: Point, second: Point, counts: Array, steps: Array) -> Point:
    """The direction of a step; rows have come their own number of steps."""

    def one(m: Array, v: Array, count: Array) -> Array:
        return direction(m, v, count.reshape(count.shape + (1,) * (m.ndim - count.ndim)))

    def all_of(first: Any, second: Any, count: Array) -> Any:
        return jax.tree.map(lambda m, v: one(m, v, count), first, second)

    return Point(
        all_of(first.free, second.free, steps),
        all_of(first.own, second.own, counts),
        all_of(first.shared, second.shared, steps),
    )


def _rows(state: State, index: Array) -> State:
    """The state with some of the rows alone."""

    def some(point: Point) -> Point:
        return point._replace(own=jax.tree.map(lambda a: a[index], point.own))

    return State(
        some(state.now),
        some(state.first),
        some(state.second),
        state.counts[index],
        state.steps,
    )


def _put(state: State, found: State, index: Array) -> State:
    """The state after a step of some of the rows."""

    def whole(old: Point, new: Point) -> Point:
        own = jax.tree.map(lambda a, b: a.at[index].set(b), old.own, new.own)
        return new._replace(own=own)

    return State(
        whole(state.now, found.now),
        whole(state.first, found.first),
        whole(state.second, found.second),
        state.counts.at[index].set(found.counts),
        found.steps,
    )
