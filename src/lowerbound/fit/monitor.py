"""Stopping by held-out data (paper section 2.5, "Assessing convergence")."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from lowerbound.fit.engine import Engine
from lowerbound.fit.exact import exact_densities
from lowerbound.fit.predict import log_densities, log_mean_exp, new_call, rows_of
from lowerbound.model import Model, trace_model
from lowerbound.update import State

DRAWS = 20


def held_out_score(
    model: Model, monitor: Any, engine: Engine, seed: int, moved: Callable[[State], State]
) -> Callable[[State], float]:
    """The average log predictive of held-out arguments, as a function of the state.

    In closed form where there is one, else from a few draws. `moved` gives the state in the sites'
    own coordinates.
    """
    if isinstance(monitor, Mapping):
        args, kwargs = (), dict(monitor)
    else:
        args, kwargs = (monitor if isinstance(monitor, tuple) else (monitor,)), {}
    old = model.arguments.call(model.arguments.data)
    held_out = trace_model(model.function, *new_call(model, *old, args, kwargs))
    rows = rows_of(held_out, np.dtype(float))
    names = [n for n in model.latent if n not in model.local]

    def score(state: State) -> float:
        own = moved(state)
        exact = exact_densities(rows, engine.family, own)
        if exact is not None:
            return float(exact.mean())
        values = engine.family.sample(own.naturals, jax.random.key(seed), (DRAWS,))
        chosen = {n: values[n] for n in names}
        return float(log_mean_exp(log_densities(rows, chosen)).mean())

    return score
