"""Checks of the data that need the traced model: columns that do not vary."""

from __future__ import annotations

import numpy as np

from lowerbound.errors import ZeroVarianceError
from lowerbound.model import Model
from lowerbound.model.prior_points import distribution_at

_CONTINUOUS = ("Normal", "MultivariateNormal", "StudentT", "Laplace", "Cauchy", "LogNormal")
_SPREADS = ("scale", "scale_tril", "covariance_matrix", "precision_matrix")


def check_observed_variance(model: Model) -> None:
    """A continuous observation with a column that never varies makes variances collapse.

    Only observed data are checked (a constant column of a design matrix is an intercept), only
    where an argument is observed as it is, and only where the spread is unknown.
    """
    for site in model.observed.values():
        if site.distribution not in _CONTINUOUS or not site.shape or site.shape[0] < 3:
            continue
        for name, array in model.arguments.data.items():
            if array.shape != site.shape or not np.issubdtype(array.dtype, np.floating):
                continue
            if name in model.arguments.missing or not observes(model, site.name, name):
                continue
            flat = array.reshape(array.shape[0], -1)
            still = np.flatnonzero((flat == flat[0]).all(axis=0))
            if len(still) and has_unknown_spread(model, site.name):
                column = None if array.ndim == 1 else int(still[0])
                raise ZeroVarianceError(name, column, float(flat[0, still[0]]))


def observes(model: Model, site: str, argument: str) -> bool:
    """Whether the site observes the argument as it is (the same shape under the same name)."""
    same = [n for n, a in model.arguments.data.items() if a.shape == model.observed[site].shape]
    return same == [argument] or argument == site


def has_unknown_spread(model: Model, site: str) -> bool:
    """Whether the scale of an observed site depends on latent values: it moves with them."""
    low, high = (
        [getattr(base, name) for name in _SPREADS if name in vars(base)]
        for base in (distribution_at(model, site, normal) for normal in (-0.5, 0.5))
    )
    return not all(np.array_equal(a, b) for a, b in zip(low, high, strict=True))
