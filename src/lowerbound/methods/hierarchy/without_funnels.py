"""Hyperparameters whose prior has the scale of another: coordinates in which these make no funnel.

Discriminations of items, or scales of groups, around a common one: theta ~ LogNormal(m, s) with s
part of theta has its summit where s is zero, far from the mass. What is integrated is then told
relative to the others, with regard to what the data say of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.compiled import quickly
from lowerbound.family.numerics.relative import Relative, relative_of
from lowerbound.methods.gaussian.centring import location_scale_sites
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.hierarchy.summits.uphill import Summit
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.rewrite.noncentred import LOCATION_SCALE

LITTLE = 0.05  # of the curvature of the prior, that does not matter


def relative_for(coordinates: Coordinates, theta: Sequence[str]) -> Relative | None:
    """How numbers of theta are told relative to others; None where no scale of one is another."""
    model = coordinates.program()
    names = [name for name in theta[1:] if model.latent[name].distribution in LOCATION_SCALE]
    found = location_scale_sites(model) if names else {}
    names = [name for name in names if found.get(name, {"scale": False})["scale"]]
    if not names:
        return None
    lengths = [int(np.prod(coordinates.shapes[name], dtype=int)) for name in theta]
    begins = np.cumsum([0, *lengths])
    before = np.zeros(begins[-1], int)
    for name, begin, end in zip(theta, begins, begins[1:], strict=False):
        before[begin:end] = begin if name in names else 0

    def one(normal: jax.Array, data: Mapping[str, Any]) -> jax.Array:
        parts = {n: jnp.zeros(shape) for n, shape in coordinates.shapes.items()}
        for name, begin, end in zip(theta, begins, begins[1:], strict=False):
            parts[name] = normal[begin:end].reshape(coordinates.shapes[name])
        whole = jnp.concatenate([jnp.ravel(part) for part in parts.values()])
        return coordinates.prior(whole, data, theta)

    compiled = quickly(jax.vmap(one, in_axes=(0, None)))
    data = dict(model.arguments.data)
    with jax.enable_x64(True):
        return relative_of(lambda rows: np.asarray(compiled(rows, data)), before)


def density_in(
    coordinates: Coordinates,
    theta: Sequence[str],
    z: Sequence[str],
    data: Sequence[str],
    relative: Relative | None,
) -> Callable[..., Array]:
    """Log p and log |dtheta/dt| of theta, z and data; or of r in place of theta, with the map."""

    def density(*inputs: Any) -> Array:
        sites = dict(zip((*theta, *z), inputs, strict=False))
        given = dict(zip(data, inputs[len(sites) :], strict=False))
        if relative is None:
            return coordinates.log_density_at(sites, given)
        own = Relative(*inputs[len(sites) + len(given) :])
        t = own.outward(jnp.concatenate([jnp.ravel(sites[name]) for name in theta]), relative.depth)
        ends = np.cumsum([sites[name].size for name in theta])
        for name, part in zip(theta, jnp.split(t, ends[:-1]), strict=True):
            sites[name] = part.reshape(sites[name].shape)
        return jnp.asarray(coordinates.log_density_at(sites, given) + own.log_volume(t))

    return density


def told_by_data(summit: Summit, relative: Relative) -> Relative:
    """The map with what the data say of each number, as it is seen at a summit in r.

    What is known of a number there, beyond its prior, comes from the data.
    """
    t = relative.outward(summit.top.t)
    level, log_scale = relative.prior(t)
    prior = np.exp(-2.0 * log_scale)
    known = np.diag(np.linalg.inv(summit.spread)) / relative.variance(t)
    told = np.where(relative.members & (known > (1.0 + LITTLE) * prior), known - prior, 0.0)
    with np.errstate(all="ignore"):
        place = np.where(told > 0.0, t + (t - level) * prior / told, 0.0)
    return replace(relative, told=told, place=place)


def with_map(predictors: Predictors, relative: Relative) -> Predictors:
    """The predictors with the numbers of theta relative to each other by another map."""
    own = tuple(relative.arrays().values())
    leaves = (*predictors.leaves[: -len(own)], *own)
    back = None if predictors.back is None else replace(predictors.back, leaves=leaves)
    return replace(predictors, leaves=leaves, back=back, relative=relative)
