"""Full steps on all rows, with which steps on batches end.

What small steps leave is noise: a mean may be a posterior sd off when the held-out rows say nothing
of it any more. The optimum of the global factors for sums over all rows (a step of one, alg:cavi)
has none, and takes a pass for each, or one in all where rows have no factors of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from lowerbound.ascent import State
from lowerbound.compiled import jit
from lowerbound.methods.coordinate.progress import host
from lowerbound.methods.stochastic.lap import Total

SETTLED = 0.01  # nats that a pass gains, below which nothing is left to gain
MOST_PASSES, MORE = 5, 2  # or so many times the passes that small steps have taken
MOST_SWEEPS = 500  # over the global factors, with the sums held fixed
STILL = 1e-10  # of the bound that a sweep gains, relatively, at the optimum for these sums


def optimum(total: Total, state: State) -> tuple[State, float]:
    """The global factors that are best for some sums over all rows, and their bound."""
    batch = total.batch
    compiled = batch.rows.engine.compiled
    key = ("optimum for sums", tuple(batch.prior))
    if key not in compiled:

        def climb(arrays: Sequence[Array], state: State) -> Any:
            whole, first = batch.sweep(arrays, batch.shared.put(state))

            def rising(loop: Any) -> Array:
                _, bound, gain, count = loop
                rises: Array = gain > STILL * jnp.maximum(abs(bound), 1.0)
                return jnp.logical_and(rises, count < MOST_SWEEPS)

            def again(loop: Any) -> Any:
                whole, before, _, count = loop
                whole, bound = batch.sweep(arrays, whole)
                return whole, bound, bound - before, count + 1

            start = whole, first, jnp.full((), jnp.inf), jnp.ones((), int)
            whole, bound, _, _ = jax.lax.while_loop(rising, again, start)
            return batch.shared.take(whole), bound

        compiled[key] = jit(climb)
    found, bound = compiled[key]((*total.arrays, *total.sums), state)
    return host(found), float(bound) + sum(float(entropy) for entropy in total.entropies)
