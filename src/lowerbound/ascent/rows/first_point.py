"""Where a Gaussian by rows starts: near the median of the prior, or at given values."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from lowerbound.ascent.rows.climb import Point
from lowerbound.ascent.rows.objective import Objective
from lowerbound.ascent.rows.row_gaussians import begun
from lowerbound.errors import ArgumentError

FULL_ROW, FULL_SHARED = 10, 100  # numbers up to which a covariance is full
_WIDTH_OWN, _WIDTH_SHARED, _APART = 0.3, 0.1, 0.1


def first_point(whole: Objective, rank: str, given: Mapping[str, Any], seed: int) -> Point:
    """The parameters as they start, and q near the median of the prior, a little apart."""
    rng = np.random.default_rng(seed)
    coordinates, data = whole.coordinates, whole.model.arguments.data
    normal = _APART * rng.standard_normal(coordinates.size)
    places = [normal]
    with contextlib.suppress(NotImplementedError, TypeError, ValueError):  # without quantiles
        prior = whole.jitted("prior", lambda own: own.coordinates.prior)
        places.insert(0, np.asarray(prior(normal, data), float))
    free, density = whole.start(), whole.jitted("log joint", lambda own: own.log_joint)
    for vector in places:
        vector = _placed(whole, vector, given)
        own, shared = vector[whole.own], vector[whole.shared]
        if np.isfinite(float(density(free, own, shared, whole.data(), None))):
            own_full = full_rank(rank, own.shape[-1], FULL_ROW)
            shared_full = full_rank(rank, shared.shape[-1], FULL_SHARED)
            return Point(
                free,
                begun(own, _WIDTH_OWN, own_full),
                begun(shared, _WIDTH_SHARED, shared_full),
            )
    raise ArgumentError(
        "The log density is not finite at the median of the prior, nor at zero, with the "
        "parameters as they start.\nExpected a finite density there. Start the parameters, or the "
        "latent sites, elsewhere: lb.EM(init={...})."
    )


def full_rank(rank: str, size: int, most: int) -> bool:
    """Whether a covariance of some size is full."""
    return size > 1 and (rank == "full" or (rank == "auto" and size <= most))


def _placed(whole: Objective, vector: np.ndarray, given: Mapping[str, Any]) -> np.ndarray:
    """A vector u with some sites at given values."""
    vector = vector.copy()
    for site, value in given.items():
        transform = whole.coordinates.transform(site)
        if transform is not None:
            shape = whole.model.latent[site].shape
            part = transform.inv(np.broadcast_to(np.asarray(value, float), shape))
            vector[whole.coordinates.part(site)] = np.ravel(part)
    return vector
