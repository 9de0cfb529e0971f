"""Windows of stochastic steps for q(z) q(u): discrete entries and a Gaussian at once.

Where every value of an entry can be tried, its logits take the natural-gradient step of the one
update towards their averaged targets; else they follow the score function by Adam, as the Gaussian
follows its reparameterised gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lowerbound.ascent.adam import Adam, ahead, usable
from lowerbound.ascent.few_draws import Free, by_scale, log_q, pairs, stepped
from lowerbound.ascent.rule import step_towards
from lowerbound.family.densities.score_product import entropy
from lowerbound.methods.score.finite_program import ScoreProgram
from lowerbound.methods.score.logit_gradients import (
    Logits,
    draw_cells,
    local_targets,
    score_gradient,
    whole,
)


class Parameters(NamedTuple):
    """Those of q: logits of the discrete entries, and the Gaussian."""

    logits: Logits
    free: Free


Ascending = Adam[Parameters]


def window(
    program: ScoreProgram,
    local: bool,
    state: Ascending,
    key: Array,
    rate: Array,
    steps: Array,
    data: Mapping[str, Any],
    draws: int,
) -> tuple[Ascending, Array]:
    """Some steps of one rate: the state, with the average of its iterates, and an ELBO.

    That is the mean ELBO of the later half; `steps` is even.
    """

    def step(state: Ascending, key: Array) -> tuple[Ascending, Array]:
        logits, free = state.now
        keys = jax.random.split(key)
        cells = draw_cells(logits, keys[0], draws)
        noise = pairs(free, keys[1], draws)

        def bound(free: Free) -> tuple[Array, tuple[Array, dict[str, Array]]]:
            vectors = jax.vmap(lambda e: point(free, e))(noise)
            terms = jax.vmap(lambda c, v: program.terms(c, v, data))(cells, vectors)
            fixed = jax.lax.stop_gradient(free)
            ratio = jax.vmap(whole)(terms) - jax.vmap(lambda v: log_q(fixed, v))(vectors)
            return jnp.mean(ratio), (vectors, terms)

        if len(free["loc"]):
            (value, (vectors, terms)), slope = jax.value_and_grad(bound, has_aux=True)(free)
        else:
            (value, (vectors, terms)), slope = bound(free), free
        elbo = value + sum(entropy(array) for array in logits.values())
        gradient: Logits
        if local:
            tried = jax.vmap(lambda c, v: local_targets(program, c, v, data))(cells, vectors)
            targets = jax.tree.map(lambda a: jnp.mean(a, axis=0), tried)
            gradient = jax.tree.map(jnp.zeros_like, logits)
        else:
            gradient = score_gradient(program, logits, cells, terms, plain=False)
            gradient = jax.tree.map(jnp.add, gradient, jax.grad(_entropies)(logits))
        fine, slope = usable(value, by_scale(slope, free))
        first, second, forward = ahead(state, Parameters(gradient, slope))
        new = stepped(free, forward.free, rate, fine)
        if local:
            logits = step_towards(logits, targets, rate)
        else:
            logits = jax.tree.map(lambda x, a: x + rate * a, logits, forward.logits)
        # Logits are known up to a constant; averages of iterates need the same one.
        logits = {n: a - jnp.mean(a, axis=-1, keepdims=True) for n, a in logits.items()}
        done = Ascending(Parameters(logits, new), state.average, first, second, state.steps + 1)
        return done, jnp.where(fine, elbo, -jnp.inf)

    def summed(
        number: Array, carry: tuple[Ascending, Parameters, Array]
    ) -> tuple[Ascending, Parameters, Array]:
        state, total, elbo = carry
        state, value = step(state, jax.random.fold_in(key, number))
        elbo += jnp.where(2 * number >= steps, value, 0.0)
        return state, jax.tree.map(jnp.add, total, state.now), elbo

    zeros = jax.tree.map(jnp.zeros_like, state.now)
    first = (state, zeros, jnp.zeros(()))
    state, total, elbo = jax.lax.fori_loop(0, steps, summed, first)
    average = jax.tree.map(lambda t: t / steps, total)
    return state._replace(average=average), elbo / (steps // 2)


def point(free: Free, noise: Array) -> Array:
    """The draw u of the Gaussian that belongs to standard normal noise."""
    size = len(free["loc"])
    moved = noise[:size]
    if "factor" in free:
        moved = moved + free["factor"] @ noise[size:]
    return free["loc"] + jnp.exp(free["log_scale"]) * moved


def _entropies(logits: Logits) -> Array:
    return sum((entropy(array) for array in logits.values()), start=jnp.zeros(()))
