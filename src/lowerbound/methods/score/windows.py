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

from lowerbound.ascent.adam import Free, log_q
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

_FIRST, _SECOND, _TINY = 0.9, 0.99, 1e-12


class Parameters(NamedTuple):
    """Those of q: logits of the discrete entries, and the Gaussian."""

    logits: Logits
    free: Free


class Ascending(NamedTuple):
    """The parameters, their average over a window, and the moments of the gradients."""

    now: Parameters
    average: Parameters
    first: Parameters
    second: Parameters
    steps: Array


def begin(now: Parameters) -> Ascending:
    """Before the first step."""
    zeros = jax.tree.map(jnp.zeros_like, now)
    return Ascending(now, now, zeros, zeros, jnp.zeros((), int))


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
        width = len(free["loc"]) + (free["factor"].shape[1] if "factor" in free else 0)
        half = jax.random.normal(keys[1], (draws // 2, width))
        noise = jnp.concatenate([half, -half])

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
        scale = jnp.exp(free["log_scale"])
        slope = {**slope, "loc": slope["loc"] * scale}
        fine = jnp.isfinite(value) & jnp.all(
            jnp.stack([jnp.all(jnp.isfinite(g)) for g in slope.values()])
        )
        slope = jax.tree.map(lambda g: jnp.where(fine, g, 0.0), slope)
        first, second, ahead = _adam(state, Parameters(gradient, slope))
        moved = {**ahead.free, "loc": ahead.free["loc"] * scale}
        new = jax.tree.map(lambda x, a: x + rate * a, free, moved)
        # A point where log p is not finite: come closer to the centre.
        new = jax.tree.map(lambda n, x: jnp.where(fine, n, x), new, free)
        new = {**new, "log_scale": new["log_scale"] - jnp.where(fine, 0.0, 0.5)}
        if local:
            logits = step_towards(logits, targets, rate)
        else:
            logits = jax.tree.map(lambda x, a: x + rate * a, logits, ahead.logits)
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


def _adam(state: Ascending, gradient: Parameters) -> tuple[Parameters, Parameters, Parameters]:
    """The moments after one more gradient, and the direction of the step (Kingma and Ba 2015)."""
    count = state.steps + 1
    first = jax.tree.map(lambda m, g: _FIRST * m + (1 - _FIRST) * g, state.first, gradient)
    second = jax.tree.map(lambda v, g: _SECOND * v + (1 - _SECOND) * g**2, state.second, gradient)
    ahead = jax.tree.map(
        lambda m, v: (m / (1 - _FIRST**count)) / (jnp.sqrt(v / (1 - _SECOND**count)) + _TINY),
        first,
        second,
    )
    return first, second, ahead
