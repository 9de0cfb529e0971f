"""Checks of the data that need the traced model: columns that do not vary."""

from __future__ import annotations

import numpy as np

from lowerbound.errors import ZeroVarianceError
from lowerbound.model import Model

_CONTINUOUS = ("Normal", "MultivariateNormal", "StudentT", "Laplace", "Cauchy", "LogNormal")


def check_observed_variance(model: Model) -> None:
    """A continuous observation with a column that never varies makes variances collapse.

    Only observed data are checked (a constant column of a design matrix is an intercept), and only
    where an argument is observed as it is.
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
            if len(still):
                column = None if array.ndim == 1 else int(still[0])
                raise ZeroVarianceError(name, column, float(flat[0, still[0]]))


def observes(model: Model, site: str, argument: str) -> bool:
    """Whether the site observes the argument as it is (the same shape under the same name)."""
    same = [n for n, a in model.arguments.data.items() if a.shape == model.observed[site].shape]
    return same == [argument] or argument == site
