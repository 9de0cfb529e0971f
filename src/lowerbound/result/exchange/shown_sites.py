"""q of the sites that are shown: without auxiliary ones, or of some alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lowerbound.errors import NoDensityError
from lowerbound.family.variational import marginal_without

if TYPE_CHECKING:
    from lowerbound.result.fitted import Fit

NO_DENSITY = "the fit is made of draws, which have no density"
NO_MARGINAL = "q has no density of these sites alone"


def log_density(fit: Fit, drawn: Mapping[str, np.ndarray]) -> np.ndarray | str:
    """Log q of draws of some sites (S,), the others integrated out; or why there is none."""
    hidden = _hidden(fit, drawn)
    marginal = None if hidden is None else marginal_without(fit.q.family, fit.q.parameters, hidden)
    if marginal is None:
        return NO_MARGINAL
    family, parameters = marginal
    try:
        return replace(fit.q, family=family, parameters=parameters).log_prob(drawn)
    except NoDensityError:
        return NO_DENSITY


def _hidden(fit: Fit, shown: Collection[str]) -> list[str] | None:
    """The sites of q that are not shown; None where only the data would tell."""
    if not fit.answer.augment:
        return [name for name in fit.sites if name not in shown]
    if not fit.has_data:
        return None
    return [name for name in fit.model().latent if name not in shown]
