"""Stochastic variational inference (alg:svi): the same model, a minibatch at a time.

Each step solves the local factors of a batch, sums their expected statistics, scales them by N/B
and moves the global factors towards the optimum for that "data set". Batches are a function of
the seed and the step, so that a run can stop and go on anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent import Adaptive, RobbinsMonro, Schedule, State
from lowerbound.ascent.schedule import StepState
from lowerbound.compute.devices import Placement
from lowerbound.compute.placed import compiled
from lowerbound.methods.coordinate.progress import host
from lowerbound.methods.stochastic.batched import SVI
from lowerbound.methods.stochastic.minibatch import Minibatch

CHUNK_ROWS = 65_536  # rows that one compiled chunk of steps works through
NOTHING = np.float64(0.0)
LATE = 8.0  # iterate t enters the average with a weight of about t^LATE


class Carry(NamedTuple):
    """Everything that a step carries: the global factors, their steps, and their average."""

    state: State
    steps: tuple[StepState, ...]
    average: tuple[dict[str, Array], ...]
    t: Any


@dataclass(frozen=True, eq=False)
class Run:
    """What a run has come to: all that a checkpoint holds."""

    carry: Carry
    done: int = 0
    watched: np.ndarray = field(default_factory=lambda: np.zeros(0))  # one value an evaluation
    bounds: Any = NOTHING  # the sum of noisy ELBOs since the last evaluation
    why: str = ""  # small steps are over, and full ones taken
    passes: int = 0  # of these

    def document(self) -> dict[str, Any]:
        """Arrays and plain values."""
        carry = host(self.carry)
        naturals, means = carry.state
        return {
            "naturals": naturals,
            "means": means,
            "steps": carry.steps,
            "average": carry.average,
            "done": self.done,
            "watched": self.watched,
            "bounds": host(self.bounds),
            "why": self.why,
            "passes": self.passes,
        }

    @classmethod
    def restored(cls, document: Mapping[str, Any]) -> Run:
        """As it was when `document` was written."""
        own = dict(document)
        state = State(own.pop("naturals"), own.pop("means"))
        steps, average = own.pop("steps"), own.pop("average")
        return cls(Carry(state, steps, average, np.asarray(own["done"])), **own)


def schedule_of(method: SVI) -> Schedule:
    """The schedule that the method names."""
    if isinstance(method.forgetting, str):
        return Adaptive()
    return RobbinsMonro(float(method.delay), float(method.forgetting))


def first_carry(batch: Minibatch, schedule: Schedule, state: State) -> Carry:
    """What the first step starts from."""
    names = [family.statistic_names for family in batch.shared.family.families]
    free = [{k: n[k] for k in own} for n, own in zip(state.naturals, names, strict=True)]
    steps = tuple(schedule.init(natural) for natural in free)
    return Carry(state, steps, tuple(free), jnp.zeros((), int))


def one_step(
    batch: Minibatch,
    schedule: Schedule,
    inputs: Mapping[str, Array],
    carry: Carry,
    scale: Array,
) -> tuple[Carry, Array]:
    """One step on a batch; also the noisy ELBO, as though the batch were repeated N/B times."""
    shared = batch.shared
    arrays = batch.compress(inputs)
    whole = shared.put(carry.state)
    local = batch.local(arrays, whole.means)
    sums, entropy = batch.expected(arrays, local)
    steps = {n: s["step"] for n, s in zip(shared.numbers, carry.steps, strict=True)}
    moved, bound = batch.sweep((*arrays, *(scale * s for s in sums)), whole, steps)
    state = shared.take(moved)
    after = tuple(
        schedule.after(step, carry.t, old, new)
        for step, old, new in zip(carry.steps, carry.state.naturals, state.naturals, strict=True)
    )
    share = (LATE + 1.0) / (carry.t + 1.0 + LATE)
    average = tuple(
        {k: a + share * (new[k] - a) for k, a in old.items()}
        for old, new in zip(carry.average, state.naturals, strict=True)
    )
    return Carry(state, after, average, carry.t + 1), bound + scale * entropy


def advance(
    batch: Minibatch,
    schedule: Schedule,
    where: Placement | None,
    inputs: Mapping[str, Any],
    *rest: Any,
) -> tuple[Carry, Array]:
    """`count` steps on the batches of a chunk; also the sum of their noisy ELBOs and earlier ones.

    `rest` are the inputs that all batches share, the carry, the earlier sum, the count, and N/B.
    """

    def run(
        inputs: Mapping[str, Array],
        fixed: Mapping[str, Array],
        carry: Carry,
        bounds: Array,
        count: Array,
        scale: Array,
    ) -> tuple[Carry, Array]:
        def body(i: Array, loop: tuple[Carry, Array]) -> tuple[Carry, Array]:
            carry, total = loop
            rows = {n: jax.lax.dynamic_index_in_dim(a, i, 0, False) for n, a in inputs.items()}
            new, bound = one_step(batch, schedule, {**fixed, **rows}, carry, scale)
            return new, total + bound

        last: tuple[Carry, Array] = jax.lax.fori_loop(0, count, body, (carry, bounds))
        return last

    length = len(next(iter(inputs.values())))
    key = ("svi", schedule, length, tuple(batch.prior))
    function = compiled(batch.rows.engine, where, key, run, 1, inputs, *rest)
    moved: tuple[Carry, Array] = function(inputs, *rest)
    return moved


def averaged(batch: Minibatch, carry: Carry) -> State:
    """The average of the late iterates of the global factors."""
    naturals = tuple(
        {**natural, **average}
        for natural, average in zip(carry.state.naturals, carry.average, strict=True)
    )
    return State(naturals, batch.shared.family.means(host(naturals)))


@dataclass(frozen=True)
class Clockwork:
    """When things happen: steps per chunk, per evaluation, and at most in all."""

    chunk: int
    every: int
    limit: int

    @classmethod
    def of(cls, total: int, size: int, steps: int | None) -> Clockwork:
        """Evaluations a quarter of a pass apart, and chunks of a size that suits the device."""
        limit = steps or max(200, 100 * -(-total // size))
        every = min(max(1, -(-total // (4 * size))), 64, limit)
        return cls(min(every, max(1, CHUNK_ROWS // size)), every, limit)


def filled(array: np.ndarray, steps: int) -> np.ndarray:
    """A chunk of the usual length; the batches added are never looked at."""
    short = steps - len(array)
    return array if short == 0 else np.concatenate([array, np.repeat(array[-1:], short, axis=0)])
