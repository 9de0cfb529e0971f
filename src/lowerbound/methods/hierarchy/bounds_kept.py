"""Coefficients with bounds: whether density and Gaussian, which ignore these, know of none."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpyro.distributions import constraints
from scipy.special import ndtr

from lowerbound.methods.hierarchy.points.integral import Integral
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.rewrite.coordinates import Coordinates

REACHED = 2e-3  # probability beyond a bound that moves a mean by less than a hundredth of its sd


def bounds(coordinates: Coordinates, site: str) -> tuple[Any, Any] | None:
    """The bounds of a site, each of whose elements lies between them; None where it has others."""
    support: Any = coordinates.supports.get(site)
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    low, high = (getattr(support, name, None) for name in ("lower_bound", "upper_bound"))
    if support is None or support.event_dim or (low is None and high is None):
        return None
    if support is constraints.circular:
        return None
    return -np.inf if low is None else low, np.inf if high is None else high


def sites_that_end(found: Predictors) -> list[str]:
    """The sites taken as though they had no bounds, at whose bounds the density ends.

    That of a uniform site goes on beyond, and so does what it says of others; log z does not.
    """
    t, begin = np.zeros(found.dimension), 0
    middle = np.zeros(found.size)
    beyond: dict[str, list[np.ndarray]] = {}
    for name in found.z:
        shape = found.coordinates.shapes[name]
        own = slice(begin, begin + int(np.prod(shape, dtype=int)))
        begin = own.stop
        if name not in found.straight:
            continue
        low, high = bounds(found.coordinates, name) or (-np.inf, np.inf)
        width = np.where(np.isfinite(high) & np.isfinite(low), high - low, 2.0)
        first = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - width, -1.0))
        places = (first + share * width for share in (0.5, -0.05, 1.05))
        inside, *outside = (np.broadcast_to(place, shape).ravel() for place in places)
        middle[own] = inside
        beyond[name] = []
        for end, place in zip((low, high), outside, strict=True):
            if np.isfinite(end).any():
                moved = np.zeros(found.size)
                moved[own] = place - inside
                beyond[name].append(moved)
    with np.errstate(all="ignore"):
        if not beyond or not np.isfinite(found.density(t, middle)):
            return []
        return [
            name
            for name, moves in beyond.items()
            if not all(np.isfinite(found.density(t, middle + move)) for move in moves)
        ]


def sites_at_bounds(one: Predictors, integral: Integral) -> list[str]:
    """The sites of which some element has more than a little of its probability beyond a bound."""
    if not one.straight:
        return []
    values = np.array([place.value for place in integral.solved])
    weights = np.exp(values - values.max())
    weights = weights / weights.sum()
    found, begin = [], 0
    for name in one.z:
        size = int(np.prod(one.coordinates.shapes[name], dtype=int))
        own = slice(begin, begin + size)
        begin += size
        ends = bounds(one.coordinates, name)
        if name not in one.straight or ends is None:
            continue
        loc = np.array([place.loc[own] for place in integral.solved])
        sd = np.sqrt([place.variance[own] for place in integral.solved])
        low, high = (
            np.broadcast_to(np.asarray(end, float), one.coordinates.shapes[name]).ravel()
            for end in ends
        )
        beyond = weights @ (ndtr((low - loc) / sd) + ndtr((loc - high) / sd))
        if beyond.max(initial=0.0) > REACHED:
            found.append(name)
    return found
