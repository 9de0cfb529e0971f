"""Several ascents side by side, with the points of all of them evaluated in one batch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from lowerbound.ascent.gaussian_step import RUNNING, Ascent, advance
from lowerbound.bound.fixed_draws import averaged, points
from lowerbound.cost import allowance

# The status of an ascent stopped for others: below them, with them, or elsewhere in want of time.
LEFT_BEHIND, JOINED, HURRIED = 4, 5, 6

Evaluate = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
Sieve = Callable[[list[Ascent]], list[Ascent]]

AFTER = 0.4  # of the time that was left, for what comes after a climb


@dataclass(frozen=True, eq=False)
class Climb:
    """One ascent: where it came to."""

    state: Ascent
    iterations: int


def side_by_side(
    evaluate: Evaluate,
    draws: np.ndarray,
    begun: Sequence[Ascent],
    tolerance: float,
    limit: int,
    diagonal: bool = False,
    sieve: Sieve = list,
) -> Generator[list[Ascent], None, list[Climb]]:
    """Ascend from all starts until each has come to rest, or `sieve` has stopped it.

    `evaluate(vectors, owners)` gives log p and its gradient at the rows, where the row i belongs to
    the ascent number owners[i].
    """
    states, left = list(begun), allowance().left
    steps = [0 for _ in states]
    for _ in range(limit):
        active = [i for i, state in enumerate(states) if state.status == RUNNING]
        # What comes after the climb, and what measures the answer, has its part of the time.
        if not active or allowance().over or allowance().left < AFTER * left:
            break
        wanted = [points(draws, states[i].trial_loc, states[i].trial_root) for i in active]
        values, gradients = evaluate(np.concatenate(wanted), np.repeat(active, len(draws)))
        for number, i in enumerate(active):
            own = slice(number * len(draws), (number + 1) * len(draws))
            found = averaged(draws, values[own], gradients[own], states[i].trial_root)
            states[i] = advance(states[i], found, tolerance, diagonal)
            steps[i] += 1
        states = sieve(states)
        yield states
    return [Climb(state, count) for state, count in zip(states, steps, strict=True)]


def stopped(state: Ascent, status: int) -> Ascent:
    """The ascent, ended for the sake of others."""
    return state._replace(status=np.full((), status))
