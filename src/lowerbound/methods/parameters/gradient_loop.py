"""The climb: steps in windows until the ELBO rests, at rates that get lower."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import jax
import numpy as np

from lowerbound.ascent.rows.climb import STEPS, Point, State, begin, window
from lowerbound.ascent.rows.measure import measured
from lowerbound.ascent.rows.objective import Data, Objective
from lowerbound.ascent.rows.row_batches import batch_size, indices, part_of
from lowerbound.bound.restricted import Restricted
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
class Budget:
    """What a climb of a program may take.

    work: operations of an evaluation over the rows of a step. limit: of steps.
    """

    work: float
    draws: int
    limit: int

    @classmethod
    def of(cls, whole: Objective, rows: int, method: EM) -> Budget:
        """For steps of some of the rows."""
        share = whole.work() * (rows / max(whole.rows, 1) if whole.rows else 1.0)
        draws = method.draws or (DRAWS if share < DEAR else 2)
        return cls(share, draws + draws % 2, method.steps or steps_for(share, draws))


def steps_for(work: float, draws: int) -> int:
    """How many steps are affordable."""
    fitting = int(np.clip(WORK / (3.0 * work * draws), LEAST_STEPS, MOST_STEPS))
    return fitting // STEPS * STEPS


@dataclass(frozen=True, eq=False)
class Ground:
    """What is climbed: the rows of a program, all or some at a time.

    together: the reason why all rows are taken at once, where fewer were wanted.
    """

    whole: Objective
    part: Objective
    together: str | None
    budget: Budget
    seed: int

    @classmethod
    def of(cls, whole: Objective, method: EM, seed: int) -> Ground:
        """As a method takes rows."""
        size = batch_size(whole, whole.work(), method.batch_size)
        part, together = part_of(whole, size, seed)
        return cls(whole, part, together, Budget.of(whole, part.rows, method), seed)

    @cached_property
    def data(self) -> Data:
        """The data of all rows."""
        return {name: np.asarray(array) for name, array in self.whole.data().items()}

    def measured(self, point: Point) -> Restricted:
        """The ELBO over fresh draws."""
        whole, work = self.whole, self.budget.work
        return measured(self.part, whole, point, self.data, work, self.seed + 1)


@dataclass(frozen=True)
class Stage:
    """Where a climb is after a window: the average of its iterates, and the ELBO of the window."""

    point: Point
    steps: int
    elbo: float
    rested: bool = False


def climbed(ground: Ground, point: Point, tolerance: float) -> Iterator[Stage]:
    """Windows of steps until the ELBO rests at the lowest rate, or the limit."""
    windows, limit = _Windows(ground), ground.budget.limit
    state, rate, stage = windows.first(begin(point, ground.whole.rows))
    best, resting = stage.elbo, 0
    yield stage
    while windows.steps < limit:
        state, average, elbo, error = windows.take(state, rate)
        least = max(tolerance * abs(elbo), 2.0 * error)
        resting = resting + 1 if not elbo - best > least else 0
        best = max(best, elbo) if np.isfinite(elbo) else best
        over = resting >= RESTING and rate <= LEAST_RATE
        yield Stage(_host(average), windows.steps, elbo, over)
        if over:
            return
        if resting >= RESTING:
            rate, resting, best = max(LOWER * rate, LEAST_RATE), 0, elbo


class _Windows:
    """Window after window of steps, each with random numbers and rows of its own."""

    def __init__(self, ground: Ground) -> None:
        part, total, budget = ground.part, ground.whole.rows, ground.budget
        draws = budget.draws
        self.limit, self.data, self.steps = budget.limit, ground.data, 0
        self.program = part.jitted(
            ("window", total, draws),
            lambda own: window(own, total, draws),
            3.0 * draws * budget.work,
        )
        self.key = jax.random.key(ground.seed)
        self.rows = indices(total, part.rows, ground.seed) if part.rows < total else None

    def take(self, state: State, rate: float) -> tuple[State, Point, float, float]:
        """One more window; its ELBO is that of the later half, with a standard error."""
        self.key, key = jax.random.split(self.key)
        index = None if self.rows is None else next(self.rows)
        state, average, values = self.program(state, index, key, np.asarray(rate), self.data)
        late = np.asarray(values)[STEPS // 2 :]
        self.steps += STEPS
        return state, average, float(late.mean()), float(late.std() / np.sqrt(len(late)))

    def first(self, state: State) -> tuple[State, float, Stage]:
        """The rate that gains most in the first windows; a usual one where steps are few."""
        rates, count = (RATES, 2) if self.limit >= MANY_STEPS else (USUAL, 1)
        tried = []
        for rate in rates:
            later, elbo = state, -np.inf
            for _ in range(count):
                later, average, elbo, _ = self.take(later, rate)
            tried.append((elbo if np.isfinite(elbo) else -np.inf, rate, later, average))
        elbo, rate, later, average = max(tried, key=lambda one: one[0])
        return later, rate, Stage(_host(average), self.steps, elbo)


def scaled(point: Point, width: float) -> Point:
    """The same with all scales of q multiplied."""
    if width == 1.0:
        return point
    parts = (point.own, point.shared)
    own, shared = ({**p, "log_scale": p["log_scale"] + np.log(width)} for p in parts)
    return point._replace(own=own, shared=shared)


def _host(point: Point) -> Point:
    found: Point = jax.tree.map(np.asarray, point)
    return found
