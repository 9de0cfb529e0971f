"""The loop that carries out every plan: bar, clock, history, checkpoints, interruption, warning."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax
import numpy as np

from lowerbound.compiled import partial_results_are_asked_for
from lowerbound.compute.threads import one_thread
from lowerbound.compute.versions import versions
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.fitted import Call, Fit
from lowerbound.result.latent_records import finite_values
from lowerbound.result.plan import Plan
from lowerbound.run.bar import Bar
from lowerbound.run.method import Method
from lowerbound.run.planned import Planned, Stepped, Trace
from lowerbound.run.problem import Problem
from lowerbound.run.resume import of_program
from lowerbound.store.checkpoint import Keeper

S = TypeVar("S")
BRISK = 0.25  # seconds: steps that take less become longer, so that the bar moves but not more


@dataclass(frozen=True, eq=False)
class Course(Generic[S]):
    """Where a run has come to, the values on the way, and why it is over."""

    state: S
    trace: Trace
    stop: Stop


def carry_out(
    planned: Planned[Any],
    method: Method,
    progress: bool | None = None,
    keep: Keeper | None = None,
    resumed: Mapping[str, Any] | None = None,
) -> Fit:
    """Run a plan from its start, or as it was `resumed`, until it has a reason to stop."""
    if planned.refusal is not None:
        raise planned.refusal
    with steadily():
        if keep is not None:
            keep = of_program(keep, planned.program)
        course = followed(planned, progress, keep, resumed)
        stop = course.stop
        answer = planned.finish(course.state, course.trace, stop)
    problem = planned.problem
    fit = as_fit(problem, planned.plan, planned.records, repr(method), answer, stop)
    return replace(fit, call=replace(fit.call, value=method))


@contextmanager
def steadily() -> Iterator[None]:
    """Double precision, one thread for small matrices, and no warnings of single numbers."""
    with jax.enable_x64(True), np.errstate(all="ignore"), one_thread():
        yield


def followed(
    stepped: Stepped[S],
    progress: bool | None = None,
    keep: Keeper | None = None,
    resumed: Mapping[str, Any] | None = None,
) -> Course[S]:
    """Take steps until there is a reason to stop, or one is interrupted: the one loop."""
    trace, stop, done = Trace(), None, 0
    if resumed is None:
        state = stepped.init()
    else:
        state, done = stepped.restored(resumed["state"]), resumed["done"]
        trace = Trace(resumed["values"], resumed["seconds"])
        stop = None if resumed["stop"] is None else Stop(**resumed["stop"])
    began = time.perf_counter() - (trace.seconds[-1] if len(trace.seconds) else 0.0)
    pace, longest = stepped.pace
    show = False if stepped.quiet else progress
    with Bar(show, stepped.total, stepped.title, stepped.unit) as bar:
        bar.update(done, "")
        try:
            while stop is None:
                due = done + pace if keep is None else min(done + pace, keep.next(done))
                before = time.perf_counter() - began
                state, info = stepped.step(state, due)
                now = time.perf_counter() - began
                trace = trace.with_values(info.values, before, now)
                done, stop = info.done, info.stop
                bar.update(done, info.text)
                if keep is not None and (stop is not None or done == keep.next(done - 1)):
                    keep.write(done, _document(stepped, state, done, trace, stop))
                # Processes, whose clocks differ, must take the same steps.
                if stepped.lockstep or now - before < BRISK:
                    pace = min(2 * pace, longest)
        except KeyboardInterrupt:
            if not done or not partial_results_are_asked_for():
                raise
            text = f"interrupted after {stepped.unit} {done}"
            stop = Stop(False, text, interrupted=True)
    return Course(state, trace, stop)


def as_fit(
    problem: Problem,
    plan: Plan,
    sites: dict[str, dict[str, Any]],
    method: str,
    answer: Answer,
    stop: Stop,
) -> Fit:
    """The record of a finished run."""
    args, kwargs = problem.call if answer.rows is None else answer.rows
    call = Call(problem.function, args, dict(kwargs), method, problem.seed, versions())
    answer = replace(answer, q=replace(answer.q, values=finite_values(sites)))
    return Fit(answer, stop, plan, call, sites)


def _document(
    stepped: Stepped[Any], state: Any, done: int, trace: Trace, stop: Stop | None
) -> dict[str, Any]:
    return {
        "state": stepped.document(state),
        "done": done,
        "values": np.asarray(trace.values),
        "seconds": np.asarray(trace.seconds),
        "stop": None if stop is None else dict(vars(stop)),
    }


def callers() -> int:
    """How many frames up the user's own line is, for a warning."""
    package, level, frame = str(Path(__file__).parent.parent), 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    return level
