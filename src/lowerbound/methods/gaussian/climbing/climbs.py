"""Where the best start has come to: all of them climb, and promises are looked at again."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lowerbound.ascent.gaussian_step import Ascent
from lowerbound.bound.draws import draw_seed, normal_draws
from lowerbound.cost import allowance
from lowerbound.methods.coordinate.begin import given_values
from lowerbound.methods.gaussian.climbing.over_draws import COARSE, affordable_sizes, ascend
from lowerbound.methods.gaussian.climbing.starts import (
    ONE_MODE,
    climb,
    finite_rows,
    flat_entries,
    improper,
    starting_points,
)
from lowerbound.methods.gaussian.climbing.together import HURRIED, Climb, stopped
from lowerbound.methods.gaussian.target import Target
from lowerbound.methods.gaussian.unconstrained_methods import UnconstrainedMethod
from lowerbound.run.walking import Phase, ended

RACE, MOST_PLACES = 10, 4  # iterations over more draws, and the places that have them
SAME_PLACE = 0.1  # nats
CANDIDATES = 4  # points for each start: the highest are taken
PACED, STARTING = 2, 0.1  # points that tell the pace, and the share of the time for the others
BEGUN = 0.4  # of what a fit may take: after that no other start is looked at


@dataclass(frozen=True)
class Start:
    """A start: its ELBO over the points that all starts climbed, its steps, and why it ended.

    loc: where that was, in the coordinates of the fit.
    """

    elbo: float
    steps: int
    reason: str
    loc: np.ndarray | None = field(default=None, compare=False, repr=False)


def start_of(one: Climb) -> Start:
    """The record of a start."""
    ended = _ENDS[int(one.state.status)]
    return Start(one.state.elbo, one.iterations, ended, np.asarray(one.state.loc))


_ENDS = (
    "stopped: iterations",
    "converged: mean and scale within reach",
    "converged: the ELBO no longer changes",
    "stopped: no step raises the ELBO",
    "stopped: far below others",
    "stopped: joined another start",
    "stopped: elsewhere, and there was no time to look further",
)  # by status


def begin_climbs(
    target: Target, method: UnconstrainedMethod, seed: int, diagonal: bool, again: bool = True
) -> Generator[Ascent, None, list[Climb]]:
    """The starts, each at its approximate optimum; raises when there is no good one.

    Where fewer than half of them come to the best place, as many are made `again`. The best of
    them is told after every step.
    """
    climbs = yield from _best(climb(target, starts_of(target, method, seed), diagonal))
    climbs = _believed(target, method, climbs, seed, diagonal)
    best = max(one.state.elbo for one in climbs)
    there = [one for one in climbs if one.state.elbo > best - ONE_MODE]
    alone = len(there) < len(climbs) / 2
    if again and alone and allowance().spent >= BEGUN:
        climbs = [one if one in there else _hurried(one) for one in climbs]
    elif again and alone:
        more, _ = _highest(target, method, [abs(seed), 1], centred=False)
        known = [one.state for one in climbs]
        climbs += yield from _best(climb(target, more, diagonal, best), known)
        climbs = _believed(target, method, climbs, seed, diagonal)
    check_proper(target, best_of(climbs).state)
    return climbs


def _hurried(one: Climb) -> Climb:
    return replace(one, state=stopped(one.state, HURRIED))


def is_hurried(starts: Sequence[Start]) -> bool:
    """Whether most starts came elsewhere, and there was no time for others."""
    return any(one.reason == _ENDS[HURRIED] for one in starts)


def best_of(climbs: Sequence[Climb]) -> Climb:
    """The start that is kept."""
    return max(climbs, key=lambda one: one.state.elbo)


def _best(
    ascents: Generator[list[Ascent], None, list[Climb]], known: Sequence[Ascent] = ()
) -> Generator[Ascent, None, list[Climb]]:
    """The best of several ascents, once it is anywhere."""
    phase = Phase(ascents)
    for states in phase:
        best = max([*known, *states], key=lambda state: state.elbo)
        if np.isfinite(best.elbo):
            yield best
    return phase.outcome


def _believed(
    target: Target, method: UnconstrainedMethod, climbs: list[Climb], seed: int, diagonal: bool
) -> list[Climb]:
    """The starts, those that may be the best with an ELBO that can be believed.

    The few points of a start miss what lies between them, and a Gaussian across several modes
    looks better than one of them. The start that promises most goes on over more draws, then the
    next, until none promises more than the best has kept. Starts of one promise are at one place,
    or at its mirror images.
    """
    places = sorted(
        {round(one.state.elbo, 1): one for one in climbs}.values(), key=lambda c: -c.state.elbo
    )
    if len(places) == 1:
        return climbs
    size = affordable_sizes(target, method)[0]
    draws = normal_draws(size, target.size, draw_seed(seed, 0))
    known = -np.inf
    for place in places[:MOST_PLACES]:
        if place.state.elbo <= known + SAME_PLACE or (
            known > -np.inf and allowance().spent > BEGUN
        ):
            break
        state, _, _ = ended(ascend(target, draws, place.state, COARSE, diagonal, 0.0, RACE))
        known = max(known, state.elbo)
        climbs = [
            replace(one, state=state._replace(status=one.state.status))
            if abs(one.state.elbo - place.state.elbo) <= SAME_PLACE
            else one
            for one in climbs
        ]
    return climbs


def starts_of(target: Target, method: UnconstrainedMethod, seed: int) -> np.ndarray:
    """Starting points where log p is finite, one per row."""
    rows, fine = _highest(target, method, abs(seed), centred=True)
    return finite_rows(target, rows, fine, abs(seed))


def _highest(
    target: Target, method: UnconstrainedMethod, seed: int | Sequence[int], centred: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The highest of several points for each start, and at which log p and its slope are finite.

    The first two are taken as they are, where centred. Where a point is dear they tell the pace,
    and as many others are tried as a small part of the time that is left allows.
    """
    count = CANDIDATES * method.starts
    rows = starting_points(target, count, seed, _given(target, method), centred)
    paced = min(max(PACED, target.batch), count)
    found = [target(rows[:paced])]
    most = STARTING * allowance().left / max(target.seconds(1), 1e-9)
    rows = rows[: int(max(paced, min(count, most)))]
    if len(rows) > paced:
        found.append(target(rows[paced:]))
    values, slopes = (np.concatenate(parts) for parts in zip(*found, strict=True))
    heights = np.nan_to_num(values, nan=-np.inf)
    heights[: 2 if centred else 0] = np.inf
    chosen = np.sort(np.argsort(-heights, kind="stable")[: method.starts])
    fine = np.isfinite(values) & np.isfinite(slopes).all(axis=1)
    return rows[chosen], fine[chosen]


def _given(target: Target, method: UnconstrainedMethod) -> dict[str, Any] | None:
    if not isinstance(method.init, Mapping):
        return None
    return given_values(target.coordinates.program(), method)


def check_proper(target: Target, state: Ascent) -> None:
    """Raise where a Gaussian has run off."""
    entries = flat_entries(target, state)
    if entries:
        raise improper(target, entries)
