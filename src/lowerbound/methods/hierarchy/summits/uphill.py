"""To the mode of a surface by quasi-Newton steps (BFGS) whose evaluations are dear."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from lowerbound.cost.memory import handed_back
from lowerbound.errors import NoFiniteStartError
from lowerbound.methods.hierarchy.surface import Solved, Surface

T = TypeVar("T")
Walk = Generator[np.ndarray, Solved, T]  # places one after the other, each known when solved

NEAR = 0.02  # nats that a full step would still gain, twice: what is left is a tenth of an sd
MOST = 80  # evaluations of a climb
LONGEST = 2.0  # step of any coordinate: hyperparameters are logarithms and the like
POOR = 0.1  # of the gain that a step promised: the curvature is looked at again
BESIDE = 0.1  # how far from a point its curvature is looked at
FLAT = 0.25  # the least curvature that a step is measured by
TOGETHER = 4  # solves that start from the same knowledge
DEAR = 0.03  # seconds of a solve that is worth a thread
LARGE = 0.2  # and of one that leaves much memory behind
AROUND = 24  # solves, by which others are foreseen
FAR, STRAIGHT = 4.0, 10.0  # sds, over which solutions bend; and how far they go straight
STIFF = 1e-6  # of the squares of their differences, that are not foreseen at all
UNSURE = 0.5  # of the square of a bend, that is foreseen no better
SHRINK = 0.25  # after a step to where there is no value


@dataclass(eq=False)
class Evaluated:
    """A surface with all that is known of it. Each solve starts from what is known around it."""

    surface: Surface
    known: list[Solved] = field(default_factory=list)
    scales: np.ndarray | None = None  # of t, for what is near
    seconds: float = 0.0  # of the last solve
    taken: float = 0.0  # seconds of all of them

    def at(self, t: np.ndarray, *, slope: bool = False) -> Solved:
        """Solve at t; where there is no answer, the value is -inf."""
        return next(self.several([t], slope=slope))

    def several(self, places: Sequence[np.ndarray], *, slope: bool = False) -> Iterator[Solved]:
        """Solve at some places, a few at a time, side by side where a solve is dear.

        All of a few start from what was known before them, so that threads change no number.
        """
        for begin in range(0, len(places), TOGETHER):
            some = places[begin : begin + TOGETHER]
            starts = [self.starts(t) for t in some]
            began = time.perf_counter()

            def solve(number: int, some: Any = some, starts: Any = starts) -> Solved:
                found = self.surface(some[number], starts[number], slope)
                if found is not None and _usable(found, slope):
                    return found
                nothing = np.zeros(0)
                return Solved(some[number], -math.inf, None, nothing, nothing, nothing)

            if len(some) > 1 and self.seconds > DEAR:
                with ThreadPoolExecutor(min(len(some), _cores())) as pool:
                    found = list(pool.map(solve, range(len(some))))
            else:
                found = [solve(number) for number in range(len(some))]
            took = time.perf_counter() - began
            self.seconds, self.taken = took / len(some), self.taken + took
            self.known += found
            if self.seconds > LARGE:
                handed_back()
            yield from found

    def abreast(
        self, walks: Sequence[Walk[T]], *, slope: bool = False
    ) -> Generator[Solved, None, list[T]]:
        """Take walks side by side: each yields a place and is sent what is solved there.

        Yields after every evaluation, and returns what the walks do.
        """
        found: dict[int, T] = {}
        asked = {number: next(walk) for number, walk in enumerate(walks)}
        while asked:
            numbers = list(asked)
            for number, solved in zip(
                numbers, self.several([asked[n] for n in numbers], slope=slope), strict=True
            ):
                yield solved
                try:
                    asked[number] = walks[number].send(solved)
                except StopIteration as end:
                    found[number] = end.value
                    del asked[number]
        return [found[number] for number in range(len(walks))]

    def nearest(self, t: np.ndarray) -> Solved | None:
        """The nearest solve that had an answer."""
        return min(self.alive, key=self._distance(t), default=None)

    def starts(self, t: np.ndarray) -> list[Solved]:
        """The nearest solve; before it, the same moved to where a curve through others leads.

        The curve is a Gaussian process of differences from the nearest: straight, and a bend.
        """
        near = sorted(self.alive, key=self._distance(t))[: 1 + AROUND]
        if not near or not len(near[0].spread):  # what is found at once needs no start
            return near[:1]
        start, *others = near
        scales = np.ones_like(t) if self.scales is None else self.scales
        ways = np.array([(one.t - start.t) / scales for one in others]).reshape(-1, len(t))
        wanted = (t - start.t) / scales
        covariance = STRAIGHT * ways @ ways.T + _bent(ways, ways)
        across = STRAIGHT * ways @ wanted + _bent(ways, wanted[None])[:, 0]
        stiff = STIFF * np.diag(np.diag(covariance) + 1.0)
        shares = np.linalg.solve(covariance + stiff, across)
        bend = float(_bent(wanted[None], wanted[None])[0, 0])
        unknown = STRAIGHT * float(wanted @ wanted) + bend - float(shares @ across)
        if unknown > UNSURE * bend:
            return [start]
        loc, spread = start.loc.copy(), start.spread.copy()
        for share, one in zip(shares, others, strict=True):
            loc += share * (one.loc - start.loc)
            spread += np.float32(share) * (one.spread - start.spread)
        return [replace(start, loc=loc, spread=np.maximum(spread, 0.0)), start]

    def _distance(self, t: np.ndarray) -> Callable[[Solved], float]:
        scales = np.ones_like(t) if self.scales is None else self.scales
        return lambda one: float(np.sum(((one.t - t) / scales) ** 2))

    @property
    def alive(self) -> list[Solved]:
        """The solves that had an answer."""
        return [one for one in self.known if math.isfinite(one.value)]

    @property
    def best(self) -> Solved:
        """The highest."""
        return max(self.alive, key=lambda one: one.value)


@dataclass(frozen=True, eq=False)
class Summit:
    """Where a climb ended. spread: (k, k), the inverse curvature as far as the steps have seen it.

    `reached` is false where the climb was cut short.
    """

    top: Solved
    spread: np.ndarray
    reached: bool


def climb(evaluated: Evaluated, start: np.ndarray) -> Generator[Solved, None, Summit]:
    """Climb to the mode; yields after every evaluation.

    The scales of a hierarchy may be known a thousand times better one than the other, so the
    curvature is looked at before the first step, in every direction, and once more where the steps
    that follow from it fail.
    """
    here = yield from _begin(evaluated, np.asarray(start, float))
    bend, fresh = (yield from _curvature(evaluated, here)), True
    first = len(evaluated.known)
    while len(evaluated.known) - first < MOST:
        assert here.slope is not None
        spread = _inverse(bend)
        step = spread @ here.slope
        gain = 0.5 * float(here.slope @ step)
        if gain < NEAR:
            return Summit(here, spread, True)
        step = step * min(1.0, LONGEST / float(abs(step).max()))
        there = yield from _along(evaluated, here, step)
        if there is None or there.value < here.value + POOR * gain:
            if fresh and there is None:
                return Summit(here, spread, gain < 1.0)
            here = here if there is None else there
            bend, fresh = (yield from _curvature(evaluated, here)), True
            continue
        assert there.slope is not None
        bend, fresh = _updated(bend, there.t - here.t, here.slope - there.slope), False
        here = there
    return Summit(here, _inverse(bend), False)


def _bent(ways: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The covariances of how far a smooth curve has moved along some ways (n, k), and others."""
    squares = ((ways[:, None] - others) ** 2).sum(axis=2)
    ends = [np.exp(-0.5 * (one**2).sum(axis=1) / FAR**2) for one in (ways, others)]
    moved: np.ndarray = np.exp(-0.5 * squares / FAR**2) - ends[0][:, None] - ends[1] + 1.0
    return FAR**2 * moved


