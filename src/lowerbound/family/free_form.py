"""A scalar density known up to its integral, as a NumPyro distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution, constraints

from lowerbound.family import line

if TYPE_CHECKING:
    from lowerbound.family.free import Free

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
        value = jnp.asarray(value, self.log_normalizer.dtype)
        inside = (value > self.family.lower) & (value < self.family.upper)
        middle = self.family.support.point(jnp.zeros_like(value)).z
        log_density = self.family.log_density(self.natural, jnp.where(inside, value, middle))
        return jnp.where(inside, log_density - self.log_normalizer, -jnp.inf)

    def _table(self) -> line.Cumulative:
        quadrature = self.family.integrate(self.natural, self.edges)
        return line.cumulative(self.edges, quadrature.probabilities)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws, shape sample_shape + batch."""
        shape = sample_shape + self.batch_shape
        uniform = jax.random.uniform(key, shape, self.log_normalizer.dtype)
        return self.family.support.inside(line.invert(self._table(), uniform))

    def cdf(self, value: Array) -> Array:
        """P(z < value)."""
        lower, upper = self.family.lower, self.family.upper
        value = jnp.asarray(value, self.log_normalizer.dtype)
        shape = jnp.broadcast_shapes(value.shape, self.batch_shape)
        value = jnp.broadcast_to(value, shape)
        inside = (value > lower) & (value < upper)
        middle = self.family.support.point(jnp.zeros_like(value)).z
        u = self.family.support.line(jnp.where(inside, value, middle))
        return jnp.where(inside, line.below(self._table(), u), jnp.where(value >= upper, 1.0, 0.0))

    def icdf(self, q: Array) -> Array:
        """The quantiles of z."""
        return self.family.quantile(self.natural, q, self.edges)

    @property
    def mean(self) -> Array:
        """E z, infinite where the integral diverges."""
        mean, _ = self.family.moments(self.natural, self.edges)
        return jnp.where(self.finite[0], mean, jnp.inf)

    @property
    def variance(self) -> Array:
        """Var z, infinite where the integral diverges."""
        _, variance = self.family.moments(self.natural, self.edges)
        return jnp.where(self.finite[1], variance, jnp.inf)
