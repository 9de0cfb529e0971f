"""Memoised variational inference on a problem: visit batches in turn until the ELBO has settled."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from lowerbound.compute.placed import compiled
from lowerbound.errors import DecreasingBoundError, DecreasingBoundWarning
from lowerbound.methods.coordinate.chunks import rounding
from lowerbound.methods.coordinate.progress import host
from lowerbound.methods.stochastic.ahead import Ahead
from lowerbound.methods.stochastic.batched import Memoized
from lowerbound.methods.stochastic.lap import Total, filler, lap_total, padded
from lowerbound.methods.stochastic.memoized import (
    Memory,
    first_memory,
    laps,
    total_of_memory,
    visit,
)
from lowerbound.methods.stochastic.minibatch import Minibatch
from lowerbound.methods.stochastic.on_batches import OnBatches, planned_on_batches
from lowerbound.methods.stochastic.opened import Reading
from lowerbound.methods.stochastic.shared_factors import Before
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.posterior import History
from lowerbound.run.planned import Info, Planned, Trace
from lowerbound.run.problem import Problem

PASSES = 1000  # at most, where no number of visits is given


def planned_visits(problem: Problem, method: Memoized) -> Planned[Any]:
    """Visits to batches of the rows, augmented where batches need it to add up."""
    return planned_on_batches(problem, method, Visiting)


class Visiting(OnBatches[Memory]):
    """Visits to batches in turn, pass after pass, until the ELBO has settled."""

    unit, purpose = "visit", "report"
    method: Memoized

    def __init__(
        self, problem: Problem, reading: Reading, method: Memoized, before: Before | None = None
    ) -> None:
        super().__init__(problem, reading, method, before)
        self.sizes = reading.batches.lap_sizes
        self.total = method.visits or PASSES * len(self.sizes)
        self.ahead = Ahead(lambda number: laps(reading.batches, number))

    def how(self) -> str:
        """How batches are visited, in words."""
        batches = self.reading.batches
        return (
            f"visits {len(batches.lap_sizes)} batches of {batches.size:,} rows in turn and keeps "
            "their statistics; step 1"
        )

    @cached_property
    def batch(self) -> Minibatch:
        """The model on a batch, with a weight for each row."""
        return self.setting.weighted()

    @cached_property
    def constants(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The inputs that are the same for every batch, and those of a row that does not count."""
        return self.batch.fixed, filler(self.batch)

    def init(self) -> Memory:
        """Before the first visit."""
        return first_memory(self.batch, self.first_state(), len(self.sizes))

    def step(self, state: Memory, until: int) -> tuple[Memory, Info]:
        """One visit."""
        new = self._visited(state)
        lap, number = divmod(state.visits, len(self.sizes))
        # The bound is exact from the last visit of the first pass on.
        slack = rounding(self.batch.rows.engine.dtype) * max(abs(new.bound), 1.0)
        fell = lap > 0 and new.bound < state.bound - slack
        if fell:
            _report(state.bound, new.bound, new.visits)
        values = []
        if number == len(self.sizes) - 1 or new.visits >= self.total:
            values = [new.bound]
            held_out = new.held_out
            if self.score is not None:
                held_out = np.append(held_out, self.score(host(new.state)))
            gain = new.bound - new.passed
            new = replace(new, held_out=held_out, gain=gain, passed=new.bound)
        text = f"ELBO {new.passed:.6g}" if not np.isnan(new.passed) else ""
        stop = self._stop(new, fell, bool(values))
        return new, Info(new.visits, np.asarray(values), text, stop)

    def _visited(self, state: Memory) -> Memory:
        """With the statistics of the next batch anew, and a full step of the global factors."""
        batch, batches, where = self.batch, self.reading.batches, self.reading.where
        lap, number = divmod(state.visits, len(self.sizes))
        total = state.summed() if number == 0 else state.total
        fixed, spare = self.constants
        own = {n: a[0] for n, a in self.ahead.take(state.visits, state.visits + 1).items()}
        inputs = padded(batch, own, self.setting.share, spare)
        old = state.memo[number]
        others = jax.tree.map(np.subtract, total, old)
        seen = 1.0 if lap else float(self.sizes[: number + 1].sum() / batches.total)
        rest = {"total": others, "known": np.asarray(lap > 0), "seen": np.asarray(seen)}
        args = (inputs, fixed, state.state, old, rest)
        key = ("visit", batches.size, tuple(batch.prior))

        def one(*args: Any) -> Any:
            return visit(batch, *args)

        moved, kept, bound = compiled(batch.rows.engine, where, key, one, 0, *args)(*args)
        kept = host(kept)
        return replace(
            state,
            state=moved,
            memo=(*state.memo[:number], kept, *state.memo[number + 1 :]),
            total=jax.tree.map(np.add, others, kept),
            visits=state.visits + 1,
            bound=float(bound),
        )

    def _stop(self, state: Memory, fell: bool, passed: bool) -> Stop | None:
        """Why the run is over after a visit, at the end of a pass or within one."""
        least, visits = self.method.least_gain, state.visits
        passes = -(-visits // len(self.sizes))
        if fell:
            return Stop(False, f"the ELBO fell at visit {visits}")
        size = max(abs(state.bound), 1.0)
        if passed and least > 0 and passes > 2 and state.gain <= least * size:
            return Stop(
                True,
                f"relative change {max(state.gain / size, 0.0):.1e} of the ELBO in pass {passes} "
                f"is within the tolerance {least:g}",
            )
        if visits < self.total:
            return None
        given = self.method.visits is not None
        remedy = "" if given else "Give more with visits=..., or loosen tolerance."
        return Stop(False, f"ran {visits} visits", remedy)

    def finish(self, state: Memory, trace: Trace, stop: Stop) -> Answer:
        """The global factors, and their bound from what is kept of all rows."""
        self.ahead.close()
        last, count = self.checked(self.batch, state.state), len(self.sizes)
        ends = np.minimum(count * np.arange(1, len(trace.values) + 1), self.total)
        before = np.concatenate([[0], np.cumsum(self.sizes)])
        rows = ends // count * self.reading.batches.total + before[ends % count]
        history = History(trace.values, trace.seconds, state.held_out, rows)
        return self.answer(last, self._total(state, last), history, state.visits, stop)

    def _total(self, state: Memory, last: Any) -> Total:
        if state.visits >= len(self.sizes):
            return total_of_memory(self.batch, state)
        # Not every row is in the sums.
        setting = self.setting
        return lap_total(
            self.batch, setting.reading.batches.lap(), setting.share, last, setting.reading.where
        )

    def document(self, state: Memory) -> dict[str, Any]:
        """A state as arrays and plain values."""
        return state.document()

    def restored(self, document: Mapping[str, Any]) -> Memory:
        """The state that a checkpoint holds."""
        return Memory.restored(document)


def _report(before: float, after: float, visits: int) -> None:
    details = (before, after, visits)
    if os.environ.get("LOWERBOUND_STRICT"):
        raise DecreasingBoundError(*details)
    warnings.warn(DecreasingBoundWarning(*details), stacklevel=7)
