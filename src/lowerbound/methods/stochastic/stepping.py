"""Stochastic variational inference (alg:svi) on a problem: step, evaluate, and stop by the gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from lowerbound.ascent import State
from lowerbound.methods.coordinate.progress import host
from lowerbound.methods.stochastic.ahead import Ahead
from lowerbound.methods.stochastic.batched import SVI
from lowerbound.methods.stochastic.lap import Total, elbo_terms, lap_total
from lowerbound.methods.stochastic.on_batches import OnBatches, planned_on_batches
from lowerbound.methods.stochastic.opened import Reading
from lowerbound.methods.stochastic.passes import MORE, MOST_PASSES, SETTLED, optimum
from lowerbound.methods.stochastic.shared_factors import Before
from lowerbound.methods.stochastic.steps import (
    NOTHING,
    Clockwork,
    Run,
    advance,
    averaged,
    filled,
    first_carry,
    schedule_of,
)
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.posterior import History
from lowerbound.run.planned import Info, Planned, Trace
from lowerbound.run.problem import Problem
from lowerbound.source import Batches

PATIENCE = 4  # evaluations over which the gain is measured


def planned_steps(problem: Problem, method: SVI) -> Planned[Any]:
    """Steps on batches of the rows, augmented where batches need it to add up."""
    return planned_on_batches(problem, method, Stepping)


class Stepping(OnBatches[Run]):
    """Steps on batches until what is watched has settled, or the steps are over."""

    unit = "step"
    method: SVI

    def __init__(
        self, problem: Problem, reading: Reading, method: SVI, before: Before | None = None
    ) -> None:
        super().__init__(problem, reading, method, before)
        batches = reading.batches
        clock = self.clock = Clockwork.of(batches.total, batches.size, method.steps)
        self.total, self.pace = clock.limit, (clock.chunk, clock.chunk)
        self._summed: Total | None = None
        self.ahead = Ahead(
            lambda step: batches.chunks(step, clock.chunk, clock.limit, (clock.every,))
        )

    def how(self) -> str:
        """How rows are drawn and steps taken, in words."""
        method, batches = self.method, self.reading.batches
        step = "adaptive"
        if not isinstance(method.forgetting, str):
            step = f"(t + {method.delay:g})^-{method.forgetting:g}"
        kind = "without replacement" if method.sampling == "epochs" else "uniformly"
        return (
            f"draws {batches.size:,} of {batches.total:,} rows {kind}, scaled by "
            f"{batches.total / batches.size:.6g}; step {step}"
            + ("" if method.steps else ", then full ones on all rows")
        )

    @cached_property
    def fixed(self) -> dict[str, Any]:
        """The inputs that are the same for every batch."""
        return self.setting.batch.fixed

    def init(self) -> Run:
        """Before the first step."""
        schedule = schedule_of(self.method)
        return Run(first_carry(self.setting.batch, schedule, self.first_state()))

    def step(self, state: Run, until: int) -> tuple[Run, Info]:
        """A chunk of steps, which changes no number by where it ends; or a pass over all rows."""
        if state.why:
            return self._passed(state)
        batch, clock, batches = self.setting.batch, self.clock, self.reading.batches
        inputs = batch.inputs(self.ahead.take(state.done, until))
        steps = len(next(iter(inputs.values())))
        inputs = {n: filled(a, clock.chunk) for n, a in inputs.items()}
        # One sum from chunk to chunk: their length does not change its rounding.
        scale = np.asarray(batches.total / batches.size)
        rest = (self.fixed, state.carry, state.bounds, np.asarray(steps), scale)
        schedule = schedule_of(self.method)
        carry, bounds = advance(batch, schedule, self.reading.where, inputs, *rest)
        new, values = replace(state, carry=carry, done=state.done + steps, bounds=bounds), []
        if new.done % clock.every == 0 or new.done >= clock.limit:
            values = [float(bounds) / (new.done % clock.every or clock.every)]
            latest = values[0] if self.score is None else self.score(host(self._result(new)))
            new = replace(new, bounds=NOTHING, watched=np.append(new.watched, latest))
        stop = self._stop(new) if values else None
        if stop is not None and stop.converged and self._ends_with_passes(new):
            self.ahead.close()  # a pass reads the same source
            last = self._result(new)
            carry = new.carry._replace(state=last)
            new, stop = replace(new, carry=carry, why=stop.text), None
        return new, Info(new.done, np.asarray(values), self._text(new), stop)

    # -- full steps -------------------------------------------------------------------------------

    def _ends_with_passes(self, state: Run) -> bool:
        """Whether as many rows as there are have been read, and nobody said how many to read."""
        batches = self.reading.batches
        return self.method.steps is None and state.done * batches.size >= batches.total

    @cached_property
    def _all_rows(self) -> Batches:
        """The rows in passes: those set aside to stop by have done their work by then."""
        batches = self.reading.batches
        return replace(batches, held_out=0) if self.method.monitor == "auto" else batches

    def _passed(self, state: Run) -> tuple[Run, Info]:
        """A pass over all rows, and the optimum of the global factors for what it has summed."""
        total = self._lap(state.carry.state)
        before = sum(elbo_terms(total, state.carry.state).values())
        last, bound = optimum(total, state.carry.state)
        carry, passes = state.carry._replace(state=last), state.passes + 1
        new, gain = replace(state, carry=carry, passes=passes), bound - before
        alone = not self.setting.batch.rows.local
        stop = None
        if alone or gain <= SETTLED or passes >= self._most_passes(state):
            kind = "a full step" if passes == 1 else f"{passes} full steps"
            left = "" if alone else f", the last of which gained {gain:.2g} nats"
            stop = Stop(True, f"{state.why}; then {kind} on all rows{left}")
        return new, Info(state.done, np.zeros(0), f"ELBO {bound:.6g}", stop)

    def _most_passes(self, state: Run) -> int:
        """As many as take some times what the small steps have taken, or a few."""
        batches = self.reading.batches
        return max(MOST_PASSES, MORE * state.done * batches.size // batches.total)

    def _lap(self, state: State) -> Total:
        """Sums over all rows at some global factors; kept where they are the same at any."""
        if self._summed is not None:
            return self._summed
        weighted, where = self.setting.weighted(), self.reading.where
        found = lap_total(weighted, self._all_rows.lap(), self.setting.share, state, where)
        if not self.setting.batch.rows.local:
            self._summed = found
        return found

    # -- the end ----------------------------------------------------------------------------------

    def _text(self, state: Run) -> str:
        if not len(state.watched):
            return ""
        if self.judged:
            return f"held-out {state.watched[-1]:.5g} nats/row"
        return f"noisy ELBO {state.watched[-1]:.6g}"

    def _stop(self, state: Run) -> Stop | None:
        """Why the run is over after an evaluation: the gain is small, or the steps are over."""
        method, values, limit = self.method, state.watched, self.clock.limit
        if method.least_gain > 0 and len(values) > PATIENCE:
            gain, size = values[-1] - values[-1 - PATIENCE], max(abs(values[-1]), 1e-12)
            if gain <= method.least_gain * size:
                what = "held-out log predictive" if self.judged else "noisy ELBO"
                return Stop(
                    True,
                    f"relative gain {gain / size:.1e} of the {what} over the last {PATIENCE} "
                    f"evaluations, at step {state.done}, is within the tolerance "
                    f"{method.least_gain:g}",
                )
        if state.done < limit:
            return None
        if method.steps:
            return Stop(False, f"ran the {limit} steps")
        remedy = "Give more with steps=..., or loosen tolerance."
        return Stop(False, f"reached the limit of {limit} steps", remedy)

    def _result(self, state: Run) -> State:
        """The global factors that the run would return now: the last ones, or their average."""
        if self.method.details.average and not state.why:
            return averaged(self.setting.batch, state.carry)
        return state.carry.state

    def finish(self, state: Run, trace: Trace, stop: Stop) -> Answer:
        """The global factors, and their bound for all rows or for as many as were seen."""
        self.ahead.close()
        last = self.checked(self.setting.batch, self._result(state))
        clock, count = self.clock, len(trace.values)
        ends = np.minimum(clock.every * np.arange(1, count + 1), clock.limit)
        held_out = state.watched if self.judged else np.zeros(0)
        rows = self.reading.batches.size * ends
        history = History(trace.values, trace.seconds, held_out, rows)
        total = self._lap(last) if state.why else self._total(state.done, last)
        return self.answer(last, total, history, state.done, stop)

    def _total(self, done: int, state: State) -> Total:
        """Sums over all rows; over as many as the run has seen where that is fewer."""
        setting, batches = self.setting, self.reading.batches
        weighted, where = setting.weighted(), setting.reading.where
        count = max(done, 2)  # one batch alone says nothing of the error
        if count * batches.size >= batches.total:
            return lap_total(weighted, batches.lap(), setting.share, state, where)
        drawn = batches.chunks(done, 1, done + count)
        laps = ({n: a[0] for n, a in chunk.items()} for chunk in drawn)
        return lap_total(weighted, laps, setting.share, state, where, sampled=batches.total)

    def document(self, state: Run) -> dict[str, Any]:
        """A state as arrays and plain values."""
        return state.document()

    def restored(self, document: Mapping[str, Any]) -> Run:
        """The state that a checkpoint holds."""
        return Run.restored(document)
