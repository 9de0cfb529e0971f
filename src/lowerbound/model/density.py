"""One site's density in one run of the program, with NumPyro's wrappers taken off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from numpyro.distributions import Distribution, Poisson
from numpyro.distributions.distribution import (
    ExpandedDistribution,
    Independent,
    MaskedDistribution,
)

from lowerbound.errors import ShapeError


@dataclass(frozen=True)
class Density:
    """The factor log p(value | parents) that one site contributes to the log joint.

    `distribution` is the innermost distribution: expansion, `to_event` and masks are taken off.
    Its `log_prob(value)` broadcasts to `batch_shape + event_shape[:reinterpreted]`; `mask` and
    `scale` broadcast against that same shape, that is, *before* the `reinterpreted` trailing
    dimensions are summed. Arrays may be tracers.
    """

    distribution: Distribution
    value: Array
    mask: Array | bool | None
    scale: Array | float | None
    batch_shape: tuple[int, ...]
    event_shape: tuple[int, ...]
    reinterpreted: int

    @property
    def element_shape(self) -> tuple[int, ...]:
        """The shape of the density before the dimensions of `to_event` are summed."""
        return self.batch_shape + self.event_shape[: self.reinterpreted]

    def log_prob(self) -> Array:
        """Masked and scaled log density of every batch element; shape `batch_shape`."""
        elements = self.by_element()
        return jnp.sum(elements, axis=tuple(range(len(self.batch_shape), elements.ndim)))

    def by_element(self) -> Array:
        """The same before the dimensions of `to_event` are summed; shape `element_shape`."""
        shape = self.element_shape
        if self.mask is False:
            return jnp.zeros(shape)
        with numpyro.validation_enabled(False):
            distribution = _with_slope(self.distribution, self.value)
            log_prob = jnp.broadcast_to(distribution.log_prob(self.value), shape)
        if self.mask is not None and self.mask is not True:
            log_prob = jnp.where(self.mask, log_prob, 0.0)
        if self.scale is not None:
            log_prob = log_prob * self.scale
        return log_prob


def _with_slope(distribution: Distribution, value: Any) -> Distribution:
    """The distribution, with the slope of 0 log(rate) at a rate of zero 0, as it is, and not 0/0.

    A rate times a discrete site is zero for some of its values.
    """
    if not isinstance(distribution, Poisson) or distribution.is_sparse:
        return distribution
    rate = jnp.asarray(distribution.rate, float)
    smallest = jnp.where(value == 0, float(np.finfo(rate.dtype).tiny), 0.0)
    return Poisson(jnp.maximum(rate, smallest), validate_args=False)


@dataclass(frozen=True)
class Stripped:
    """A distribution without wrappers, and what the wrappers said."""

    base: Distribution
    mask: Any
    reinterpreted: int


def strip(distribution: Distribution) -> Stripped:
    """Take Independent, ExpandedDistribution and MaskedDistribution off a distribution.

    The mask is aligned with the base distribution's `log_prob`: a mask met outside `to_event`
    gets one trailing axis of length one per dimension that is reinterpreted below it.
    """
    mask: Any = None
    reinterpreted = 0
    found: list[tuple[Any, int]] = []
    while True:
        if isinstance(distribution, ExpandedDistribution):
            distribution = distribution.base_dist
        elif isinstance(distribution, Independent):
            reinterpreted += distribution.reinterpreted_batch_ndims
            distribution = distribution.base_dist
        elif isinstance(distribution, MaskedDistribution):
            found.append((distribution._mask, reinterpreted))
            distribution = distribution.base_dist
        else:
            break
    for this, outside in found:
        mask = _both(mask, _trailing(this, reinterpreted - outside))
    return Stripped(distribution, mask, reinterpreted)


def masked(distribution: Distribution, keep: Any) -> Distribution:
    """The distribution with a mask of one element per event of its innermost distribution."""
    inside = strip(distribution)
    if inside.reinterpreted == 0:
        return distribution.mask(keep)
    shape = distribution.batch_shape + distribution.event_shape[: inside.reinterpreted]
    whole = inside.base.expand(shape).mask(_both(inside.mask, keep))
    return whole.to_event(inside.reinterpreted)


class Inside(Distribution):  # type: ignore[misc]
    """A distribution whose density is zero outside of its support, whoever asks.

    NumPyro's densities leave that to the validation of values, which is off in a fit: it is for
    data, and these are checked beforehand. Not so where the support depends on latent values.
    """

    pytree_data_fields = ("base_dist",)

    def __init__(self, base_dist: Distribution) -> None:
        self.base_dist = base_dist
        super().__init__(base_dist.batch_shape, base_dist.event_shape)

    @property
    def support(self) -> Any:
        """That of the distribution inside."""
        return self.base_dist.support

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """A draw of the distribution inside."""
        draw: Array = self.base_dist.sample(key, sample_shape)
        return draw

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        """The log density, -inf for what is impossible."""
        return jnp.where(self.support(value), self.base_dist.log_prob(value), -jnp.inf)


def inside(distribution: Distribution) -> Distribution:
    """The distribution with an innermost one that has no density outside of its support."""
    stripped = strip(distribution)
    shape = distribution.batch_shape + distribution.event_shape[: stripped.reinterpreted]
    whole = Inside(stripped.base).expand(shape)
    if stripped.mask is not None:
        whole = whole.mask(stripped.mask)
    return whole.to_event(stripped.reinterpreted)


def density_of(message: dict[str, Any], where: str) -> Density:
    """The density record of one traced sample message."""
    fn, value = message["fn"], message["value"]
    stripped = strip(fn)
    value = value if isinstance(value, jax.Array) else jnp.asarray(value)
    batch_shape = broadcast_batch(message, where)
    mask = stripped.mask
    if message["is_observed"] and not (mask is None or isinstance(mask, bool)):
        value = _feasible(stripped, mask, value)
    scale = message["scale"]
    return Density(
        distribution=stripped.base,
        value=value,
        mask=mask,
        scale=None if scale is None else _trailing(scale, stripped.reinterpreted),
        batch_shape=batch_shape,
        event_shape=tuple(fn.event_shape),
        reinterpreted=stripped.reinterpreted,
    )


def broadcast_batch(message: dict[str, Any], where: str) -> tuple[int, ...]:
    """Shape of a site's log density: its distribution's batch shape broadcast with its value.

    Raises ShapeError when the two do not broadcast, or when *both* would be stretched, as when a
    column (n, 1) meets a vector (n,): that gives n x n densities, which nobody means.
    """
    fn, name = message["fn"], message["name"]
    batch, event = tuple(fn.batch_shape), tuple(fn.event_shape)
    found = tuple(np.shape(message["value"]))
    value_batch = found[: max(len(found) - len(event), 0)]
    try:
        whole = np.broadcast_shapes(batch, value_batch)
        np.broadcast_shapes(event, found[len(value_batch) :])
    except ValueError:
        whole = None
    # A value of one dimension too few would silently be broadcast along an event dimension.
    if whole is None or whole not in (batch, value_batch) or len(found) < len(event):
        raise ShapeError.of_site(name, where, batch + event, found, message["is_observed"])
    return whole


def _both(first: Any, second: Any) -> Any:
    if first is None or first is True:
        return second
    if second is None or second is True:
        return first
    if first is False or second is False:
        return False
    return jnp.logical_and(first, second)


def _trailing(array: Any, count: int) -> Any:
    if count == 0 or np.ndim(array) == 0:
        return array
    return jnp.reshape(array, np.shape(array) + (1,) * count)


def _feasible(stripped: Stripped, mask: Any, value: Array) -> Array:
    """Put a value inside the support where the mask excludes it, as NumPyro's own mask does."""
    try:
        default = stripped.base.support.feasible_like(value)
    except (NotImplementedError, AttributeError):
        return value
    inside = jnp.reshape(mask, np.shape(mask) + (1,) * stripped.base.event_dim)
    return jnp.where(inside, value, default).astype(value.dtype)
