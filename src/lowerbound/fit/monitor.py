"""Stopping by held-out data (paper section 2.5, "Assessing convergence")."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from lowerbound.family.meanfield import MeanField
from lowerbound.fit.exact import exact_densities, one_row
from lowerbound.fit.predict import log_densities, log_mean_exp, new_call, rows_of
from lowerbound.model import Model, trace_model
from lowerbound.update import State

DRAWS = 20


def given_rows(model: Model, monitor: Any) -> Model:
    """The model on held-out arguments: a dict of them by name, a tuple, or one."""
    if isinstance(monitor, Mapping):
        args, kwargs = (), dict(monitor)
    else:
        args, kwargs = (monitor if isinstance(monitor, tuple) else (monitor,)), {}
    old = model.arguments.call(model.arguments.data)
    return trace_model(model.function, *new_call(model, *old, args, kwargs), model.plate)


def scorer(held_out: Model, family: MeanField, seed: int) -> Callable[[State], float]:
    """The average log predictive of held-out rows, as a function of a state of `family`.

    In closed form where there is one, else from a few draws. The state is in the sites' own
    coordinates.
    """
    rows = rows_of(held_out, np.dtype(float))
    single = one_row(rows)
    names = [n for n in held_out.latent if n not in held_out.local]

    def score(state: State) -> float:
        exact = None if single is None else exact_densities(rows, family, state, single)
        if exact is not None:
            return float(exact.mean())
        values = family.sample(state.naturals, jax.random.key(seed), (DRAWS,))
        chosen = {n: values[n] for n in names}
        return float(log_mean_exp(log_densities(rows, chosen)).mean())

    return score