def _curvature(evaluated: Evaluated, here: Solved) -> Generator[Solved, None, np.ndarray]:
    """Minus the second derivatives, by differences of slopes."""
    k = len(here.t)
    assert here.slope is not None
    bend = np.eye(k)
    around = [here.t + BESIDE * axis for axis in np.eye(k)]
    for number, beside in enumerate(evaluated.several(around, slope=True)):
        yield beside
        size = BESIDE
        if beside.slope is None:
            size = -BESIDE
            beside = evaluated.at(here.t + size * np.eye(k)[number], slope=True)
            yield beside
        if beside.slope is not None:
            bend[number] = (here.slope - beside.slope) / size
    return 0.5 * (bend + bend.T)


def _inverse(bend: np.ndarray) -> np.ndarray:
    """The inverse curvature, of directions that bend upwards as though they bent down."""
    scales = np.sqrt(np.maximum(abs(np.diag(bend)), FLAT))
    values, vectors = np.linalg.eigh(bend / np.outer(scales, scales))
    values = np.maximum(abs(values), 1e-4)
    found: np.ndarray = (vectors / values) @ vectors.T / np.outer(scales, scales)
    return found


def _updated(bend: np.ndarray, moved: np.ndarray, bent: np.ndarray) -> np.ndarray:
    """The curvature after a step: Broyden, Fletcher, Goldfarb and Shanno, damped as Powell's."""
    along = bend @ moved
    whole, inner = float(moved @ along), float(moved @ bent)
    if whole <= 0:
        return bend
    if inner < 0.2 * whole:
        share = 0.8 * whole / (whole - inner)
        bent = share * bent + (1 - share) * along
        inner = float(moved @ bent)
    updated: np.ndarray = bend + np.outer(bent, bent) / inner - np.outer(along, along) / whole
    return updated


