"""The steps of variational EM: parameters and q in turn, compiled, until the ELBO settles.

Every third step extrapolates the parameters (Varadhan and Roland, 2008) and is taken back unless
the ELBO gains, so that the ELBO never falls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent import State
from lowerbound.ascent.maximise import FEW, maximise
from lowerbound.compute.engine import Engine
from lowerbound.methods.coordinate.chunks import rounding
from lowerbound.methods.coordinate.parameter_bound import Ascent, Space
from lowerbound.methods.coordinate.progress import CHUNK, CONVERGED, FELL, NOT_FINITE, RUNNING
from lowerbound.methods.coordinate.start import Chance, chances, start
from lowerbound.methods.coordinate.sweeping import Start
from lowerbound.rewrite.parameters import FURTHEST

UNBOUNDED = 5  # a status beside those of progress: a parameter has run away
SWEEPS_BEFORE = 10  # of q alone, at the starting values of the parameters
LOST = 1e-6  # a relative gain that the M step sees but cannot reach


class Carry(NamedTuple):
    """Everything that a chunk of steps carries.

    `phase` is below 0 while q alone is updated, 0 and 1 for EM steps, 2 for the extrapolation;
    `origin` and `step` are the vector before the EM step of phase 0 and how that moved it, `reach`
    the longest extrapolation, `before` the ELBO when the cycle began, `change` that of the ELBO in
    the last one, relative; `culprit` the entry of the vector that has run away.
    """

    state: State
    vector: Array
    elbo: Array
    status: Array
    sweeps: Array
    phase: Array
    origin: Array
    step: Array
    reach: Array
    before: Array
    change: Array
    culprit: Array


def first_carry(engine: Engine, state: State, vector: Any) -> Carry:
    """What the first chunk starts from; `state` may be shapes only."""
    blocks = engine.joint.blocks
    alone = 1 if len(blocks) == 1 and not blocks[0].sequential else SWEEPS_BEFORE
    low: Any = np.asarray(-np.inf)
    zero: Any = np.zeros((), int)
    phase: Any = np.asarray(-alone)
    reach: Any = np.asarray(4.0)
    none: Any = np.zeros_like(vector)
    return Carry(state, vector, low, zero, zero, phase, none, none, reach, low, reach, zero)


def advance(
    ascent: Ascent, inputs: Mapping[str, Any], carry: Carry
) -> Callable[..., tuple[Carry, Array]]:
    """Compiled: up to `limit` steps, each a new vector of parameters and a sweep given it."""
    engine, space = ascent.engine, ascent.space
    key = ("em", space.key)
    if key in engine.compiled:
        return engine.compiled[key]  # type: ignore[no-any-return]
    slack = rounding(engine.dtype)
    constrained = space.constrained()

    def stay(inputs: Mapping[str, Array], old: Carry) -> tuple[Array, Array, Array]:
        return old.vector, jnp.zeros((), int), jnp.array(False)

    def climb(inputs: Mapping[str, Array], old: Carry) -> tuple[Array, Array, Array]:
        found = maximise(ascent.objective(inputs, old.vector, old.state), old.vector)
        lost = found.gain > LOST * (1.0 + abs(old.elbo))
        return found.point, jnp.argmax(abs(found.direction)), lost

    def leap(inputs: Mapping[str, Array], old: Carry) -> tuple[Array, Array, Array]:
        far = old.origin + 2.0 * _length(old) * old.step + _length(old) ** 2 * _bend(old)
        inside = (~constrained | (abs(far) < FURTHEST)).all() & jnp.isfinite(far).all()
        return jnp.where(inside, far, old.vector), jnp.zeros((), int), jnp.array(False)

    def run(
        inputs: Mapping[str, Array], carry: Carry, limit: Array, tolerance: Array
    ) -> tuple[Carry, Array]:
        def body(loop: tuple[Array, Carry, Array]) -> tuple[Array, Carry, Array]:
            t, old, history = loop
            branch = jnp.clip(old.phase // 2 + 1, 0, 2)
            vector, culprit, lost = jax.lax.switch(branch, (stay, climb, leap), inputs, old)
            state, bound = engine.sweep(ascent.arrays(inputs, vector), old.state)
            leaping, em = old.phase == 2, old.phase >= 0
            taken = ~leaping | (bound >= old.elbo)
            state = jax.tree.map(lambda new, kept: jnp.where(taken, new, kept), state, old.state)
            bound = jnp.where(taken, bound, old.elbo)
            size = jnp.maximum(abs(bound), 1.0)
            change = (bound - old.before) / size
            settled = (tolerance > 0.0) & (bound - old.before <= tolerance * size)
            status = jnp.where(leaping & settled, CONVERGED, RUNNING)
            status = jnp.where(bound - old.elbo < -slack * size, FELL, status)
            status = jnp.where(jnp.isfinite(bound), status, NOT_FINITE)
            outside = constrained & (abs(vector) > 2.0 * FURTHEST)
            culprit = jnp.where(outside.any(), jnp.argmax(outside), culprit)
            status = jnp.where(lost | outside.any(), UNBOUNDED, status)
            reached = leaping & taken & (_length(old) >= old.reach)
            failed = leaping & ~taken
            new = Carry(
                state=state,
                vector=jnp.where(taken, vector, old.vector),
                elbo=bound,
                status=status,
                sweeps=old.sweeps + 1,
                phase=jnp.where(leaping, 0, old.phase + 1),
                origin=jnp.where(old.phase == 0, old.vector, old.origin),
                step=jnp.where(old.phase == 0, vector - old.vector, old.step),
                reach=old.reach * jnp.where(reached, 4.0, jnp.where(failed, 0.5, 1.0)),
                before=jnp.where(leaping | ~em, bound, old.before),
                change=jnp.where(leaping, change, old.change),
                culprit=culprit,
            )
            new = new._replace(reach=jnp.maximum(new.reach, 2.0))
            return t + 1, new, history.at[t].set(bound)

        def more(loop: tuple[Array, Carry, Array]) -> Array:
            t, carry, _ = loop
            return (t < limit) & (carry.status == RUNNING)

        blank = jnp.full(CHUNK, jnp.nan)
        _, carry, history = jax.lax.while_loop(more, body, (jnp.zeros((), int), carry, blank))
        return carry, history

    compiled: Callable[..., tuple[Carry, Array]] = engine.compile(
        run, dict(inputs), carry, np.asarray(1), np.zeros(())
    )
    engine.compiled[key] = compiled
    return compiled


def _bend(carry: Carry) -> Array:
    """How the second EM step differs from the first."""
    return carry.vector - carry.origin - 2.0 * carry.step


def _length(carry: Carry) -> Array:
    """The length of the extrapolation; 1 goes no further than the second EM step."""
    scale = 1.0 + abs(carry.vector)
    step, bend = jnp.linalg.norm(carry.step / scale), jnp.linalg.norm(_bend(carry) / scale)
    return jnp.clip(step / jnp.maximum(bend, 1e-300), 1.0, carry.reach)


def starts(
    ascent: Ascent, inputs: Mapping[str, Array], spaces: Sequence[Space], how: Start, seed: int
) -> tuple[Carry, ...]:
    """What every restart begins with."""
    engine, kind, given, seeded = ascent.engine, how.how, how.given, how.seeded
    key = ("em start", ascent.space.key, kind, tuple(sorted(given)), seeded)
    drawn = chances(engine, seed, how.restarts, kind, seeded)
    each = [jax.tree.map(lambda a, n=n: a[n], drawn) for n in range(how.restarts)]
    vectors = [space.start() for space in spaces]
    arguments = [
        (dict(inputs), v, chance, dict(given)) for v, chance in zip(vectors, each, strict=True)
    ]
    if key not in engine.compiled:

        def begin(
            inputs: Mapping[str, Array], vector: Array, chance: Chance, given: Mapping[str, Any]
        ) -> State:
            return start(engine, ascent.arrays(inputs, vector), chance, kind, given, seeded)

        engine.compiled[key] = engine.once(begin, *arguments[0])
        shapes = engine.compiled[key].shapes
        # The steps and the check after them compile at the same time.
        advance(ascent, inputs, first_carry(engine, shapes, vectors[0]))
        if vectors[0].size <= FEW:
            ascent.curvature(inputs, vectors[0], shapes)
    state_of = engine.compiled[key]
    return tuple(first_carry(engine, state_of(*own), own[1]) for own in arguments)
