"""Hamiltonian trajectories of several chains at once, along a function of rows with slopes.

Steps are taken on the host: what is compiled is the function, for so many rows. Where slopes are
dear, chains are few and learn from each other: one step size by the acceptance of all (Hoffman &
Gelman 2014, section 3.2), and lengths of trajectories around a quarter of a turn, after which a
draw of a normal law forgets the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lowerbound.methods.chains.rounds_of_chains import Chains
from lowerbound.methods.chains.units import Units

# Values (c,) and slopes (c, k) of log p at rows u (c, k); not finite where there is none.
Slopes = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

DRAFTS = 20, 40  # draws of each chain by which units are found, after half as many before each
STEADY = 40  # draws before the first that is kept, by which steps adapt
ACCEPTED = 0.9  # the share of trajectories: the ends of scales are steep
# Of trajectories, where the law has a variance of one: a quarter of a turn, and longer ones, which
# go down a tail and come back.
LENGTHS = 1.0, 4.0
MOST_STEPS = 60  # of a trajectory
DIVERGING, SHORTER = 0.005, 0.6  # share of trajectories, from which on steps are so much shorter
WILD = 50.0  # nats of energy that a trajectory has lost or won when it has diverged
RATE, STABLE, FORGETS = 0.05, 10.0, 0.75  # of the adaptation of steps
SHORTEST, LONGEST = 1e-3, 1.5  # steps


class Place(NamedTuple):
    """Where chains are: u (c, k), log p there (c,), and its slopes (c, k)."""

    u: np.ndarray
    values: np.ndarray
    by_u: np.ndarray


class Passed(NamedTuple):
    """Where chains are after a trajectory; the chances that it was accepted, and what it lost."""

    place: Place
    chances: np.ndarray
    change: np.ndarray


def trajectory(
    slopes: Slopes,
    here: Place,
    units: Units,
    size: float,
    steps: int,
    rng: np.random.Generator,
) -> Passed:
    """One trajectory of every chain, of as many steps, accepted or not."""
    momentum = rng.normal(size=here.u.shape)
    before = here.values - 0.5 * (momentum**2).sum(axis=1)
    new = here
    with np.errstate(all="ignore"):
        for _ in range(steps):
            momentum = momentum + 0.5 * size * units.slopes(new.by_u)
            u = new.u + size * units.outward(momentum)
            new = Place(u, *slopes(u))
            momentum = momentum + 0.5 * size * units.slopes(new.by_u)
        change = new.values - 0.5 * (momentum**2).sum(axis=1) - before
        change = np.where(np.isfinite(new.by_u).all(axis=1), change, math.nan)
        chances = np.where(np.isfinite(change), np.exp(np.minimum(change, 0.0)), 0.0)
    taken = rng.random(len(chances)) < chances
    rows = taken[:, None]
    place = Place(
        np.where(rows, new.u, here.u),
        np.where(taken, new.values, here.values),
        np.where(rows, new.by_u, here.by_u),
    )
    return Passed(place, chances, change)


@dataclass(eq=False)
class _Steps:
    """The size of steps, adapted to how often trajectories are accepted."""

    middle: float
    size: float = 0.0
    error: float = 0.0
    count: int = 0
    smooth: float = 0.0

    def __post_init__(self) -> None:
        self.size = self.middle

    def seen(self, accepted: float) -> None:
        """One more trajectory, that is accepted with a probability."""
        self.count += 1
        share = 1.0 / (self.count + STABLE)
        self.error += share * (ACCEPTED - accepted - self.error)
        size = math.log(self.middle) - math.sqrt(self.count) / RATE * self.error / 10.0
        weight = self.count**-FORGETS
        self.smooth = weight * size + (1.0 - weight) * self.smooth
        self.size = float(np.clip(math.exp(size), SHORTEST, LONGEST))

    @property
    def final(self) -> float:
        """The size to keep."""
        return float(np.clip(math.exp(self.smooth), SHORTEST, LONGEST))


@dataclass(eq=False)
class Leapfrogs:
    """Rounds of trajectories. size: of steps, found in rounds up to the first, and kept after."""

    slopes: Slopes
    size: float
    rng: np.random.Generator

    def __call__(self, starts: np.ndarray, units: Units, count: int, number: int) -> Chains:
        """So many draws of each chain; those of rounds that are not kept adapt steps, too."""
        place, steps = Place(starts, *self.slopes(starts)), _Steps(self.size)
        draft = number < 1
        before = count // 2 if draft else STEADY if number == 1 else 0
        draws, values, diverged, gradients = [], [], 0, 0
        for turn in range(-before, count):
            adapting = draft or turn < 0
            size = steps.size if adapting else self.size * self.rng.uniform(0.85, 1.15)
            (place, chances, change), taken = self._once(place, units, size)
            if adapting:
                steps.seen(float(chances.mean()))
                self.size = steps.final
            if turn >= 0:
                draws.append(place.u)
                values.append(place.values)
                diverged += int((~(abs(change) <= WILD)).sum())
                gradients += taken * len(change)
        trajectories = count * len(starts)
        if not draft and diverged > DIVERGING * trajectories:
            self.size *= SHORTER
        found = np.stack(draws, axis=1), np.stack(values, axis=1)
        return Chains(*found, trajectories, diverged, gradients)

    def _once(self, place: Place, units: Units, size: float) -> tuple[Passed, int]:
        """A trajectory of some length, and how many steps it took."""
        length = math.exp(self.rng.uniform(*np.log(LENGTHS)))
        steps = min(max(1, round(length / size)), MOST_STEPS)
        return trajectory(self.slopes, place, units, size, steps, self.rng), steps
