"""Points of hyperparameters with the Gaussian of z at each, and what lies between them.

Means, in units of their own, and log sds of z are linear in features of s, the standardised
hyperparameters: a constant, s itself, and a kernel through the points. The correlations are those
of the nearest anchor. Where these are strong, the sds are too, but for the units: sums of effects
may be known far better than each of them, and would not be if every effect were made wider or
narrower by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from lowerbound.family.numerics.relative import Relative
from lowerbound.family.numerics.smoothed import Smoothed
from lowerbound.family.numerics.surrogate import additive_kernel
from lowerbound.family.sparse.elimination import Pattern
from lowerbound.family.sparse.mixing import MixedLaw, Mixing, mixing_of, most_change

Parameters = Mapping[str, Any]
COMPONENTS = 512  # of the marginal law of a hyperparameter
BANDWIDTH = 0.15  # of each of them, in sds
PATTERN = ("rows", "columns", "groups")  # parameters that make the pattern of the precision
WIDEST = 1.0  # log of how much wider or narrower than at any point z may be
FARTHEST = 0.5  # of the range of means at the points, and an sd, that a mean may be beyond it
FEWEST, MOST = 128, 1024  # nodes of theta over which variances of z are averaged
AT_ONCE = 2**22  # numbers of draws that are coloured together


@dataclass(frozen=True, eq=False)
class Units:
    """Sizes root(c^2 + c0^2) of numbers of z.

    weights: (k, d), of t in log c. floor: (d,), log c0.
    """

    weights: np.ndarray
    floor: np.ndarray

    def logs(self, t: np.ndarray) -> np.ndarray:
        """The logs of the sizes at rows of t; 0 of what has no weights."""
        found = 0.5 * np.logaddexp(2.0 * (t @ self.weights), 2.0 * self.floor)
        return np.where(self.weights.any(axis=0), found, 0.0)

    def part(self, part: slice) -> Units:
        """Those of some numbers."""
        return Units(self.weights[:, part], self.floor[part])


@dataclass(frozen=True, eq=False)
class HeldPoints:
    """Parameters as they are computed with. s: (m, k), the points in standardised coordinates."""

    parameters: Parameters
    known_pattern: Pattern | None
    smoothed: Smoothed
    s: np.ndarray
    loc: np.ndarray
    precision: np.ndarray
    anchors: np.ndarray
    variance: np.ndarray
    slopes: np.ndarray
    stretches: np.ndarray
    units: Units
    inverse: np.ndarray
    lengths: np.ndarray
    shares: np.ndarray

    @classmethod
    def of(cls, parameters: Parameters, pattern: Pattern | None) -> HeldPoints:
        """Those of a density; its `pattern`, where that is known."""
        smoothed = Smoothed.of(parameters["theta"])
        s = smoothed.placed.inward(np.asarray(parameters["t"]))
        own = [f.name for f in fields(cls) if f.name != "units"][4:]
        arrays = {name: np.asarray(parameters[name]) for name in own}
        units = Units(np.asarray(parameters["units"]), np.asarray(parameters["floor"]))
        return cls(parameters, pattern, smoothed, s, units=units, **arrays)

    @cached_property
    def pattern(self) -> Pattern:
        """Where the precision has entries, and how it is factored."""
        if self.known_pattern is not None:
            return self.known_pattern
        rows, columns, groups = (np.asarray(self.parameters[n]) for n in PATTERN)
        return Pattern.of(rows, columns, len(groups), groups)

    @cached_property
    def relative(self) -> Relative | None:
        """How hyperparameters are told relative to each other, where they are."""
        known = self.parameters.get("relative")
        return None if known is None else Relative.of({n: np.asarray(a) for n, a in known.items()})

    def outward(self, r: np.ndarray) -> np.ndarray:
        """The unconstrained hyperparameters at rows of what the density is of."""
        found: np.ndarray = r if self.relative is None else self.relative.outward(r)
        return found

    @cached_property
    def nodes(self) -> np.ndarray:
        """The unconstrained hyperparameters at the nodes of their density."""
        return self.outward(self.smoothed.placed.outward(self.smoothed.nodes))

    @cached_property
    def kernel_nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Places t and widths of narrow laws whose equal mixture has the moments of q(t)."""
        smoothed = self.smoothed
        # In the order of one coordinate, so that its quantiles are even.
        order = np.argsort(smoothed.nodes[:, 0], kind="stable")
        total = np.cumsum(smoothed.weights[order])
        goal = (np.arange(COMPONENTS) + 0.5) / COMPONENTS * total[-1]
        chosen = order[np.minimum(np.searchsorted(total, goal), len(order) - 1)]
        t, shares = self.nodes[chosen], smoothed.weights / total[-1]
        mean = shares @ self.nodes
        sd = np.sqrt(shares @ (self.nodes - mean) ** 2)
        standard = (t - t.mean(axis=0)) / t.std(axis=0)
        shrunk = mean + standard * sd * math.sqrt(1.0 - BANDWIDTH**2)
        return shrunk, BANDWIDTH * sd

    def law(self, anchor: int) -> MixedLaw:
        """The law of the deviations of z at an anchor."""
        entries = self.precision[anchor]
        factor = self.pattern.factor(entries)
        assert factor is not None, "a stored precision is not positive definite"
        return MixedLaw(self.pattern, entries, factor, self.mixing(anchor))

    def mixing(self, anchor: int) -> Mixing | None:
        """How z is made of what the precision at an anchor is of; None where it is that itself."""
        if "mixing" not in self.parameters:
            return None
        return mixing_of(self.parameters, np.asarray(self.parameters["mixing"])[anchor], self.size)

    @property
    def size(self) -> int:
        """How many numbers z has."""
        return int(self.loc.shape[1])

    def nearest(self, s: np.ndarray) -> np.ndarray:
        """The anchor whose cell each row of s is in."""
        anchors = self.s[self.anchors]
        squares = (anchors**2).sum(axis=1) - 2 * s @ anchors.T
        return np.asarray(squares.argmin(axis=1))

    def features(self, s: np.ndarray) -> np.ndarray:
        """What means and log sds of z are linear in, at rows of s: (n, 1 + k + m)."""
        kernel = additive_kernel(s, self.s, self.lengths, self.shares)
        return np.concatenate([np.ones((len(s), 1)), s, kernel @ self.inverse], axis=1)

    def means(self, s: np.ndarray, part: slice = slice(None)) -> np.ndarray:
        """The means of some entries of z at rows of s.

        What is followed in units is divided by these: where they are small, an error in them is
        large in z, whose mean is then held near those of the points.
        """
        found: np.ndarray = self.features(s) @ self._means(part)
        units = self.units.part(part)
        if units.weights.any():
            found *= np.exp(-units.logs(self.smoothed.placed.outward(s)))
            known = self.loc[:, part]
            low, high = known.min(axis=0), known.max(axis=0)
            sd = np.sqrt(self.variance[:, part].max(axis=0))
            beyond = np.where(units.weights.any(axis=0), FARTHEST * (high - low) + sd, np.inf)
            np.clip(found, low - beyond, high + beyond, out=found)
        return found

    def _means(self, part: slice) -> np.ndarray:
        sizes = np.exp(self.units.part(part).logs(np.asarray(self.parameters["t"])))
        return self._linear(self.loc[:, part] * sizes, self.slopes[:, part])

    def log_sds(self, s: np.ndarray, part: slice = slice(None)) -> np.ndarray:
        """The log sds of some entries of z at rows of s."""
        known = 0.5 * np.log(self.variance[:, part])
        found = self.features(s) @ self._linear(known, self.stretches[:, part])
        inside: np.ndarray = np.clip(found, known.min(axis=0) - WIDEST, known.max(axis=0) + WIDEST)
        return inside

    def _linear(self, known: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        """The coefficients of the features: a constant, slopes, and what is left at the points."""
        rest = known - self.s @ slopes
        middle = np.median(rest, axis=0)
        return np.concatenate([middle[None], slopes, rest - middle])

    def few_nodes(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The first nodes s of q(theta), of low discrepancy, and their weights, of sum one."""
        weights = self.smoothed.weights[:count]
        return self.smoothed.nodes[:count], weights / weights.sum()

    @cached_property
    def _feature_moments(self) -> tuple[np.ndarray, np.ndarray]:
        s, weights = self.few_nodes(len(self.smoothed.nodes) // 4)
        features = self.features(s)
        mean = weights @ features
        away = features - mean
        return mean, (away * weights[:, None]).T @ away

    def moments(self, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of some entries of z."""
        width = self.loc[:, part].shape[1]
        s, weights = self.few_nodes(max(FEWEST, min(MOST, AT_ONCE // max(width, 1))))
        within = weights @ np.exp(2 * self.log_sds(s, part))
        if self.units.weights[:, part].any():
            means = self.means(s, part)
            mean = weights @ means
            return mean, weights @ (means - mean) ** 2 + within
        mean, spread = self._feature_moments
        linear = self._means(part)
        between = (linear * (spread @ linear)).sum(axis=0)
        return mean @ linear, between + within

    @cached_property
    def _most_change(self) -> np.ndarray:
        """How far log sds may be from those of an anchor in units, (a, d)."""
        found = [
            most_change(self.precision[n], self.pattern, self.mixing(n), variance)
            for n, variance in enumerate(self.variance[self.anchors])
        ]
        return np.array(found)

    def _log_scales(self, t: np.ndarray, s: np.ndarray, nearest: np.ndarray) -> np.ndarray:
        """The logs of how much wider z is than at the nearest anchor."""
        own = self.anchors[nearest]
        there = self.units.logs(np.asarray(self.parameters["t"])[own]) - self.units.logs(t)
        away = self.log_sds(s) - 0.5 * np.log(self.variance[own]) - there
        most = self._most_change[nearest]
        found: np.ndarray = there + np.clip(away, -most, most)
        return found

    def given(self, t: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draws of z at rows of t."""
        return self._drawn(t, rng, False)[0]

    def weighed(self, t: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draws of z at rows of t, and log q(z | t) of each: with one factor of each anchor."""
        return self._drawn(t, rng, True)

    def near_few(self, t: np.ndarray, most: int) -> np.ndarray:
        """The rows of t that are nearest to so many anchors, those with the most rows."""
        nearest = self.nearest(self.smoothed.placed.inward(t))
        common = np.argsort(-np.bincount(nearest), kind="stable")[:most]
        return t[np.isin(nearest, common)]

    def _drawn(
        self, t: np.ndarray, rng: np.random.Generator, weigh: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        s = self.smoothed.placed.inward(t)
        nearest = self.nearest(s)
        drawn = self.means(s)
        logs = self._log_scales(t, s, nearest)
        size = drawn.shape[1]
        log_q = -logs.sum(axis=1) - 0.5 * size * math.log(2 * math.pi)
        if not size:
            return drawn, log_q
        most = max(1, AT_ONCE // size)
        for anchor in np.unique(nearest):
            own = np.flatnonzero(nearest == anchor)
            law = self.law(int(anchor))
            for start in range(0, len(own), most):
                some = own[start : start + most]
                away = law.coloured(rng.standard_normal((size, len(some))).T)
                drawn[some] += np.exp(logs[some]) * away
                if weigh:
                    log_q[some] += 0.5 * (law.log_det - law.squares(away))
        return drawn, log_q

    def log_given(self, t: np.ndarray, z: np.ndarray) -> np.ndarray:
        """Log q(z | t) of rows."""
        if not z.shape[1] or not len(t):
            return np.zeros(len(t))
        s = self.smoothed.placed.inward(t)
        nearest = self.nearest(s)
        scales = self._log_scales(t, s, nearest)
        error = (z - self.means(s)) * np.exp(-scales)
        found = np.empty(len(t))
        for anchor in np.unique(nearest):
            own, law = np.flatnonzero(nearest == anchor), self.law(int(anchor))
            found[own] = 0.5 * (law.log_det - law.squares(error[own]))
        found -= scales.sum(axis=1) + 0.5 * z.shape[1] * math.log(2 * math.pi)
        return found
