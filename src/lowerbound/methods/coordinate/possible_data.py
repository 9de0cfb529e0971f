"""Whether any values of the discrete sites make the data possible, when a bound says none do."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from lowerbound.compiled.host import lightly
from lowerbound.errors import ImpossibleDataError, UnsupportedModelError
from lowerbound.model import Model
from lowerbound.rewrite.summing.enumerated import discrete_sites, enumerated

DRAWS = 8  # of the other sites from their prior


def check_possible(model: Model, zero: Sequence[str] = ()) -> None:
    """Raise ImpossibleDataError where the data have density zero however discrete sites are set.

    The sum over all their values is looked at for a few values of the others. Where they cannot be
    summed out, nothing is said. zero: sites that are known to have density zero.
    """
    names = discrete_sites(model)
    if not names:
        return
    try:
        summed = enumerated(model).summed()
    except UnsupportedModelError:
        return
    density = lightly(summed.log_density)
    with jax.enable_x64(True):
        for seed in range(DRAWS):
            drawn = summed.draw(jax.random.key(seed))
            if np.isfinite(float(density(drawn, dict(summed.arguments.data)))):
                return
    raise ImpossibleDataError(tuple(names), zero)