def _begin(evaluated: Evaluated, start: np.ndarray) -> Generator[Solved, None, Solved]:
    """The start, or the first point around it that has a value."""
    shifts = (0.0, -1.0, 1.0, -2.0, 2.0)
    for shift in shifts:
        found = evaluated.at(start + shift, slope=True)
        yield found
        if math.isfinite(found.value):
            return found
    raise NoFiniteStartError(len(shifts), (), "bound given the hyperparameters")


def _along(
    evaluated: Evaluated, here: Solved, step: np.ndarray
) -> Generator[Solved, None, Solved | None]:
    """A point along the step that is high enough (Armijo) and not before the rise ends (Wolfe)."""
    assert here.slope is not None
    rise = float(here.slope @ step)
    low, high, size = 0.0, math.inf, 1.0
    bottom, bottom_rise = here.value, rise
    found: Solved | None = None
    for _ in range(8):
        there = evaluated.at(here.t + size * step, slope=True)
        yield there
        if not math.isfinite(there.value):
            high, size = size, low + SHRINK * (size - low)
            continue
        assert there.slope is not None
        end_rise = float(there.slope @ step)
        if there.value < here.value + 1e-4 * size * rise:
            inside = _summit_of_cubic(low, bottom, bottom_rise, size, there.value, end_rise)
            high, size = size, inside
            continue
        if found is None or there.value > found.value:
            found = there
        # Far below the mode the rise may go on: longer steps, but no more than needed.
        if end_rise > 0.9 * rise and math.isinf(high) and abs(step).max() * size < LONGEST:
            low, bottom, bottom_rise = size, there.value, end_rise
            size = 3.0 * size
            continue
        return found
    return found


def _summit_of_cubic(
    low: float, value: float, rise: float, high: float, end: float, end_rise: float
) -> float:
    """The maximum of the cubic through two ends, kept well inside."""
    width = high - low
    tilt = rise + end_rise - 3 * (end - value) / width
    inside = low + 0.5 * width
    # In units of the steepest: at the foot of a cliff, the square of a slope is no number.
    most = max(abs(rise), abs(end_rise), abs(tilt))
    if 0.0 < most < math.inf:
        rise, end_rise, tilt = rise / most, end_rise / most, tilt / most
        root = tilt**2 - rise * end_rise
        if root >= 0:
            other = math.sqrt(root)
            bottom = end_rise - rise - 2 * other
            if abs(bottom) > 1e-300:
                inside = high - width * (end_rise - other - tilt) / bottom
    if not math.isfinite(inside):
        inside = low + 0.5 * width
    return float(np.clip(inside, low + 0.05 * width, high - 0.1 * width))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _usable(found: Solved, slope: bool) -> bool:
    if math.isnan(found.value) or found.value == math.inf:
        return False
    return not slope or (found.slope is not None and bool(np.isfinite(found.slope).all()))
