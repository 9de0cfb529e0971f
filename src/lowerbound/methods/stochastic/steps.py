"""Stochastic variational inference (alg:svi): the same model, a minibatch at a time.

Each step solves the local factors of a batch, sums their expected statistics, scales them by N/B
and moves the global factors towards the optimum for that "data set". Batches are a function of
the seed and the step, so that a run can stop and go on anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent import Adaptive, RobbinsMonro, Schedule, State
from lowerbound.ascent.schedule import StepState
from lowerbound.compiled import partial_results_are_asked_for
from lowerbound.compute.devices import Placement
from lowerbound.compute.placed import compiled
from lowerbound.methods.coordinate.progress import host
from lowerbound.methods.stochastic.minibatch import Minibatch
from lowerbound.methods.values import SVI
from lowerbound.run.bar import Bar
from lowerbound.source.batches import Batches
from lowerbound.store.checkpoint import Keeper

CHUNK_ROWS = 65_536  # rows that one compiled chunk of steps works through
PATIENCE = 4  # evaluations over which the gain is measured
NOTHING = np.float64(0.0)
LATE = 8.0  # iterate t enters the average with a weight of about t^LATE


class Carry(NamedTuple):
    """Everything that a step carries: the global factors, their steps, and their average."""

    state: State
    steps: tuple[StepState, ...]
    average: tuple[dict[str, Array], ...]
    t: Any


@dataclass(frozen=True)
class Run:
    """What a run has come to: all that a checkpoint holds."""

    carry: Carry
    done: int
    elbo: np.ndarray  # noisy, one per evaluation
    held_out: np.ndarray
    seconds: np.ndarray
    rows: np.ndarray
    settled: bool = False
    bounds: Any = NOTHING  # the sum of noisy ELBOs since the last evaluation

    def document(self) -> dict[str, Any]:
        """Arrays and plain values."""
        carry = host(self.carry)
        own = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "carry"}
        naturals, means = carry.state
        return {
            **own,
            "bounds": host(self.bounds),
            "naturals": naturals,
            "means": means,
            "steps": carry.steps,
            "average": carry.average,
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


# --------------------------------------------------------------------------------------------------
# The loop


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


def run_steps(
    batch: Minibatch,
    batches: Batches,
    schedule: Schedule,
    method: SVI,
    clock: Clockwork,
    where: Placement | None,
    run: Run,
    score: Callable[[State], float] | None,
    keep: Keeper | None,
    show: bool | None,
) -> Run:
    """Step until the monitor has settled or the steps are over."""
    scale = np.asarray(batches.total / batches.size)
    began = time.perf_counter() - (run.seconds[-1] if len(run.seconds) else 0.0)
    fixed = batch.fixed
    with Bar(show, clock.limit, "SVI", "step") as bar:
        ends = (clock.every, *((keep.checkpoint.every,) if keep else ()))
        chunks = batches.chunks(run.done, clock.chunk, clock.limit, ends)
        try:
            for rows in chunks:
                inputs = batch.inputs(rows)
                steps = len(next(iter(inputs.values())))
                inputs = {n: _filled(a, clock.chunk) for n, a in inputs.items()}
                # One sum from chunk to chunk: their length does not change its rounding.
                rest = (fixed, run.carry, run.bounds, np.asarray(steps), scale)
                carry, bounds = advance(batch, schedule, where, inputs, *rest)
                run = replace(run, carry=carry, done=run.done + steps, bounds=bounds)
                if run.done % clock.every == 0 or run.done >= clock.limit:
                    bound = float(run.bounds) / (run.done % clock.every or clock.every)
                    run = replace(run, bounds=NOTHING)
                    run = _evaluated(batch, run, batches.size, bound, score, method, began)
                    bar.update(run.done, _latest(run))
                finished = run.settled or run.done >= clock.limit
                if keep is not None and (run.done == keep.next(run.done - steps) or finished):
                    keep.write(run.done, run.document())
                if run.settled:
                    break
        except KeyboardInterrupt:
            if not run.done or not partial_results_are_asked_for():
                raise
        chunks.close()
    return run


def _latest(run: Run) -> str:
    if len(run.held_out):
        return f"held-out {run.held_out[-1]:.5g} nats/row"
    return f"noisy ELBO {run.elbo[-1]:.6g}"


def _evaluated(
    batch: Minibatch,
    run: Run,
    size: int,
    bound: float,
    score: Callable[[State], float] | None,
    method: SVI,
    began: float,
) -> Run:
    """The run with its history one evaluation longer; settled when the gain is small."""
    held_out = run.held_out
    if score is not None:
        held_out = np.append(held_out, score(host(result_of(batch, run, method))))
    elbo = np.append(run.elbo, bound)
    values = held_out if score is not None else elbo
    settled = False
    if method.least_gain > 0 and len(values) > PATIENCE:
        gain = values[-1] - values[-1 - PATIENCE]
        settled = bool(gain <= method.least_gain * max(abs(values[-1]), 1e-12))
    return replace(
        run,
        elbo=elbo,
        held_out=held_out,
        seconds=np.append(run.seconds, time.perf_counter() - began),
        rows=np.append(run.rows, run.done * size),
        settled=settled,
    )


def result_of(batch: Minibatch, run: Run, method: SVI) -> State:
    """The global factors that the run would return now: the last ones, or their average."""
    state = run.carry.state
    if not method.average:
        return state
    naturals = tuple(
        {**natural, **average}
        for natural, average in zip(state.naturals, run.carry.average, strict=True)
    )
    return State(naturals, batch.shared.family.means(host(naturals)))


def stop_reason(run: Run, method: SVI, clock: Clockwork) -> str:
    """Why the run stopped, in words."""
    what = "held-out log predictive" if len(run.held_out) else "noisy ELBO"
    if run.settled:
        values = run.held_out if len(run.held_out) else run.elbo
        gain = (values[-1] - values[-1 - PATIENCE]) / max(abs(values[-1]), 1e-12)
        return (
            f"converged: relative gain {gain:.1e} of the {what} over the last {PATIENCE} "
            f"evaluations, at step {run.done}, is within the tolerance {method.least_gain:g}"
        )
    if run.done < clock.limit:
        return f"stopped: interrupted after step {run.done}"
    asked = "ran the" if method.steps else "reached the limit of"
    return f"stopped: {asked} {clock.limit} steps"


def _filled(array: np.ndarray, steps: int) -> np.ndarray:
    """A chunk of the usual length; the batches added are never looked at."""
    short = steps - len(array)
    return array if short == 0 else np.concatenate([array, np.repeat(array[-1:], short, axis=0)])
