"""Whether components of a posterior can be exchanged: then it has as many modes as orders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.compiled.host import lightly
from lowerbound.model import Model
from lowerbound.rewrite.coordinates import Coordinates

MOST: Final = 100  # components; more are units of the data
SAME: Final = 1e-9  # relative
SPREADS: Final = (0.5, 0.1, 1.0, 0.5)  # of points on the unconstrained space


def exchangeable(model: Model) -> bool:
    """Whether log p(x, z) stays the same when entries of z along some axis change places.

    Axes of one length are permuted together, in all sites: hidden units, states, components whose
    order nothing tells, neither the data nor a support. It is looked at one point of z where
    the density is positive.
    """
    lengths = sorted({n for site in model.latent.values() for n in site.shape if 1 < n <= MOST})
    if not lengths:
        return False
    coordinates = Coordinates.of(model)

    def densities(vector: Array, data: Mapping[str, Any]) -> Array:
        values = coordinates.constrain(vector, data)
        orders = [values, *({n: _moved(z, k) for n, z in values.items()} for k in lengths)]
        stacked = jax.tree.map(lambda *each: jnp.stack(each), *orders)
        return jax.vmap(lambda z: density(z, data))(stacked)

    def density(values: dict[str, Array], data: Mapping[str, Any]) -> Array:
        inside = [jnp.all(held(values[name])) for name, held in coordinates.supports.items()]
        found = model.log_density(values, data)
        return jnp.where(jnp.all(jnp.array(inside)), found, jnp.nan)  # an order is a support

    compiled, rng = lightly(densities), np.random.default_rng(0)
    for spread in SPREADS:
        point = spread * rng.standard_normal(coordinates.size)
        own, *others = np.asarray(compiled(point, model.arguments.data), float)
        if np.isfinite(own):
            return bool(np.any(np.abs(np.array(others) - own) <= SAME * max(abs(own), 1.0)))
    return False  # it is not seen


def _moved(values: Array, length: int) -> Array:
    """The entries along every axis of that length, each in the place of the next."""
    axes = [axis for axis, own in enumerate(values.shape) if own == length]
    return jnp.roll(values, 1, axes) if axes else values
