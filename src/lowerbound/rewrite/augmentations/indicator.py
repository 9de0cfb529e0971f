"""The indicator behind a marginalised mixture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from lowerbound.errors import AugmentationError
from lowerbound.model.density import Stripped, strip
from lowerbound.rewrite.augmentations.site import Chosen


def indicator(site: Chosen) -> Distribution:
    """A mixture sum_k pi_k p_k as c ~ Categorical(pi) and y ~ p_c."""
    law = site.law
    if isinstance(law, dist.MixtureSameFamily):
        inside = [strip(law.component_distribution)]
    else:
        inside = [strip(component) for component in law.component_distributions]
    first = inside[0]
    kinds = {(type(s.base), s.reinterpreted) for s in inside}
    if len(kinds) > 1 or any(s.mask is not None for s in inside):
        names = ", ".join(type(s.base).__name__ for s in inside)
        raise AugmentationError.of_site(
            site.name,
            site.where,
            f"is a mixture of {names}",
            "components of one family, without masks: their parameters are indexed by the "
            "indicator",
        )
    chosen = site.auxiliary("indicator", law.mixing_distribution)
    parameters = {}
    for name in _parameters(first.base):
        columns, event = _columns(inside, name), _event_dim(first, name)
        parameters[name] = _pick(columns, columns.ndim - event - 1, chosen)
    component = type(first.base)(**parameters)
    return component.to_event(first.reinterpreted) if first.reinterpreted else component


def _parameters(law: Distribution) -> list[str]:
    if isinstance(law, dist.MultivariateNormal):
        given = ("precision_matrix", "covariance_matrix", "scale_tril")
        return ["loc", next(name for name in given if name in vars(law))]
    return [name for name in law.arg_constraints if hasattr(law, name)]


def _event_dim(inside: Stripped, name: str) -> int:
    """How many dimensions of a parameter lie after the dimension of the components."""
    constraint: Any = inside.base.arg_constraints[name]
    return int(constraint.event_dim) + inside.reinterpreted


def _columns(inside: Sequence[Stripped], name: str) -> Array:
    """A parameter of all components, with a dimension for them before its event."""
    arrays = [jnp.asarray(getattr(s.base, name)) for s in inside]
    event = _event_dim(inside[0], name)
    if len(arrays) > 1:
        shape = jnp.broadcast_shapes(*(jnp.shape(a) for a in arrays), (1,) * event)
        return jnp.stack([jnp.broadcast_to(a, shape) for a in arrays], axis=-1 - event)
    (array,) = arrays
    return array.reshape((1,) * (event + 1 - array.ndim) + array.shape)


def _pick(columns: Array, axis: int, chosen: Array) -> Array:
    """columns[..., chosen, ...] along `axis`; the dimensions before it are those of `chosen`."""
    if columns.shape[axis] == 1:
        return jnp.squeeze(columns, axis)
    if axis == 0:
        return columns[chosen]
    hot = jax.nn.one_hot(chosen, columns.shape[axis], dtype=columns.dtype)
    hot = hot.reshape((*hot.shape, *(1,) * (columns.ndim - axis - 1)))
    return jnp.sum(hot * columns, axis=axis - columns.ndim)
