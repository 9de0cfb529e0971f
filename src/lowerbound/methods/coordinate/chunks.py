"""Compiled chunks of sweeps, restarts in one batch, and what to say when a bound falls."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent import State
from lowerbound.bound import elbo
from lowerbound.compute.engine import Arrays, Engine
from lowerbound.errors import DecreasingBoundError, DecreasingBoundWarning
from lowerbound.family.exponential import ExponentialFamily
from lowerbound.family.factors.free import Free
from lowerbound.methods.coordinate.progress import (
    CHUNK,
    CONVERGED,
    FELL,
    NOT_FINITE,
    RUNNING,
    Carry,
    first_carry,
    host,
)


def rounding(dtype: np.dtype[Any]) -> float:
    """The relative fall of the ELBO that rounding can explain."""
    return 1e-10 if dtype == np.float64 else 1e-4


def advance(
    engine: Engine, arrays: Arrays, states: State, restarts: int
) -> Callable[..., tuple[Carry, Array, Array]]:
    """Compiled: run up to `limit` sweeps of all restarts, freezing those that have stopped.

    Also returns the ELBO of each sweep and whether each block's factors are proper densities.
    """
    key = ("advance", restarts)
    if key in engine.compiled:
        return engine.compiled[key]  # type: ignore[no-any-return]
    slack = rounding(engine.dtype)

    def sweep(arrays: Arrays, state: State) -> tuple[State, Array]:
        return engine.sweep(arrays, state)

    def many(arrays: Arrays, state: State) -> tuple[State, Array]:
        if restarts > 1:
            return jax.vmap(partial(sweep, arrays))(state)
        single = jax.tree.map(lambda a: a[0], state)
        new, bound = sweep(arrays, single)
        return jax.tree.map(lambda a: a[None], new), bound[None]

    def run(
        arrays: Arrays, carry: Carry, limit: Array, tolerance: Array
    ) -> tuple[Carry, Array, Array]:
        def body(loop: tuple[Array, Carry, Array]) -> tuple[Array, Carry, Array]:
            t, old, history = loop
            state, bound = many(arrays, old.state)
            going = old.status == RUNNING
            if restarts > 1:
                state = jax.tree.map(lambda new, kept: _choose(going, new, kept), state, old.state)
            bound = jnp.where(going, bound, old.elbo)
            size = jnp.maximum(abs(bound), 1.0)
            change = bound - old.elbo
            status = jnp.where(change <= tolerance * size, CONVERGED, RUNNING)
            status = jnp.where(tolerance == 0.0, RUNNING, status)
            status = jnp.where(change < -slack * size, FELL, status)
            status = jnp.where(jnp.isfinite(bound), status, NOT_FINITE)
            status = jnp.where(going, status, old.status)
            history = history.at[t].set(jnp.where(going, bound, jnp.nan))
            moved = jnp.where(going & (old.sweeps > 0), change / size, old.change)
            new = Carry(state, bound, moved, status, old.sweeps + going)
            return t + 1, new, history

        def more(loop: tuple[Array, Carry, Array]) -> Array:
            t, carry, _ = loop
            return (t < limit) & (carry.status == RUNNING).any()

        blank = jnp.full((CHUNK, restarts), jnp.nan)
        _, carry, history = jax.lax.while_loop(more, body, (jnp.zeros((), int), carry, blank))
        return carry, history, _proper(engine, carry.state, restarts)

    compiled: Callable[..., tuple[Carry, Array, Array]] = engine.compile(
        run, arrays, first_carry(states, restarts), np.asarray(1), np.zeros(()), within=State
    )
    engine.compiled[key] = compiled
    return compiled


def _proper(engine: Engine, state: State, restarts: int) -> Array:
    """Whether all factors of a block are proper densities, by restart and block."""
    alike: dict[ExponentialFamily, list[int]] = {}
    for number, family in enumerate(engine.family.families):
        alike.setdefault(family, []).append(number)
    found: dict[int, Array] = {}
    for family, numbers in alike.items():  # equal families at once: they compile once
        naturals = [state.naturals[number] for number in numbers]
        joined = jax.tree.map(lambda *each: jnp.concatenate(each), *naturals)
        if isinstance(family, Free):  # a batch compiles sooner than a map
            inside = family.copies(len(numbers) * restarts).in_domain(joined)
        else:
            inside = jax.vmap(family.in_domain)(joined)
        flat = inside.reshape(len(numbers), restarts, -1).all(2)
        found |= dict(zip(numbers, flat, strict=True))
    return jnp.stack([found[number] for number in range(len(found))], axis=1)


def _choose(going: Array, new: Array, kept: Array) -> Array:
    return jnp.where(going.reshape(going.shape + (1,) * (new.ndim - 1)), new, kept)


def taken(tree: Any, number: int) -> Any:
    """One restart of a batch, in the host's memory."""
    return jax.tree.map(lambda a: a[number], host(tree))


def report_fall(
    engine: Engine,
    arrays: Arrays,
    before: Carry,
    history: np.ndarray,
    done: int,
) -> None:
    """Say which block lowered the ELBO: an error in strict mode (tests), else a warning."""
    slack = rounding(engine.dtype)
    arrays, before = host((arrays, before))
    for restart in range(history.shape[1]):
        values = np.concatenate([[float(before.elbo[restart])], history[:, restart]])
        values = values[~np.isnan(values)]
        falls = np.flatnonzero(np.diff(values) < -slack * np.maximum(abs(values[1:]), 1.0))
        if not len(falls):
            continue
        sweep = int(falls[0])
        state = taken(before.state, restart)
        for _ in range(sweep):
            state, _ = engine.sweep(arrays, state)
        culprit = _culprit(engine, arrays, state)
        tell_fall(float(values[sweep]), float(values[sweep + 1]), done + sweep + 1, culprit)


def tell_fall(before: float, after: float, sweep: int, sites: tuple[str, ...] = ()) -> None:
    """A falling bound is an error in strict mode (tests), else a warning."""
    if os.environ.get("LOWERBOUND_STRICT"):
        raise DecreasingBoundError(before, after, sweep, sites)
    warnings.warn(DecreasingBoundWarning(before, after, sweep, sites), stacklevel=7)


def _culprit(engine: Engine, arrays: Arrays, state: State) -> tuple[str, ...]:
    """The block whose update lowers the ELBO most."""

    def bound(state: State) -> float:
        summands = engine.joint.summands
        return float(elbo(engine.family, summands, arrays, state.naturals, state.means))

    worst, name = 0.0, engine.joint.blocks[engine.sweep.order[0]].sites
    old = bound(state)
    for number in engine.sweep.order:
        state, _ = engine.sweep.update(arrays, state, number)
        new = bound(state)
        if new - old < worst:
            worst, name = new - old, engine.joint.blocks[number].sites
        old = new
    return name
