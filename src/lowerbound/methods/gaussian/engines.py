"""The engines that keep their draws fixed: the bound maximised, or the score matched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lowerbound.ascent.gaussian_step import RUNNING, STALLED, Ascent, advance, begin, distance
from lowerbound.ascent.matching import matched
from lowerbound.bound.draws import normal_draws
from lowerbound.bound.fixed_draws import Estimate, averaged, points
from lowerbound.compute.engine import in_background
from lowerbound.cost import allowance, numbers_computed
from lowerbound.errors import ArgumentError
from lowerbound.methods.coordinate.begin import given_values
from lowerbound.methods.gaussian.climbs import GaussianRestart, Solution, Watch, draw_seed
from lowerbound.methods.gaussian.starts import (
    ONE_MODE,
    climb,
    finite_rows,
    flat_entries,
    improper,
    starting_points,
)
from lowerbound.methods.gaussian.target import Target
from lowerbound.methods.gaussian.together import Climb
from lowerbound.methods.gaussian.unconstrained_methods import UnconstrainedMethod
from lowerbound.run.bar import Bar

LIMIT, LEAST_LIMIT = 200, 40  # iterations for one set of draws, and where they are dear
MOST_COMPUTED = 1e10  # numbers in all of these iterations, before the least of them
AGREED = 0.05  # standard deviations by which four times the draws may move the answer
COARSE = 0.01  # the tolerance of the first draws
SHARE = 0.1  # of what new draws move the answer by: what is left of that when they have done so
RACE, MOST_PLACES = 10, 4  # iterations over more draws, and the places that have them
SAME_PLACE = 0.1  # nats
CANDIDATES = 4  # points for each start: the highest are taken
LEAST_DRAWS, MOST_STAGES = 256, 3
FEWEST_DRAWS, SOME_STEPS = 32, 40  # where a point is dear: draws, and steps that must be affordable
BEGUN = 0.4  # of what a fit may take: after that no other start is looked at
_LEAST_RATE = 1e-3  # of score matching


def solve_fixed(
    target: Target,
    method: UnconstrainedMethod,
    rank: str | int,
    seed: int,
    watch: Watch,
    climbs: list[Climb] | None = None,
) -> Solution:
    """Maximise the ELBO of fixed draws: few at first, then more until fresh ones agree.

    `climbs` are the starts, where they have been made.
    """
    sizes = affordable_sizes(target, method)
    # Importing and drawing Sobol points takes as long as a compilation: do both at once.
    ahead = in_background(lambda: normal_draws(sizes[0], target.size, draw_seed(seed, 0)))
    diagonal = rank == "diagonal"
    climbs = climbs or begin_climbs(target, method, seed, diagonal)
    best = max(climbs, key=lambda one: one.elbo)
    for elbo in best.history:
        watch.note(elbo)
    ahead.result()
    state, size, aim = best.state, sizes[0], method.tolerance
    for stage, size in enumerate(sizes):
        draws = normal_draws(size, target.size, draw_seed(seed, stage))
        # More draws will move the answer of the first ones anyway.
        coarse = COARSE if stage == 0 and len(sizes) > 1 else 0.0
        aim = max(method.tolerance, coarse)
        share = SHARE if stage else 0.0
        limit = _limit(target, size)
        state, first, aim = ascend(target, draws, state, aim, diagonal, watch, share, limit)
        _check_proper(target, state)
        # More draws do not help an ascent that creeps: it would be as far from their optimum.
        late = target.seconds(size) >= allowance().left
        if (stage and (first <= AGREED or state.status == RUNNING)) or late:
            break
    converged, reason = _reason(state, aim, limit, late)
    restarts = tuple(restart(one) for one in climbs)
    return Solution(_parameters(state, diagonal), size, converged, reason, restarts)


def solve_match(
    target: Target,
    method: UnconstrainedMethod,
    rank: str | int,
    seed: int,
    watch: Watch,
    climbs: list[Climb] | None = None,
) -> Solution:
    """Match the score of log p over fixed draws, in closed form, until nothing moves."""
    size = draw_sizes(method.draws, target.size)[: 2 if method.draws is None else 1][-1]
    draws = normal_draws(size, target.size, draw_seed(seed, 0))
    climbs = climbs or begin_climbs(target, method, seed, False)
    best = max(climbs, key=lambda one: one.elbo)
    loc, root = np.asarray(best.state.loc), np.asarray(best.state.root)
    rate, move = float(size), np.inf
    _, gradients = target(points(draws, loc, root))
    for _ in range(LIMIT):
        new_loc, new_root = matched(loc, root, points(draws, loc, root), gradients, rate)
        new_values, new_gradients = target(points(draws, new_loc, new_root))
        found = averaged(draws, new_values, new_gradients, new_root)
        if not np.isfinite(found.elbo) and rate > _LEAST_RATE:
            rate /= 4.0
            continue
        change = np.linalg.solve(root, np.column_stack([new_root, new_loc - loc]))
        change[:, :-1] -= np.eye(len(loc))
        move, loc, root, gradients = float(np.abs(change).max()), new_loc, new_root, new_gradients
        watch.note(float(found.elbo))
        if move <= method.tolerance or allowance().over:
            break
    converged = move <= method.tolerance
    reason = f"mean and scale moved by less than {method.tolerance:g} standard deviations"
    if not converged:
        reason = allowance().reason if allowance().over else f"{LIMIT} iterations"
    parameters = {"loc": loc, "scale_tril": root}
    restarts = tuple(restart(one) for one in climbs)
    return Solution(parameters, size, converged, reason, restarts)


def begin_climbs(
    target: Target, method: UnconstrainedMethod, seed: int, diagonal: bool, again: bool = True
) -> list[Climb]:
    """The starts, each at its approximate optimum; raises when there is no good one.

    Where fewer than half of them come to the best place, as many are made `again`.
    """
    climbs = climb(target, starts_of(target, method, seed), diagonal)
    climbs = _believed(target, method, climbs, seed, diagonal)
    best = max(one.elbo for one in climbs)
    there = [one for one in climbs if one.elbo > best - ONE_MODE]
    if again and len(there) < len(climbs) / 2 and allowance().spent < BEGUN:
        more = _highest(target, method, [abs(seed), 1], centred=False)
        climbs += climb(target, more, diagonal, best)
        climbs = _believed(target, method, climbs, seed, diagonal)
    _check_proper(target, max(climbs, key=lambda one: one.elbo).state)
    return climbs


def _believed(
    target: Target, method: UnconstrainedMethod, climbs: list[Climb], seed: int, diagonal: bool
) -> list[Climb]:
    """The starts, those that may be the best with an ELBO that can be believed.

    The few points of a start miss what lies between them, and a Gaussian across several modes
    looks better than one of them. The start that promises most goes on over more draws, then the
    next, until none promises more than the best has kept. Starts of one promise are at one place,
    or at its mirror images.
    """
    places = sorted({round(one.elbo, 1): one for one in climbs}.values(), key=lambda c: -c.elbo)
    if len(places) == 1:
        return climbs
    size = affordable_sizes(target, method)[0]
    draws = normal_draws(size, target.size, draw_seed(seed, 0))
    known = -np.inf
    for place in places[:MOST_PLACES]:
        if place.elbo <= known + SAME_PLACE or (known > -np.inf and allowance().spent > BEGUN):
            break
        unseen = Watch(Bar(False, 1, "", ""))
        state, _, _ = ascend(target, draws, place.state, COARSE, diagonal, unseen, 0.0, RACE)
        known = max(known, float(state.found.elbo))
        climbs = [
            replace(one, state=state._replace(status=one.state.status))
            if abs(one.elbo - place.elbo) <= SAME_PLACE
            else one
            for one in climbs
        ]
    return climbs


def starts_of(target: Target, method: UnconstrainedMethod, seed: int) -> np.ndarray:
    """Starting points where log p is finite, one per row."""
    return finite_rows(target, _highest(target, method, abs(seed), centred=True), abs(seed))


def _highest(
    target: Target, method: UnconstrainedMethod, seed: int | Sequence[int], centred: bool
) -> np.ndarray:
    """The highest of several points for each start; the first two as they are, where centred."""
    count = CANDIDATES * method.starts
    rows = starting_points(target, count, seed, _given(target, method), centred)
    heights = np.nan_to_num(target(rows)[0], nan=-np.inf)
    heights[: 2 if centred else 0] = np.inf
    chosen: np.ndarray = rows[np.sort(np.argsort(-heights, kind="stable")[: method.starts])]
    return chosen


def _given(target: Target, method: UnconstrainedMethod) -> dict[str, Any] | None:
    if not isinstance(method.init, Mapping):
        return None
    return given_values(target.coordinates.program(), method)


def ascend(
    target: Target,
    draws: np.ndarray,
    state: Ascent,
    tolerance: float,
    diagonal: bool,
    watch: Watch,
    share: float = 0.0,
    limit: int = LIMIT,
) -> tuple[Ascent, float, float]:
    """The ascent over some draws, how far its start was from stationary for them, and its aim.

    The aim is the tolerance, or `share` of that first distance where it is more.
    """
    state, first, aim = begin(state.loc, state.root), np.inf, tolerance
    for iteration in range(limit):
        found = evaluate(target, draws, state.trial_loc, state.trial_root)
        if iteration == 0 and np.isfinite(found.elbo):
            first = float(distance(found, diagonal))
            aim = max(tolerance, share * min(first, AGREED))
        state = advance(state, found, aim, diagonal)
        watch.note(float(state.found.elbo))
        # The next step is not begun where it would outlast the fit.
        if state.status != RUNNING or target.seconds(len(draws)) >= allowance().left:
            break
    return state, first, aim


def evaluate(target: Target, draws: np.ndarray, loc: np.ndarray, root: np.ndarray) -> Estimate:
    """The ELBO and its derivatives over some draws."""
    values, gradients = target(points(draws, loc, root))
    return averaged(draws, values, gradients, root)


def draw_sizes(wanted: int | None, dimension: int) -> list[int]:
    """Numbers of draws, stage by stage; more than twice the dimension, so that they whiten."""
    if wanted is not None:
        if wanted <= 2 * dimension:
            raise ArgumentError(
                f"Gaussian got draws={wanted} for a posterior of {dimension} dimensions.\n"
                f"Expected more than {2 * dimension}, twice the dimension, or None."
            )
        return [wanted + wanted % 2]
    least = LEAST_DRAWS
    while least < 4 * dimension:
        least *= 2
    return [least * 4**stage for stage in range(MOST_STAGES)]


def affordable_sizes(target: Target, method: UnconstrainedMethod) -> list[int]:
    """Numbers of draws, stage by stage; fewer where a point is so dear that few steps are left."""
    sizes = draw_sizes(method.draws, target.size)
    least = max(4 * target.size, FEWEST_DRAWS)
    while method.draws is None and sizes[0] >= 2 * least:
        if target.seconds(SOME_STEPS * sizes[0]) <= allowance().left:
            break
        sizes = [size // 2 for size in sizes]
    return sizes


def _check_proper(target: Target, state: Ascent) -> None:
    entries = flat_entries(target, state)
    if entries:
        raise improper(target, entries)


def _limit(target: Target, size: int) -> int:
    """The iterations that an ascent over some draws may take, fewer where each is dear."""
    computed = size * numbers_computed(target.closed.jaxpr)
    return int(np.clip(MOST_COMPUTED / computed, LEAST_LIMIT, LIMIT))


def _reason(state: Ascent, tolerance: float, limit: int, late: bool) -> tuple[bool, str]:
    if state.status == RUNNING and (allowance().over or late):
        return False, allowance().reason
    if state.status == RUNNING:
        return False, f"{limit} iterations"
    if state.status == STALLED:
        return False, "no step raises the ELBO"
    if float(state.error) <= tolerance:
        return True, f"mean and scale within {tolerance:.2g} standard deviations"
    return True, "the ELBO no longer changes"


def restart(one: Climb) -> GaussianRestart:
    """The record of a start."""
    names = ["iterations", "converged", "converged", "no step raises the ELBO"]
    names += ["far below others", "joined another start"]
    return GaussianRestart(one.elbo, one.iterations, names[int(one.state.status)])


def _parameters(state: Ascent, diagonal: bool) -> dict[str, np.ndarray]:
    if diagonal:
        return {"loc": np.asarray(state.loc), "scale": np.diagonal(state.root).copy()}
    return {"loc": np.asarray(state.loc), "scale_tril": np.asarray(state.root)}
