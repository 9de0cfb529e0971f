"""Coordinates in which a scale that may be nearly zero has no long tail: both signs of it.

Where data say no more of a scale than that it is small, its density is flat down to zero, and that
of its logarithm has a tail that chains cross slowly. Log p knows scales by their squares: with
scale = m |u| it is a smooth and even function of u, a chain may pass through zero, and |u| has the
law of the scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpyro.distributions.transforms import ExpTransform

from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.hierarchy.surface import Solved, Surface


@dataclass(frozen=True, eq=False)
class Eased:
    """L as a function of u. scales: (k,), which of t are logarithms. middle: (k,), their log m."""

    surface: Surface
    scales: np.ndarray
    middle: np.ndarray

    @classmethod
    def of(cls, surface: Surface, predictors: Predictors, middle: np.ndarray) -> Eased:
        """The surface of a program; scales in units of those at some t, as medians of priors."""
        parts = [
            np.full(predictors.length(site), _is_logarithm(predictors.coordinates.transform(site)))
            for site in predictors.theta
        ]
        return cls(surface, np.concatenate(parts), np.asarray(middle, float))

    def outward(self, u: np.ndarray) -> np.ndarray:
        """The t of rows of u, or of one."""
        size = np.where(self.scales, abs(u), 1.0)
        with np.errstate(divide="ignore"):
            bent: np.ndarray = np.where(self.scales, self.middle + np.log(size), u)
        return bent

    def inward(self, t: np.ndarray) -> np.ndarray:
        """The u of rows of t, or of one, with positive scales."""
        found: np.ndarray = np.where(self.scales, np.exp(t - self.middle), t)
        return found

    def positive(self, u: np.ndarray) -> np.ndarray:
        """The same law with positive scales."""
        found: np.ndarray = np.where(self.scales, abs(u), u)
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
        size = np.where(self.scales, u, 1.0)
        by_u = None
        if slopes is not None:
            by_u = np.where(self.scales, (slopes - 1.0) / size, slopes)
        return values - np.log(abs(size)).sum(axis=-1), by_u


def _is_logarithm(transform: Any) -> bool:
    """Whether a site is the exponential of its coordinates."""
    while hasattr(transform, "base_transform"):
        transform = transform.base_transform
    return isinstance(transform, ExpTransform)
