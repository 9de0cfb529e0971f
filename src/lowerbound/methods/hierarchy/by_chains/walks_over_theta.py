"""Chains over hyperparameters: Hamiltonian trajectories along a surface with slopes.

Chains are few and their steps are dear, so they learn from each other: one step size by the
acceptance of all (Hoffman & Gelman 2014, section 3.2), one metric by the draws of all, and lengths
of trajectories around a quarter of a turn, after which a draw of a normal law forgets the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import numpy as np

# Values (c,) and slopes (c, k) of L at rows u (c, k); not finite where there is none.
Slopes = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

CHAINS = 4
SPREADS = 1.0, 0.5, 0.2, 0.05  # of the axes, around a summit
WARM, STEADY = (30, 60), 40  # draws of each chain before the metric is looked at again, and after
ACCEPTED = 0.9  # the share of trajectories: the ends of scales are steep
# Of trajectories, where the law has a variance of one: a quarter of a turn, and longer ones, which
# go down a tail and come back.
LENGTHS = 1.0, 4.0
MOST_STEPS = 60  # of a trajectory
DIVERGING, SHORTER = 0.005, 0.6  # share of trajectories, from which on steps are so much shorter
WILD = 50.0  # nats of energy that a trajectory has lost or won when it has diverged
RATE, STABLE, FORGETS = 0.05, 10.0, 0.75  # of the adaptation of steps


@dataclass(frozen=True, eq=False)
class Chains:
    """Draws (c, n, k) of u, L at them (c, n), slopes taken in all, and trajectories diverged."""

    draws: np.ndarray
    values: np.ndarray
    slopes: int
    diverged: int

    @property
    def count(self) -> int:
        """How many draws there are."""
        return int(self.values.size)


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
        self.size = float(np.clip(math.exp(size), 1e-3, 1.5))

    @property
    def final(self) -> float:
        """The size to keep."""
        return float(np.clip(math.exp(self.smooth), 1e-3, 1.5))


@dataclass(eq=False)
class _Walking:
    """Chains on the way. root: (k, k), so that u = root s has about a variance of one in s.

    u: (c, k), values: (c,), by_u: (c, k), where they are, L there and its slopes.
    """

    slopes: Slopes
    root: np.ndarray
    u: np.ndarray
    values: np.ndarray
    by_u: np.ndarray
    rng: np.random.Generator
    taken: int = 0
    diverged: int = 0
    history: list[np.ndarray] = field(default_factory=list)
    known: list[np.ndarray] = field(default_factory=list)

    def round(self, size: float) -> float:
        """One draw of every chain, all of as many steps; the mean probability of acceptance."""
        momentum = self.rng.normal(size=self.u.shape)
        before = self.values - 0.5 * (momentum**2).sum(axis=1)
        length = math.exp(self.rng.uniform(*np.log(LENGTHS)))
        count = min(max(1, round(length / size)), MOST_STEPS)
        u, values, by_u = self.u, self.values, self.by_u
        for _ in range(count):
            momentum = momentum + 0.5 * size * (by_u @ self.root)
            u = u + size * (momentum @ self.root.T)
            with np.errstate(all="ignore"):
                values, by_u = self.slopes(u)
            momentum = momentum + 0.5 * size * (by_u @ self.root)
        self.taken += count * len(u)
        with np.errstate(all="ignore"):
            change = values - 0.5 * (momentum**2).sum(axis=1) - before
            lost = ~(np.isfinite(change) & np.isfinite(by_u).all(axis=1))
            self.diverged += int((lost | (abs(change) > WILD)).sum())
            chances = np.where(lost, 0.0, np.exp(np.minimum(change, 0.0)))
        taken = self.rng.random(len(u)) < chances
        self.u = np.where(taken[:, None], u, self.u)
        self.values = np.where(taken, values, self.values)
        self.by_u = np.where(taken[:, None], by_u, self.by_u)
        self.history.append(self.u)
        self.known.append(self.values)
        return float(chances.mean())


def walked(
    slopes: Slopes, centres: Sequence[tuple[np.ndarray, np.ndarray]], seed: int, draws: int
) -> Generator[Chains, None, None]:
    """Chains from around summits, each with axes (k, k); yields after every `draws` of each chain.

    Chains begin at summits in turn, so that those which stay at theirs do not agree.
    """
    rng = np.random.default_rng(seed)
    chosen = [centres[number % len(centres)] for number in range(CHAINS)]
    k = len(centres[0][0])
    u = np.stack([centre for centre, _ in chosen])
    values, by_u = slopes(u)
    for spread in SPREADS:  # as far away as all of them have a value
        away = [axes @ rng.normal(size=k) for _, axes in chosen]
        there = u + spread * np.stack(away)
        found = slopes(there)
        if all(np.isfinite(array).all() for array in found):
            u, (values, by_u) = there, found
            break
    walking = _Walking(slopes, centres[0][1], u, values, by_u, rng)
    size = 0.9 * k**-0.25
    for count in (*WARM, STEADY):
        steps = _Steps(size)
        begin = len(walking.history)
        for _ in range(count):
            steps.seen(walking.round(steps.size))
        size = steps.final
        if count != STEADY:
            some = np.concatenate(walking.history[begin + count // 3 :])
            walking.root = _root(some, walking.root)
    first, walking.diverged = len(walking.history), 0
    while True:
        before = walking.diverged
        for _ in range(draws):
            walking.round(size * rng.uniform(0.85, 1.15))
        if walking.diverged - before > DIVERGING * draws * CHAINS:
            size *= SHORTER
        yield Chains(
            np.stack(walking.history[first:], axis=1),
            np.stack(walking.known[first:], axis=1),
            walking.taken,
            walking.diverged,
        )


def _root(draws: np.ndarray, root: np.ndarray) -> np.ndarray:
    """A root of the covariance of draws; of few, what was known counts for as many as numbers."""
    inside = np.linalg.solve(root, (draws - draws.mean(axis=0)).T)
    n, k = draws.shape
    spread = (inside @ inside.T + (5.0 + k) * np.eye(k)) / (n + 5.0 + k)
    found: np.ndarray = root @ np.linalg.cholesky(spread)
    return found
