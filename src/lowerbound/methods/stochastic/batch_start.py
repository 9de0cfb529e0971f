"""Where global factors start: what the first rows lead to, before any step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent import State
from lowerbound.compute.engine import Arrays, Engine
from lowerbound.methods.coordinate.begin import assignments, check_components, given_values
from lowerbound.methods.coordinate.start import Chance, chances, start
from lowerbound.methods.stochastic.batched import ByRows
from lowerbound.methods.stochastic.opened import Setting

TRIES, SWEEPS = 8, 20  # coordinate ascents on the first batch of a mixture, and their length
TRY_NUMBERS = 4_000_000  # responsibilities of all of them


def first_state(setting: Setting, method: ByRows, seed: int) -> State:
    """Global factors that a start on the first batch leads to, before any step.

    A mixture has many local optima: there it is the best of several short coordinate ascents.
    """
    model, batch = setting.reading.model, setting.batch
    engine = batch.rows.engine
    seeded = assignments(engine, model)
    if seeded is not None and not isinstance(method.init, Mapping):
        model, batch = setting.start_rows()
        engine = batch.rows.engine
    check_components(engine, model, seeded)
    given = {n: v - batch.origins.get(n, 0) for n, v in given_values(model, method).items()}
    how = method.init if isinstance(method.init, str) else "auto"
    tries, sweeps = 1, 0
    if seeded is not None and not given and how in ("auto", "k-means++", "rows"):
        tries, sweeps = max(1, min(TRIES, TRY_NUMBERS // responsibilities(engine, seeded))), SWEEPS
    chance = chances(engine, seed, tries, how, seeded)
    inputs = batch.example
    key = ("svi start", how, tuple(sorted(given)), seeded, tries)
    if key not in engine.compiled:

        def begin(inputs: Any, chance: Chance, given: Any) -> State:
            arrays: Arrays = batch.compress(inputs)

            def one(chance: Chance) -> tuple[State, Array]:
                state = start(engine, arrays, chance, how, given, seeded)

                def sweep(_: Array, loop: tuple[State, Array]) -> tuple[State, Array]:
                    return engine.sweep(arrays, loop[0])

                state, bound = jax.lax.fori_loop(0, sweeps, sweep, (state, jnp.zeros(())))
                return batch.shared.take(state), bound

            states, bounds = jax.lax.map(one, chance)
            best = jnp.argmax(jnp.where(jnp.isfinite(bounds), bounds, -jnp.inf))
            chosen: State = jax.tree.map(lambda a: a[best], states)
            return chosen

        engine.compiled[key] = engine.once(begin, inputs, chance, dict(given))
    state: State = engine.compiled[key](inputs, chance, dict(given))
    return doubled(state)


def responsibilities(engine: Engine, seeded: int) -> int:
    """How many numbers the assignments of a batch are."""
    return math.prod(engine.family.families[seeded].statistic_shapes()["indicator"])


def doubled(state: State) -> State:
    """Global factors are kept in double precision: they are small, and they accumulate."""

    def double(array: Any) -> Any:
        floating = np.issubdtype(array.dtype, np.floating)
        return np.asarray(array, dtype=float) if floating else np.asarray(array)

    doubles: State = jax.tree.map(double, state)
    return doubles
