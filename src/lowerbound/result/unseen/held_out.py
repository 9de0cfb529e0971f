"""Stopping by held-out data (paper section 2.5, "Assessing convergence")."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent import State
from lowerbound.compiled import jit
from lowerbound.family.meanfield import MeanField
from lowerbound.model import Model, trace_model
from lowerbound.result.unseen.closed_form import exact_densities, one_row
from lowerbound.result.unseen.new_rows import Rows, log_densities, log_mean_exp, new_call, rows_of

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

    In closed form where there is one. Otherwise its lower bound, the ELBO of each row given the
    global factors (eq:elbo with the local variables as z), which costs one search for local
    factors; from a few draws where the rows' global blocks are not those of the fit. The state is
    in the sites' own coordinates.
    """
    rows = rows_of(held_out, np.dtype(float))
    single = one_row(rows)
    names = [n for n in held_out.latent if n not in held_out.local]
    numbers = same_blocks(rows, family)

    def score(state: State) -> float:
        exact = None if single is None else exact_densities(rows, family, state, single)
        if exact is not None:
            return float(exact.mean())
        if numbers is not None:
            return float(_bounds(rows, tuple(state.means[n] for n in numbers)).mean())
        values = family.sample(state.naturals, jax.random.key(seed), (DRAWS,))
        chosen = {n: values[n] for n in names}
        return float(log_mean_exp(log_densities(rows, chosen)).mean())

    return score


def same_blocks(rows: Rows, family: MeanField) -> tuple[int, ...] | None:
    """For each global block of the rows the block of `family` with the same statistics."""
    mine = {(b.sites, b.kind, b.batch_shape): b.number for b in family.blocks}
    shared = [b for b in rows.engine.joint.blocks if b.number not in rows.local]
    found = [mine.get((b.sites, b.kind, b.batch_shape)) for b in shared]
    return None if None in found else tuple(n for n in found if n is not None)


def _bounds(rows: Rows, means: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """The ELBO of each row, given the means of the global factors."""
    engine = rows.engine
    key = "bounds of rows"
    if key not in engine.compiled:
        shared = [b.number for b in engine.joint.blocks if b.number not in rows.local]

        def bounds(data: Mapping[str, Array], means: Sequence[Mapping[str, Array]]) -> Array:
            given = dict(zip(shared, means, strict=True))
            every = tuple(dict(given.get(n, {})) for n in range(len(engine.joint.blocks)))
            return rows.bound(data, every)

        engine.compiled[key] = jit(bounds)
    data = {name: jnp.asarray(array) for name, array in rows.data().items()}
    return np.asarray(engine.compiled[key](data, tuple(means)))
