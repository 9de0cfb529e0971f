"""Ascents of a Gaussian over fixed draws: how many draws, the steps, and when they end."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from lowerbound.ascent.gaussian_step import RUNNING, SETTLED, Ascent, advance, begin, distance
from lowerbound.bound.fixed_draws import Estimate, averaged, points
from lowerbound.cost import allowance
from lowerbound.errors import ArgumentError
from lowerbound.methods.gaussian.target import Target
from lowerbound.methods.gaussian.unconstrained_methods import UnconstrainedMethod

LIMIT = 200  # iterations for one set of draws
AGREED = 0.05  # standard deviations by which four times the draws may move the answer
COARSE = 0.01  # the tolerance of the first draws
SHARE = 0.1  # of what new draws move the answer by: what is left of that when they have done so
RESTING, FLAT = 15, 0.05  # iterations that gain no more than this share of the aim squared
LEAST_DRAWS, MOST_STAGES = 256, 3
FEWEST_DRAWS, SOME_STEPS = 32, 40  # where a point is dear: draws, and steps that must be affordable


def ascend(
    target: Target,
    draws: np.ndarray,
    state: Ascent,
    tolerance: float,
    diagonal: bool,
    share: float = 0.0,
    limit: int = LIMIT,
) -> Generator[Ascent, None, tuple[Ascent, float, float]]:
    """The ascent over some draws, how far its start was from stationary for them, and its aim.

    The aim is the tolerance, or `share` of that first distance where it is more. Where log p has
    corners, slopes over some draws never come as near to zero as that: a Gaussian that is off by
    the aim has half the square of it to gain, and steps that gain far less are of no use.
    """
    state, first, aim = begin(state.loc, state.root), np.inf, tolerance
    heights: list[float] = []
    for iteration in range(limit):
        found = evaluate(target, draws, state.trial_loc, state.trial_root)
        if iteration == 0 and np.isfinite(found.elbo):
            first = float(distance(found, diagonal))
            aim = max(tolerance, share * min(first, AGREED))
        state = advance(state, found, aim, diagonal)
        heights.append(state.elbo)
        rose = heights[-1] - heights[-1 - RESTING] if len(heights) > RESTING else np.inf
        if state.status == RUNNING and rose < FLAT * aim**2:
            state = state._replace(status=np.full((), SETTLED))
        yield state
        # The next step is not begun where it would outlast the fit.
        if state.status != RUNNING or target.seconds(len(draws)) >= allowance().left:
            break
    return state, first, aim


def evaluate(target: Target, draws: np.ndarray, loc: np.ndarray, root: np.ndarray) -> Estimate:
    """The ELBO and its derivatives over some draws."""
    values, gradients = target(points(draws, loc, root))
    return averaged(draws, values, gradients, root)


def draw_sizes(method: UnconstrainedMethod, dimension: int) -> list[int]:
    """Numbers of draws, stage by stage; more than twice the dimension, so that they whiten."""
    wanted = method.draws
    if wanted is not None:
        if wanted <= 2 * dimension:
            raise ArgumentError(
                f"{method.name} got draws={wanted} for a posterior of {dimension} dimensions.\n"
                f"Expected more than {2 * dimension}, twice the dimension, or None."
            )
        return [wanted + wanted % 2]
    return _by_default(dimension)


def _by_default(dimension: int) -> list[int]:
    least = LEAST_DRAWS
    while least < 4 * dimension:
        least *= 2
    return [least * 4**stage for stage in range(MOST_STAGES)]


def comparing(target: Target, method: UnconstrainedMethod) -> int:
    """The draws over which coordinates are compared: those of the method, where they whiten.

    Noisy steps are content with fewer.
    """
    wanted, enough = method.draws, 2 * target.size
    if wanted is not None and wanted > enough:
        return draw_sizes(method, target.size)[0]
    return _affordable(target, _by_default(target.size))[0]


def affordable_sizes(target: Target, method: UnconstrainedMethod) -> list[int]:
    """Numbers of draws, stage by stage; fewer where a point is so dear that few steps are left."""
    sizes = draw_sizes(method, target.size)
    return sizes if method.draws is not None else _affordable(target, sizes)


def _affordable(target: Target, sizes: list[int]) -> list[int]:
    least = max(4 * target.size, FEWEST_DRAWS)
    while sizes[0] >= 2 * least:
        if target.seconds(SOME_STEPS * sizes[0]) <= allowance().left:
            break
        sizes = [size // 2 for size in sizes]
    return sizes
