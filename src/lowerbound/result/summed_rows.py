"""Held-out densities of rows whose own latent sites are finite: these are summed out, exactly."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from lowerbound.compiled import jit
from lowerbound.cost import mapped
from lowerbound.model import Model
from lowerbound.result.new_rows import row_axes
from lowerbound.rewrite.summing.enumerated import can_be_summed, discrete_sites, enumerated


def summed_densities(model: Model, draws: Mapping[str, Array]) -> Array | None:
    """Log p(row | z) for every draw of the global sites, (draws, rows).

    None where a row has other latent sites than discrete ones that can be summed over by row.
    """
    plate, discrete = model.data_plate, discrete_sites(model)
    if plate is None or not model.local or set(model.local) != set(discrete):
        return None
    if not can_be_summed(model):
        return None
    summation, axes = enumerated(model), row_axes(model)
    covered = {term for group in summation.groups for term in group.terms}
    if covered & (set(model.latent) - set(discrete)):
        return None
    for group in summation.groups:
        if len(group.apart) < -plate.dim or group.apart[plate.dim] != plate.size:
            return None
    rest = [n for n, s in model.observed.items() if n in axes and n not in covered]
    data = {n: jnp.asarray(a) for n, a in model.arguments.data.items()}

    def by_row(log_prob: Array, axis: int) -> Array:
        others = tuple(a for a in range(log_prob.ndim) if a != axis % log_prob.ndim)
        return jnp.sum(log_prob, axis=others)

    def one(values: Mapping[str, Array]) -> Array:
        weights = summation.log_weights(values, data)
        pairs = zip(summation.groups, weights, strict=True)
        parts = [by_row(group.totals(w), plate.dim) for group, w in pairs]
        if rest:
            first = {n: jnp.asarray(a) for n, a in summation.first.items()}
            densities = model.run({**first, **values}, data)
            parts += [by_row(densities[n].log_prob(), axes[n]) for n in rest]
        return sum(parts[1:], start=parts[0])

    shared = {n: a for n, a in draws.items() if n not in discrete}
    if not shared:
        return None
    densities: Array = jit(lambda d: mapped(one, d, most=1, what="one draw"))(shared)
    return densities
