"""The loop: steps in windows until the ELBO rests, then exactly, where that is affordable."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from lowerbound.ascent.rows.climb import STEPS, Point, State, begin, window
from lowerbound.ascent.rows.first_point import first_point
from lowerbound.ascent.rows.measure import measured
from lowerbound.ascent.rows.objective import Data, Objective, compiled
from lowerbound.ascent.rows.polish import draws_for, polished
from lowerbound.ascent.rows.row_batches import batch_size, indices, part_of
from lowerbound.bound.restricted import Restricted, narrowed
from lowerbound.bound.restricted import reason as narrow_reason
from lowerbound.errors import ZeroDensityError
from lowerbound.methods.parameters.em_value import EM

DRAWS = 8  # of a step, or two where it is dear
DEAR = 1e7  # operations of an evaluation
WORK = 4e11  # operations of all steps, where their number is not given
MOST_STEPS, LEAST_STEPS = 20_000, 1_000
RATES: tuple[float, ...] = (0.1, 0.03, 0.01, 0.003)  # tried in turn on the first windows
USUAL: tuple[float, ...] = (0.01,)  # where few steps can be afforded
MANY_STEPS = 3_200
LEAST_RATE = 1e-3
LOWER = 1.0 / 3.0  # the rate falls by this, each time that the ELBO rests
RESTING = 2  # windows without a gain


@dataclass(frozen=True, eq=False)
class EMRun:
    """Where a climb came to. `elbo` and its standard error are from fresh draws.

    `together` is the reason why all rows were taken at once, where fewer were wanted.
    """

    point: Point
    parameters: dict[str, np.ndarray]
    objective: Objective
    elbo: float
    elbo_error: float
    converged: bool
    stop_reason: str
    steps: int
    batch: int
    together: str | None
    history: np.ndarray
    seconds: np.ndarray
    notes: tuple[str, ...] = ()


def run_gradients(
    whole: Objective,
    method: EM,
    seed: int,
    watch: Callable[[int, int, float], None] = lambda done, total, elbo: None,
) -> EMRun:
    """Maximise the ELBO over the parameters and q; `watch` is told steps, their limit, the ELBO."""
    clock = time.perf_counter()
    work = whole.work()
    size = batch_size(whole, work, method.batch_size)
    part, together = part_of(whole, size, seed)
    share = work * (part.rows / max(whole.rows, 1) if whole.rows else 1.0)
    draws = method.draws or (DRAWS if share < DEAR else 2)
    limit = method.steps or steps_for(share, draws)
    data = jax.tree.map(np.asarray, whole.data())
    point = first_point(whole, method.rank, method.given, seed)
    climb = _Climb(part, whole.rows, data, draws + draws % 2, share, limit, seed, clock, watch)
    point, rested = climb.run(point, method)

    def at(width: float) -> Restricted:
        return measured(part, whole, _scaled(point, width), data, share, seed + 1)

    width, bound = narrowed(at)
    point = _scaled(point, width)
    rest = f"converged: the ELBO gains less than {method.tolerance:g} of itself, or than its noise,"
    reason = f"{rest} in {STEPS} of the shortest steps" if rested else f"{climb.steps} steps"
    converged = rested and width == 1.0
    reason = reason if width == 1.0 else narrow_reason(width)
    fixed = draws_for(whole, point, work) if part is whole and method.steps is None else 0
    if fixed:
        better, value, found = polished(whole, point, data, fixed, work, seed + 2)
        again: Restricted | None = None
        with contextlib.suppress(ZeroDensityError):
            again = measured(part, whole, better, data, share, seed + 1)
        if again is not None and again.elbo > bound.elbo - again.error - bound.error:
            point, bound, converged = better, again, found
            reason = f"the ELBO of {fixed} fixed draws, {value:.6g}, "
            reason = f"converged: {reason}is at its maximum" if found else f"{reason}still rises"
    values = {n: np.asarray(a) for n, a in whole.values(point.free).items()}
    return EMRun(
        point, values, whole, bound.elbo, bound.error, converged, reason, climb.steps, part.rows,
        together, np.array(climb.history), np.array(climb.seconds), bound.notes,
    )  # fmt: skip


def _scaled(point: Point, width: float) -> Point:
    """The same with all scales of q multiplied."""
    if width == 1.0:
        return point
    parts = (point.own, point.shared)
    own, shared = ({**p, "log_scale": p["log_scale"] + np.log(width)} for p in parts)
    return point._replace(own=own, shared=shared)


def steps_for(work: float, draws: int) -> int:
    """How many steps are affordable."""
    fitting = int(np.clip(WORK / (3.0 * work * draws), LEAST_STEPS, MOST_STEPS))
    return fitting // STEPS * STEPS


class _Climb:
    """Window after window of steps, with what they came to."""

    def __init__(
        self,
        part: Objective,
        total: int,
        data: Data,
        draws: int,
        work: float,
        limit: int,
        seed: int,
        clock: float,
        watch: Callable[[int, int, float], None],
    ) -> None:
        self.part, self.total, self.data = part, total, data
        self.limit, self.clock, self.watch = limit, clock, watch
        self.steps = 0
        self.history: list[float] = []
        self.seconds: list[float] = []
        self.program = compiled(window(part, total, draws), 3.0 * draws * work)
        self.key = jax.random.key(seed)
        self.rows = indices(total, part.rows, seed) if part.rows < total else None

    def window(self, state: State, rate: float) -> tuple[State, Point, float, float]:
        """One more window; its ELBO is that of the later half, with a standard error."""
        self.key, key = jax.random.split(self.key)
        index = None if self.rows is None else next(self.rows)
        state, average, values = self.program(state, index, key, np.asarray(rate), self.data)
        late = np.asarray(values)[STEPS // 2 :]
        self.steps += STEPS
        elbo, error = float(late.mean()), float(late.std() / np.sqrt(len(late)))
        return state, average, elbo, error

    def note(self, elbo: float) -> None:
        """Remember a window that counts."""
        self.history.append(elbo)
        self.seconds.append(time.perf_counter() - self.clock)
        self.watch(min(self.steps, self.limit), self.limit, elbo)

    def run(self, point: Point, method: EM) -> tuple[Point, bool]:
        """Steps until the ELBO rests at the smallest rate, or the limit."""
        state = begin(point, self.total)
        average, rate, best, state = self.first(state)
        resting = 0
        while self.steps < self.limit:
            state, average, elbo, error = self.window(state, rate)
            self.note(elbo)
            least = max(method.tolerance * abs(elbo), 2.0 * error)
            resting = resting + 1 if not elbo - best > least else 0
            best = max(best, elbo) if np.isfinite(elbo) else best
            if resting < RESTING:
                continue
            if rate <= LEAST_RATE:
                return _host(average), True
            rate, resting, best = max(LOWER * rate, LEAST_RATE), 0, elbo
        return _host(average), False

    def first(self, state: State) -> tuple[Point, float, float, State]:
        """The rate that gains most in the first windows; a usual one where steps are few."""
        rates, count = (RATES, 2) if self.limit >= MANY_STEPS else (USUAL, 1)
        tried = []
        for rate in rates:
            later, elbo = state, -np.inf
            for _ in range(count):
                later, average, elbo, _ = self.window(later, rate)
            tried.append((elbo if np.isfinite(elbo) else -np.inf, rate, later, average))
        elbo, rate, later, average = max(tried, key=lambda one: one[0])
        self.note(elbo)
        return average, rate, elbo, later


def _host(point: Point) -> Point:
    found: Point = jax.tree.map(np.asarray, point)
    return found
