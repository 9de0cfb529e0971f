"""How z follows theta between points: in which units, and whether its sds are stretched.

Where rows tell an effect c z closely, c z hardly moves with c, and z does; where they tell nothing,
z is what stays. So means may be interpolated in units of root(c^2 + c0^2), where c is below c0 in
the tail alone. And where sums of sites are told closely, numbers that are stretched one by one
break the sums: these are as wide as at the nearest point, in their units. Which it is, the points
say: the law of each is foretold from the others, and what is nearest to it is chosen, of each site.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from lowerbound.family.densities.held_points import Units
from lowerbound.methods.hierarchy.between.known_points import Law, Points

LOOKED_AT, PROBES = 12, 8  # points that are foretold, and draws at each
MOST, FEWER = 100_000, 4  # entries of the precision beyond which these are fewer
WIDEST = 20.0  # log of how much wider or narrower a number may be
GAIN = 0.02  # relatively, that another choice is to be better by


@dataclass(frozen=True, eq=False)
class Following:
    """units: those of the means. firm: (d,), which sds are the nearest point's in these units."""

    units: Units
    firm: np.ndarray


@dataclass(frozen=True, eq=False)
class _Choice:
    """Of each number, the units by their place in a list, and whether it is firm."""

    way: np.ndarray
    firm: np.ndarray


def following(points: Points, ways: Sequence[Units], sites: np.ndarray) -> Following:
    """The choice among units, the first of which are none, by what the points foretell.

    It is one for all numbers of a site; sites: the number of the site of each of them.
    """
    foretold, size = _Foretold(points, ways), len(sites)
    chosen = _Choice(np.zeros(size, int), np.zeros(size, bool))
    least = foretold.miss(chosen)
    for part in (np.ones(size, bool), *(sites == site for site in np.unique(sites))):
        for other in _others(chosen, ways, part):
            if (missed := foretold.miss(other)) < (1.0 - GAIN) * least:
                chosen, least = other, missed
    return Following(foretold.units(chosen), chosen.firm)


def _others(chosen: _Choice, ways: Sequence[Units], part: np.ndarray) -> Iterator[_Choice]:
    """The choices that differ in one part."""
    for way, units in enumerate(ways):
        if way and not units.weights[:, part].any():
            continue
        for firm in (False, True):
            both = np.where(part, way, chosen.way), np.where(part, firm, chosen.firm)
            yield replace(chosen, way=both[0], firm=both[1])


@dataclass(frozen=True, eq=False)
class _Pair:
    """A point whose law is known and another; deviations there (n, d), and a constant in nats."""

    here: int
    other: int
    true: Law
    drawn: np.ndarray
    constant: float


@dataclass(frozen=True, eq=False)
class _Foretold:
    """The laws of some points, as the others foretell them."""

    points: Points
    ways: Sequence[Units]

    @cached_property
    def _errors(self) -> np.ndarray:
        """Of the means, foretold in each of the units: (ways, m, d)."""
        found = []
        for units in self.ways:
            sizes = np.exp(units.logs(self.points.t))
            found.append(self.points.left_out(self.points.loc * sizes) / sizes)
        return np.array(found)

    @cached_property
    def _log_sds(self) -> np.ndarray:
        """The log sds as they are foretold."""
        found: np.ndarray = self.points.log_sds + self.points.left_out(self.points.log_sds)
        return found

    @cached_property
    def _pairs(self) -> list[_Pair]:
        """Some points of most mass, and some others, each with the nearest one."""
        points, rng, found = self.points, np.random.default_rng(0), []
        many = len(points.pattern.rows) > MOST
        count, probes = (FEWER, FEWER) if many else (LOOKED_AT, PROBES)
        order = np.argsort(-points.mass, kind="stable")
        middle, far = order[: count // 2], order[count // 2 :]
        for here in (*middle, *rng.permutation(far)[: count - len(middle)]):
            distance = ((points.s - points.s[here]) ** 2).sum(axis=1)
            distance[here] = np.inf
            other = int(distance.argmin())
            true, near = points.law(int(here)), points.law(other)
            if true is not None and near is not None and other != here:
                noise = rng.standard_normal((probes, points.loc.shape[1]))
                constant = 0.5 * (near.log_det - true.log_det - (noise**2).sum(axis=1).mean())
                found.append(_Pair(int(here), other, true, near.coloured(noise), constant))
        return found

    def units(self, choice: _Choice) -> Units:
        """Those that are chosen of each number."""
        numbers = np.arange(len(choice.way))
        weights = np.array([units.weights for units in self.ways])[choice.way, :, numbers].T
        floor = np.array([units.floor for units in self.ways])[choice.way, numbers]
        return Units(weights, floor)

    def miss(self, choice: _Choice) -> float:
        """Divergences of the laws from what is foretold, of which logarithms are averaged."""
        points, found, numbers = self.points, [], np.arange(len(choice.way))
        sizes = self.units(choice).logs(points.t)
        for pair in self._pairs:
            here, other = pair.here, pair.other
            fixed = sizes[other] - sizes[here]
            ratio = self._log_sds[here] - points.log_sds[other]
            log_scale = np.clip(np.where(choice.firm, fixed, ratio), -WIDEST, WIDEST)
            away = self._errors[choice.way, here, numbers] + np.exp(log_scale) * pair.drawn
            squares = pair.true.squares(away, points.pattern)
            nats = 0.5 * float(squares.mean()) - float(log_scale.sum()) + pair.constant
            found.append(np.log1p(max(nats, 0.0)))
        return float(np.mean(found)) if found else 0.0
