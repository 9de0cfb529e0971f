"""In which units z follows theta between points.

Where rows tell an effect c z closely, c z hardly moves with c, and z does; where they tell nothing,
z is what stays. So it may be followed in units of root(c^2 + c0^2), where c is below c0 in the tail
alone. Which it is, the points say: the law of each is foretold from the others, and what is nearest
to it is chosen, of each site.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lowerbound.family.densities.held_points import Units
from lowerbound.family.sparse.mixing import MixedLaw, most_change
from lowerbound.methods.hierarchy.between.known_points import Points

LOOKED_AT, PROBES = 24, 6  # points that are foretold, and draws at each
MOST, FEWER = 100_000, (2, 4)  # entries of the precision beyond which these are fewer
WIDEST = 20.0  # log of how much wider or narrower a number may be
GAIN = 0.02  # relatively, that another choice is to be better by


@dataclass(frozen=True, eq=False)
class Following:
    """The units that are chosen, and by how many nats laws are foretold wrongly in them.

    That is between points: draws are about half as far from one.
    """

    units: Units
    nats: float


def following(points: Points, ways: Sequence[Units], sites: np.ndarray) -> Following:
    """The choice among units, the first of which are none, by what the points foretell.

    It is one for all numbers of a site; sites: the number of the site of each of them.
    """
    foretold, size = _Foretold(points, ways, sites), len(sites)
    chosen = np.zeros(size, int)
    if len(ways) == 1 and len(points.pattern.rows) > MOST:
        return Following(ways[0], 0.0)
    least = foretold.miss(chosen) if len(ways) > 1 else 0.0
    for part in (np.ones(size, bool), *(sites == site for site in np.unique(sites))):
        for way, units in enumerate(ways):
            if way and not units.weights[:, part].any():
                continue
            other = np.where(part, way, chosen)
            if (missed := foretold.miss(other)) < (1.0 - GAIN) * least:
                chosen, least = other, missed
    return Following(foretold.units(chosen), foretold.nats(chosen))


@dataclass(frozen=True, eq=False)
class _Pair:
    """A point whose law is known, and another; most: how far log sds may be from those there.

    drawn: (n, d), deviations there; constant: nats.
    """

    here: int
    other: int
    true: MixedLaw
    most: np.ndarray
    drawn: np.ndarray
    constant: float


@dataclass(frozen=True, eq=False)
class _Foretold:
    """The laws of some points, as the others foretell them."""

    points: Points
    ways: Sequence[Units]
    sites: np.ndarray

    @cached_property
    def _nearest(self) -> np.ndarray:
        """The nearest other point of each."""
        s = self.points.s
        squares = (s**2).sum(axis=1)
        distance = squares[:, None] + squares - 2.0 * s @ s.T
        np.fill_diagonal(distance, np.inf)
        return np.asarray(distance.argmin(axis=1))

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
        """Some points, as they have mass, each with the nearest other one."""
        points, rng, found = self.points, np.random.default_rng(0), []
        many = len(points.pattern.rows) > MOST
        count, probes = FEWER if many else (LOOKED_AT, PROBES)
        share = (points.mass + 1e-12) / (points.mass + 1e-12).sum()
        for here in rng.choice(len(share), min(count, len(share)), replace=False, p=share):
            other = int(self._nearest[here])
            true, near = points.law(int(here)), points.law(other)
            if true is not None and near is not None and other != here:
                noise = rng.standard_normal((probes, points.loc.shape[1]))
                constant = 0.5 * (near.log_det - true.log_det - (noise**2).sum(axis=1).mean())
                variance = np.exp(2.0 * points.log_sds[other])
                most = most_change(near.entries, near.pattern, near.mixing, variance)
                drawn = near.coloured(noise)
                found.append(_Pair(int(here), other, true, most, drawn, constant))
        return found

    def units(self, chosen: np.ndarray) -> Units:
        """Those that are chosen of each number, by their place among the ways."""
        numbers = np.arange(len(chosen))
        weights = np.array([units.weights for units in self.ways])[chosen, :, numbers].T
        floor = np.array([units.floor for units in self.ways])[chosen, numbers]
        return Units(weights, floor)

    def miss(self, chosen: np.ndarray) -> float:
        """Divergences of the laws from what is foretold, of which logarithms are averaged.

        Of all of z, and of the numbers of each site by themselves: what is told closely together
        counts for most in the one, and tails of single numbers in the other.
        """
        found = (np.log1p(np.maximum(nats, 0.0)) for nats in self._divergences(chosen))
        return float(sum(nats.mean() for nats in found if nats.size))

    def nats(self, chosen: np.ndarray) -> float:
        """The divergence of all of z at the median of the points."""
        together, _ = self._divergences(chosen)
        return float(np.median(together)) if together.size else 0.0

    def _divergences(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """At each of the points, of z, and of the sites' numbers by themselves."""
        points, numbers = self.points, np.arange(len(chosen))
        sizes, together, alone = self.units(chosen).logs(points.t), [], []
        for pair in self._pairs:
            here, other = pair.here, pair.other
            fixed = sizes[other] - sizes[here]
            away = self._log_sds[here] - points.log_sds[other] - fixed
            log_scale = np.clip(fixed + np.clip(away, -pair.most, pair.most), -WIDEST, WIDEST)
            error = self._errors[chosen, here, numbers]
            squares = pair.true.squares(error + np.exp(log_scale) * pair.drawn)
            together.append(0.5 * squares.mean() - log_scale.sum() + pair.constant)
            wider = log_scale + points.log_sds[other] - points.log_sds[here]
            square = np.exp(2.0 * wider) + (error * np.exp(-points.log_sds[here])) ** 2
            alone.append(np.bincount(self.sites, 0.5 * (square - 1.0) - wider))
        return np.array(together), np.array(alone)
