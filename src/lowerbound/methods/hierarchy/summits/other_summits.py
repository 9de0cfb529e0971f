"""Other summits of a surface: found from starts that are spread, and integrated with the first.

A hierarchy may be told in two ways by the same data: a short length scale with little noise or a
long one with much, a scale at zero or one that explains what else would be noise. A climb finds
one of them.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from lowerbound.cost import allowance
from lowerbound.family.numerics.smoothed import Placed, low_discrepancy
from lowerbound.family.numerics.surrogate import Frame
from lowerbound.methods.hierarchy.standardised import density_along, placed_again, standardised
from lowerbound.methods.hierarchy.summits.uphill import Evaluated, Summit, climb
from lowerbound.methods.hierarchy.surface import Solved
from lowerbound.run.walking import Phase

T = TypeVar("T")

WITHIN, CLOSE = 3.0, 5.0  # sds of a summit, and nats below it, where a climb would end there
COUNTS = 4.0  # nats by which the mass of a summit may be less than that of the first
DEEP = 1.0  # nats that a valley between two summits is below both
BETWEEN = (0.3, 0.5, 0.7)  # of the way from one to the other
FAR_BELOW = 12.0  # nats, from where on a summit has no mass whatever its width
TURNS = 3  # climbs, where the sides of a summit are higher
HIGHER = 0.3  # nats above the summit, where another climb begins
NODES = 4096  # of each summit, that proposals for all are made of
PLENTY = 0.1  # of what a fit may take, up to which other summits are looked for
ASIDE, BRIEF = 3.0, 3.0  # times what the first took, and seconds at least, for all other starts


@dataclass(frozen=True, eq=False)
class Hill:
    """The surroundings of a summit: its height, a proposal and the skew of the surface."""

    top: Solved
    placed: Placed
    frame: Frame

    @property
    def log_mass(self) -> float:
        """About the log integral of exp L around the summit."""
        s = self.placed.proposal.quantile(np.full((1, len(self.top.t)), 0.5))
        height = float(self.placed.proposal.log_prob(s)[0])
        return self.top.value + self.placed.log_volume - height

    def covers(self, one: Solved) -> bool:
        """Whether a climb that has come to a point would end at this summit."""
        near = np.linalg.norm(self.frame.inward(one.t[None])) < WITHIN
        return bool(near) and one.value > self.top.value - CLOSE


def hills(
    evaluated: Evaluated, starts: Sequence[np.ndarray]
) -> Generator[Solved, None, tuple[Hill, ...]]:
    """The summits that have mass, the first with the most; yields after every evaluation.

    The first start must come to one; from the others, further ones are looked for while there is
    plenty of time, and for no longer than some times what the first took: far from all mass a
    solution may take as long as a whole climb near it.
    """
    found: list[Hill] = []
    most = math.inf
    for start in starts:
        if found and (allowance().spent > PLENTY or evaluated.taken > most):
            break
        known, before = len(evaluated.known), evaluated.taken
        one = yield from within(_hill_from(evaluated, start, found), evaluated, most)
        if not found:
            most = evaluated.taken + max(ASIDE * (evaluated.taken - before), BRIEF)
        if one is not None:
            found.append(one)
        else:  # a path from far away says nothing of a hill that is known, and bends its surrogate
            del evaluated.known[known:]
    found.sort(key=lambda hill: -hill.log_mass)
    return tuple(hill for hill in found if hill.log_mass > found[0].log_mass - COUNTS)


def within(
    looks: Generator[Solved, None, T], evaluated: Evaluated, most: float
) -> Generator[Solved, None, T | None]:
    """What some looks come to; None where solves have taken so many seconds in all before."""
    phase = Phase(looks)
    for one in phase:
        yield one
        if evaluated.taken > most:
            return None
    return phase.outcome


def _hill_from(
    evaluated: Evaluated, start: np.ndarray, known: Sequence[Hill]
) -> Generator[Solved, None, Hill | None]:
    """Climb and standardise; again from above, where the sides turn out to be higher.

    None where the climb comes to a hill that is known, or ends far below.
    """
    hill: Hill | None = None
    for _ in range(TURNS):
        first = len(evaluated.known)
        summit = yield from _climbed(evaluated, start, known)
        if summit is None:
            return None
        hill = Hill(summit.top, *(yield from standardised(evaluated, summit)))
        best = max(evaluated.known[first:], key=lambda one: one.value, default=summit.top)
        if best.value < summit.top.value + HIGHER:
            break
        start = best.t
    return hill


def _climbed(
    evaluated: Evaluated, start: np.ndarray, known: Sequence[Hill]
) -> Generator[Solved, None, Summit | None]:
    """The summit above a start, where it is none of those known and not far below them."""
    walk, begun = Phase(climb(evaluated, start)), False
    for one in walk:
        yield one
        begun = begun or math.isfinite(one.value)
        if known and (not begun or any(hill.covers(one) for hill in known)):
            return None
    summit = walk.outcome
    highest = max((hill.top.value for hill in known), default=-math.inf)
    if known and (not summit.reached or summit.top.value < highest - FAR_BELOW):
        return None
    for hill in known:
        apart = yield from _valley(evaluated, hill.top, summit.top)
        if not apart:
            return None
    return summit


def _valley(evaluated: Evaluated, one: Solved, other: Solved) -> Generator[Solved, None, bool]:
    """Whether the surface is lower between two summits than at both."""
    lower = min(one.value, other.value) - DEEP
    for share in BETWEEN:
        found = evaluated.at((1.0 - share) * one.t + share * other.t)
        yield found
        if found.value < lower:
            return True
    return False


def together(found: Sequence[Hill]) -> tuple[Placed, Frame]:
    """One proposal over all hills, and the falls from the nearest of them."""
    first, *others = found
    if not others:
        return first.placed, first.frame
    beside = tuple((first.top.value - one.top.value, one.frame) for one in others)
    frame = replace(first.frame, beside=beside)
    shares = np.exp([hill.log_mass - first.log_mass for hill in found])
    shares = shares / shares.sum()
    draws = low_discrepancy(NODES, len(first.top.t), 3)
    t = np.concatenate([h.placed.outward(h.placed.proposal.quantile(draws)) for h in found])
    # Half by mass and half alike: a summit whose mass is guessed too low is looked at as well.
    weights = np.repeat((0.5 * shares + 0.5 / len(found)) / NODES, NODES)
    return placed_over(frame, t, weights), frame


def placed_over(frame: Frame, t: np.ndarray, weights: np.ndarray) -> Placed:
    """Coordinates and a proposal from weighted points (n, k) of a density of one hill or more.

    With more, the first axis goes from the first summit to the second, where both are as wide as
    on average: along it the proposal has two tops, and across it one.
    """
    if not frame.beside:
        return placed_again(t, weights)
    weights = weights / weights.sum()
    falls = [replace(frame, beside=()).fall(frame.inward(t))]
    falls += [lower + other.fall(other.inward(t)) for lower, other in frame.beside]
    own = np.argmin(falls, axis=0)
    inside = 1e-12 * np.eye(t.shape[1])
    for number in range(len(falls)):
        share = np.where(own == number, weights, 0.0)
        if share.sum() > 0.0:
            away = t - share @ t / share.sum()
            inside += (away * share[:, None]).T @ away
    root = np.linalg.cholesky(inside)
    way = np.linalg.solve(root, frame.beside[0][1].centre - frame.centre)
    axes = root @ _turned(way / np.linalg.norm(way))
    return density_along(weights @ t, axes, t, weights, apart=True)


def _turned(way: np.ndarray) -> np.ndarray:
    """An orthogonal matrix whose first column is a unit vector."""
    matrix = np.eye(len(way))
    matrix[:, 0] = way
    turned, upper = np.linalg.qr(matrix)
    signs: np.ndarray = turned * np.where(np.diag(upper) < 0.0, -1.0, 1.0)
    return signs
