"""Coordinates in which the logarithm of a scale has no long tail.

Where data say no more of a scale than that it is small, the density of its logarithm x falls like
exp(x): chains cross such a tail slowly, and curves through points miss it. With x = m + u -
log(1 + exp(-u))^2 / 2 it falls like a normal law of u; far above m, x is m + u.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpyro.distributions.transforms import ExpTransform

from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.hierarchy.surface import Solved, Surface

HALVINGS = 100
FAR = 1e4  # beyond the logarithm of any number


@dataclass(frozen=True, eq=False)
class Eased:
    """L as a function of u. scales: (k,), which of t are logarithms. middle: (k,), m of these."""

    surface: Surface
    scales: np.ndarray
    middle: np.ndarray

    @classmethod
    def of(cls, surface: Surface, predictors: Predictors, middle: np.ndarray) -> Eased:
        """The surface of a program, eased around some t, as that of the medians of priors."""
        parts = [
            np.full(predictors.length(site), _is_logarithm(predictors.coordinates.transform(site)))
            for site in predictors.theta
        ]
        return cls(surface, np.concatenate(parts), np.asarray(middle, float))

    def outward(self, u: np.ndarray) -> np.ndarray:
        """The t of rows of u, or of one."""
        bent: np.ndarray = np.where(self.scales, self.middle + _eased(u), u)
        return bent

    def inward(self, t: np.ndarray) -> np.ndarray:
        """The u of rows of t, or of one: by halving, as the map has no inverse in closed form."""
        wanted = np.where(self.scales, t - self.middle, 0.0)
        low, high = np.full_like(wanted, -np.sqrt(2.0 * FAR)), np.full_like(wanted, FAR)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            below = _eased(middle) < wanted
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        found: np.ndarray = np.where(self.scales, 0.5 * (low + high), t)
        return found

    def __call__(self, u: np.ndarray, starts: Sequence[Solved], slope: bool) -> Solved | None:
        """The solution at u, whose value has log |dt/du|."""
        del starts  # what is exact needs none
        found = self.surface(self.outward(u), (), slope)
        if found is None:
            return None
        value, by_u = self.moved(u, np.array(found.value), found.slope)
        return replace(found, t=u, value=float(value), slope=by_u)

    def moved(
        self, u: np.ndarray, values: np.ndarray, slopes: np.ndarray | None
    ) -> tuple[np.ndarray, Any]:
        """L of u and its slopes, at one u or at rows of them, from those of t."""
        below, share = np.logaddexp(0.0, -u), 1.0 / (1.0 + np.exp(np.clip(u, -500.0, 500.0)))
        stretch = np.where(self.scales, 1.0 + below * share, 1.0)
        bend = np.where(self.scales, -share * (share + below * (1.0 - share)), 0.0)
        by_u = None if slopes is None else slopes * stretch + bend / stretch
        return values + np.log(stretch).sum(axis=-1), by_u


def _eased(u: np.ndarray) -> np.ndarray:
    moved: np.ndarray = u - 0.5 * np.logaddexp(0.0, -u) ** 2
    return moved


def _is_logarithm(transform: Any) -> bool:
    """Whether a site is the exponential of its coordinates."""
    while hasattr(transform, "base_transform"):
        transform = transform.base_transform
    return isinstance(transform, ExpTransform)
