"""Coefficients with bounds: whether the Gaussian that ignores these stays within them."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from lowerbound.methods.hierarchy.finding_theta import bounds
from lowerbound.methods.hierarchy.integration import Integral
from lowerbound.methods.hierarchy.predictors import Predictors

REACHED = 2e-3  # probability beyond a bound that moves a mean by less than a hundredth of its sd


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
