"""Log densities of the rows of a fit, each row's own sites taken out, and with the row left out."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import logsumexp

from lowerbound.cost import mapped
from lowerbound.errors import NoRowsError, NotConjugateError
from lowerbound.family.numerics.pareto import smoothed_weights
from lowerbound.model import Model
from lowerbound.model.dependence import once
from lowerbound.result.unseen.new_rows import log_densities, row_axes, rows_of
from lowerbound.result.unseen.row_integrals import (
    LOCAL_DRAWS,
    proposal_of,
    simulated_densities,
    summed_densities,
)

Values = Mapping[str, Array]


def left_out(densities: np.ndarray, log_ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log p(x_i | x_-i) and k-hat of every row, from log p(x_i | z_s) (S, rows) and weights (S,).

    A row whose density has no finite value at half of the draws has the k-hat inf.
    """
    rows = densities.shape[1]
    found, k_hats = np.full(rows, -np.inf), np.full(rows, np.inf)
    for i in range(rows):
        fine = np.isfinite(densities[:, i]) & np.isfinite(log_ratios)
        if 2 * fine.sum() < len(fine):
            continue
        column = densities[fine, i]
        log_weights, k_hats[i] = smoothed_weights(log_ratios[fine] - column)
        found[i] = logsumexp(log_weights + column)
    return found, k_hats


def row_log_densities(name: str, model: Model, values: Values) -> tuple[Array, tuple[str, ...]]:
    """Log p(x_i | z) of every row at every draw, (draws, rows), the row's own sites taken out.

    Exactly where they are finite or one block of an exponential family, else by draws of their
    factors; where they have none they stay as drawn.
    """
    if not model.local:
        return _given_all(model, values), ()
    shared = {n: a for n, a in values.items() if n in model.latent and n not in model.local}
    summed = summed_densities(model, shared) if shared else None
    if summed is not None:
        return summed, ()
    try:
        rows = rows_of(model, np.dtype(float))
    except NotConjugateError:
        missing = [n for n in model.local if n not in values]
        if missing:
            raise NoRowsError(
                name, f"'{missing[0]}' can neither be summed out of them nor drawn"
            ) from None
        text = f"Given the rows' own sites ({', '.join(model.local)}) in '{name}', as drawn."
        return _given_all(model, values), (text,)
    if rows.exact:
        return log_densities(rows, shared), ()
    proposal = proposal_of(rows, model.local)
    if proposal is None or any(site.is_factor for site in model.observed.values()):
        note = f"Densities of the rows of '{name}' are lower bounds: several sites are their own."
        return log_densities(rows, shared), (note,)
    count = len(next(iter(values.values())))
    note = (
        f"Densities of the rows of '{name}' are estimates: {LOCAL_DRAWS} draws of their own sites."
    )
    key = jax.random.key(count)
    return simulated_densities(model, shared, key, count, proposal), (note,)


def _given_all(model: Model, values: Values) -> Array:
    """Log p(x_i | z) with all latent sites given."""
    axes = row_axes(model)
    own = {n: values[n] for n in model.latent}
    data = {n: jnp.asarray(a) for n, a in model.arguments.data.items()}

    def every(values: Values, data: Values) -> Array:
        def one(values: Values) -> Array:
            densities = model.run(values, data)
            parts = []
            for name in model.observed:
                if name not in axes:
                    continue
                log_prob = densities[name].log_prob()
                others = tuple(a for a in range(log_prob.ndim) if a != axes[name])
                parts.append(log_prob.sum(axis=others))
            return sum(parts[1:], start=parts[0])

        found: Array = mapped(one, values, what="one draw")
        return found

    found: Array = once(every)(own, data)
    return found
