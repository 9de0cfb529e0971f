"""A scalar density known up to its integral, as a NumPyro distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution, constraints

from lowerbound.compiled import jit
from lowerbound.family.numerics import line

if TYPE_CHECKING:
    from lowerbound.family.factors.free import Free

__all__ = ["FreeForm"]


class FreeForm(Distribution):  # type: ignore[misc]
    """The density exp(<natural, t(z)> - A) of a free-form family, with its quadrature panels.

    `finite` says, element by element, whether E z and E z^2 are.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    pytree_data_fields = ("natural", "edges", "finite", "log_normalizer")
    pytree_aux_fields = ("family",)

    def __init__(
        self,
        family: Free,
        natural: Mapping[str, Array],
        edges: Array,
        finite: Array,
        log_normalizer: Array,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.family, self.natural = family, dict(natural)
        self.edges, self.finite, self.log_normalizer = edges, finite, log_normalizer
        super().__init__(family.batch_shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)  # type: ignore[untyped-decorator]
    def support(self) -> Any:
        """The open interval of the family."""
        lower, upper = self.family.lower, self.family.upper
        below, above = math.isfinite(lower), math.isfinite(upper)
        if below and above:
            return constraints.open_interval(lower, upper)
        if below:
            return constraints.positive if lower == 0 else constraints.greater_than(lower)
        return constraints.less_than(upper) if above else constraints.real

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """The log density, -inf outside the support."""
        found: Array = _log_prob(self.family, self.natural, self.log_normalizer, value)
        return found

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws, shape sample_shape + batch."""
        found: Array = _draw(self.family, sample_shape, self.natural, self.edges, key)
        return found

    def cdf(self, value: Array) -> Array:
        """P(z < value)."""
        found: Array = _below(self.family, self.natural, self.edges, value)
        return found

    def icdf(self, q: Array) -> Array:
        """The quantiles of z."""
        found: Array = _quantile(self.family, self.natural, self.edges, q)
        return found

    @property
    def mean(self) -> Array:
        """E z, infinite where the integral diverges."""
        found: Array = _moments(self.family, self.natural, self.edges, self.finite)[0]
        return found

    @property
    def variance(self) -> Array:
        """Var z, infinite where the integral diverges."""
        found: Array = _moments(self.family, self.natural, self.edges, self.finite)[1]
        return found


# --------------------------------------------------------------------------------------------------
# Compiled once for a family and its shapes, since laws are also used outside compiled functions


Parameters = dict[str, Array]


@partial(jit, static_argnums=0)
def _log_prob(family: Free, natural: Parameters, log_normalizer: Array, value: Array) -> Array:
    z, inside = _inside(family, value, log_normalizer)
    return jnp.where(inside, family.log_density(natural, z) - log_normalizer, -jnp.inf)


@partial(jit, static_argnums=(0, 1))
def _draw(
    family: Free, shape: tuple[int, ...], natural: Parameters, edges: Array, key: Array
) -> Array:
    uniform = jax.random.uniform(key, shape + family.batch_shape, edges.dtype)
    return family.support.inside(line.invert(_table(family, natural, edges), uniform))


@partial(jit, static_argnums=0)
def _below(family: Free, natural: Parameters, edges: Array, value: Array) -> Array:
    z, inside = _inside(family, value, edges)
    shape = jnp.broadcast_shapes(z.shape, family.batch_shape)
    u = jnp.broadcast_to(family.support.line(z), shape)
    probability = line.below(_table(family, natural, edges), u)
    return jnp.where(inside, probability, jnp.where(value >= family.upper, 1.0, 0.0))


@partial(jit, static_argnums=0)
def _quantile(family: Free, natural: Parameters, edges: Array, q: Array) -> Array:
    return family.quantile(natural, q, edges)


@partial(jit, static_argnums=0)
def _moments(family: Free, natural: Parameters, edges: Array, finite: Array) -> tuple[Array, Array]:
    mean, variance = family.moments(natural, edges)
    return jnp.where(finite[0], mean, jnp.inf), jnp.where(finite[1], variance, jnp.inf)


def _table(family: Free, natural: Parameters, edges: Array) -> line.Cumulative:
    return line.cumulative(edges, family.integrate(natural, edges).probabilities)


def _inside(family: Free, value: Array, like: Array) -> tuple[Array, Array]:
    """The value where it lies in the support, a point of the support elsewhere."""
    z = jnp.asarray(value).astype(like.dtype)
    inside = (z > family.lower) & (z < family.upper)
    return jnp.where(inside, z, family.support.point(jnp.zeros_like(z)).z), inside
