"""The integral of a surface over hyperparameters: mode, curvature, points, a smooth density.

Points of low discrepancy are put where a skewed proposal q0 has its mass. They double until what a
surrogate through them says of each point without that point is right, and moments no longer move.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lowerbound.compute.threads import one_thread
from lowerbound.family.numerics.smoothed import Placed, low_discrepancy
from lowerbound.methods.hierarchy.points.integral import (
    CANDIDATES,
    LOW,
    MOST_DOUBT,
    Integral,
    through_points,
)
from lowerbound.methods.hierarchy.points.tested_by_draws import agrees
from lowerbound.methods.hierarchy.summits.other_summits import (
    BRIEF,
    hills,
    placed_over,
    together,
    within,
)
from lowerbound.methods.hierarchy.summits.uphill import Evaluated
from lowerbound.methods.hierarchy.summits.ways_out import tails
from lowerbound.methods.hierarchy.surface import Solved, Surface
from lowerbound.run.walking import told

SIZES = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
FASTER = 3  # times as many points as before, where so many are taken in any case
GRID = (13, 25, 49, 97)  # nodes of one hyperparameter
MOST, PLENTY = 256, 512  # points, unless told; and of surfaces that cost next to nothing
BEYOND, YOUNG = 384, 5  # so many for a good proposal that has less than a fifth of the points
GAINLESS = 3.0  # times the points that came nearest, after which an integral is given up
EDGES, HALVED = 2, 4  # points without a value, and how often the way to them is halved
NARROW = 0.05  # the edge is known as well, in sds
LOOSER = 4.0  # nats more, where a proposal is made anew
HIGHER = 0.5  # nats above what is foreseen of a tail, from where on it is looked at
MUCH_HIGHER = 2.0  # the same of a surrogate that is known to be rough
ENDS = 1e-6  # probability beyond the grid of one hyperparameter, on either side


@dataclass(frozen=True, eq=False)
class Progress:
    """Where an integration stands: evaluations so far, the highest L, and what it has found."""

    phase: str
    evaluations: int
    best: float
    integral: Integral | None


def integrate(
    surface: Surface,
    start: np.ndarray,
    *,
    points: int | None = None,
    fewest: int = 0,
    most: int = MOST,
    others: Sequence[np.ndarray] = (),
    farthest: float = 0.0,
) -> Generator[Progress, None, Integral]:
    """Integrate exp L over R^k; yields after every evaluation.

    points: so many in all, no more and no fewer; None: as many as it takes, up to about `most`, and
    `fewest` at least.
    others: starts from which other summits are looked for. farthest: sds of a hyperparameter, up to
    which the tails are looked at.
    """
    evaluated = Evaluated(surface)
    integral: Integral | None = None

    def progress(phase: str) -> Progress:
        best = max((one.value for one in evaluated.known), default=-math.inf)
        return Progress(phase, len(evaluated.known), best, integral)

    climbing = hills(evaluated, [np.asarray(start, float), *others])
    found = yield from told(climbing, lambda _: progress("climb"))
    climbed = evaluated.taken
    placed, frame = together(found)
    own: list[Solved] = []  # the points of the present proposal
    count, ways_out = 0, farthest > 0.0 and len(start) > 1
    nearest = math.inf, 0  # the least error, and the points that had it
    latest: Integral | None = None  # with means and sds that seem to be known
    for places in _rounds(len(start), points, fewest, max(most, BEYOND)):
        # The points showed late what proposal is good, so that few of them are its own.
        aged = integral is None or integral.misplaced or YOUNG * len(own) >= integral.points
        if points is None and count >= most and aged:
            break
        chosen = [] if integral is None else _doubtful(integral, placed, len(places) // 2)
        for _ in evaluated.several(list(chosen)):
            count += 1
            yield progress("points")
        spots = [_spot(placed, place) for place in places[len(chosen) :]]
        for one in evaluated.several(spots):
            own.append(one)
            count += 1
            yield progress("points")
        before, known = integral, len(evaluated.known)
        integral = through_points(evaluated, frame, placed, own, count, before)
        for _ in _at_edges(evaluated, integral):
            yield progress("points")
        if len(evaluated.known) > known:
            integral = through_points(evaluated, frame, placed, own, count, before)
        yield progress("points")
        if integral.known and integral.covered:
            latest = integral
        if integral.promising and not integral.enough and points is None and count >= MOST:
            known = len(evaluated.known)
            trial = agrees(evaluated, integral.smoothed, count)
            agreed = yield from told(trial, lambda _: progress("points"))
            integral = replace(integral, enough=agreed)
            del evaluated.known[known:]
        if before is not None and integral.error < 0.5 * nearest[0]:
            nearest = integral.error, count
        if points is None and integral.is_lost and count >= GAINLESS * nearest[1] > 0:
            break
        missed = False
        if integral.enough and points is None and count >= fewest:
            if not ways_out:
                break
            ways_out = False
            until = evaluated.taken + max(evaluated.taken - climbed, BRIEF)
            looks = _missed(evaluated, integral, farthest, HIGHER, until)
            beyond = yield from told(looks, lambda _: progress("tails"))
            missed = len(beyond) > 0
            if not missed:
                break
            integral = through_points(evaluated, frame, placed, own, count, integral)
        if len(start) > 1 and (missed or integral.misplaced):
            loose = replace(integral.smoothed, ceiling=integral.smoothed.ceiling + LOOSER)
            placed, own = placed_over(frame, placed.outward(loose.nodes), loose.weights), []
    assert integral is not None
    if points is None and integral.is_lost and latest is not None:
        integral = latest  # a proposal that is made anew may be worse than the one before
    if ways_out and points is None and not integral.enough:
        # Weights of draws know nothing of what lies where no point is.
        until = evaluated.taken + max(evaluated.taken - climbed, BRIEF)
        looks = _missed(evaluated, integral, farthest, MUCH_HIGHER, until)
        beyond = yield from told(looks, lambda _: progress("tails"))
        integral = replace(integral, missed=len(beyond) > 0, beyond=beyond)
    return integral


def _missed(
    evaluated: Evaluated, integral: Integral, farthest: float, higher: float, most: float
) -> Generator[Solved, None, np.ndarray]:
    """Where some tail is heavier than is foreseen, (n, k); if it is, its points are kept.

    Yields after every evaluation, until solves have taken `most` seconds: what was seen until then
    counts.
    """
    smoothed, known = integral.smoothed, len(evaluated.known)
    walk = tails(evaluated, smoothed.mean, smoothed.covariance, farthest)
    ends = yield from within(walk, evaluated, most)
    seen = evaluated.known[known:] if ends is None else ends
    top = evaluated.best.value
    found = [one.t for one in seen if _unforeseen(integral, one, top, higher)]
    if not found:
        del evaluated.known[known:]
    return np.array(found).reshape(-1, len(smoothed.mean))


def _unforeseen(integral: Integral, one: Solved, top: float, higher: float) -> bool:
    """Whether a surface is so much higher at a point than is foreseen, where it still matters."""
    foreseen = float(integral.smoothed.log_prob(one.t[None])[0]) + integral.log_evidence
    return one.value > top - LOW and one.value - foreseen > higher


def _rounds(k: int, points: int | None, fewest: int, most: int) -> Iterator[np.ndarray]:
    """Places in the unit cube, more and more of them: quickly up to the fewest."""
    if k == 1:
        sizes = [size for size in GRID if size <= MOST] if points is None else [points]
        done: set[float] = set()
        for size in sizes:
            places = [place for place in np.linspace(0.0, 1.0, size) if place not in done]
            done.update(places)
            yield np.array(places)[:, None]
        return
    sizes = [size for size in SIZES if 4 * k <= size <= most] if points is None else [points]
    before = 0
    for size in sizes:
        if before and size < min(fewest, FASTER * before):
            continue
        yield low_discrepancy(max(sizes), k, 1)[before:size]
        before = size


def _spot(placed: Placed, place: np.ndarray) -> np.ndarray:
    """The t of a place in the unit cube: a quantile of the proposal, or evenly between its ends."""
    if len(place) == 1:
        ends = placed.proposal.quantile(np.array([[ENDS], [1 - ENDS]]))
        s = ends[:1] + place * (ends[1:] - ends[:1])
    else:
        s = placed.proposal.quantile(place[None])
    t: np.ndarray = placed.outward(s)[0]
    return t


@one_thread()
def _doubtful(integral: Integral, placed: Placed, count: int) -> list[np.ndarray]:
    """Points where the density may have mass that is not known of, each given those before it."""
    k = placed.proposal.size
    if k == 1:
        return []
    s = placed.proposal.quantile(low_discrepancy(CANDIDATES, k, 2 + integral.points))
    # Far out in a tail one node may hold all that is unknown, and no candidate come near it.
    s = np.concatenate([s, placed.inward(integral.doubtful)])
    t = placed.outward(s)
    loose = replace(integral.smoothed, placed=placed, ceiling=math.inf)
    expected = loose.ratios(s)
    covariance = integral.interpolation.covariance(t)
    variance = np.diag(covariance).copy()
    found: list[np.ndarray] = []
    roots: list[np.ndarray] = []
    for _ in range(count):
        sds = np.sqrt(np.maximum(variance, 1e-16))
        best = int(np.argmax(expected + np.minimum(sds, MOST_DOUBT) + np.log(sds)))
        if sds[best] < 1e-4:
            break
        found.append(t[best])
        row = covariance[best] - sum((root[best] * root for root in roots), np.zeros(len(t)))
        root = row / sds[best]
        roots.append(root)
        variance = variance - root**2
        variance[best] = 0.0
    return found


def _at_edges(evaluated: Evaluated, integral: Integral) -> Iterator[Solved]:
    """Halve the way from points without a value to the nearest with one, where it matters."""
    frame = integral.interpolation.surrogate.frame
    whole = replace(integral.interpolation.surrogate, dead=np.zeros((0, len(frame.centre))))
    dead = [one.t for one in evaluated.known if not math.isfinite(one.value)]
    top = evaluated.best.value
    likely = [t for t in dead if whole(t[None])[0] > top - LOW]
    for outside in sorted(likely, key=lambda t: -whole(t[None])[0])[:EDGES]:
        for _ in range(HALVED):
            alive = evaluated.nearest(outside)
            assert alive is not None
            if abs(frame.inward((outside - alive.t + frame.centre)[None])).max() < NARROW:
                break
            between = evaluated.at(0.5 * (outside + alive.t))
            yield between
            if not math.isfinite(between.value):
                outside = between.t
