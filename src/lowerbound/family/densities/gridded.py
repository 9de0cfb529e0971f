"""Densities known on a grid: an interpolated density of a scalar, a mixture over the nodes."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp
from numpyro.distributions import Distribution
from numpyro.distributions.transforms import Transform

__all__ = ["Interpolated", "NodeMixture", "usable"]

NEGLIGIBLE = 1e-6  # the weight of a node that may be left out


class _WithMoments(Distribution):  # type: ignore[misc]
    """A law whose mean and variance are known beside it."""

    moments: tuple[Array, Array]

    @property
    def mean(self) -> Array:
        """E x."""
        return self.moments[0]

    @property
    def variance(self) -> Array:
        """Var x."""
        return self.moments[1]


class Interpolated(_WithMoments):
    """A scalar x = transform(u) whose log density in u is linear between equally spaced knots.

    Cumulative probabilities and quantiles are in closed form. `moments` are the mean and variance
    of x, known more exactly from elsewhere.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    pytree_data_fields = ("low", "step", "log_density", "moments", "transform")

    def __init__(
        self,
        low: Array,
        step: Array,
        log_density: Array,
        moments: tuple[Array, Array],
        transform: Transform,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.low, self.step, self.moments, self.transform = low, step, moments, transform
        self.log_density = log_density - jnp.log(_masses(log_density).sum() * step)
        super().__init__(batch_shape=(), event_shape=(), validate_args=validate_args)

    @property
    def support(self) -> Any:
        """Where x may be."""
        return self.transform.codomain

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """The interpolated log density; -inf beyond the knots."""
        u = self.transform.inv(value)
        place = (u - self.low) / self.step
        knots = jnp.arange(len(self.log_density))
        inside = (place >= 0) & (place <= len(knots) - 1)
        log_density = jnp.interp(place, knots, self.log_density)
        jacobian = self.transform.log_abs_det_jacobian(u, value)
        value_density: Array = jnp.where(inside, log_density, -jnp.inf) - jacobian
        return value_density

    def cdf(self, value: Array) -> Array:
        """P(x <= value)."""
        place = (self.transform.inv(value) - self.low) / self.step
        log_density = jnp.asarray(self.log_density)  # NumPy's has no traced places
        place = jnp.clip(place, 0.0, len(log_density) - 1.0)
        cell = jnp.clip(place.astype(int), 0, len(log_density) - 2)
        left, slope = log_density[cell], jnp.diff(log_density)[cell]
        part = jnp.exp(left) * _integral(slope, place - cell)
        below = (self._cumulative()[cell] + part) * self.step
        return jnp.where(self._rises(), below, 1.0 - below)

    def icdf(self, q: Array) -> Array:
        """The quantile of probability q."""
        q = jnp.where(self._rises(), q, 1.0 - jnp.asarray(q))
        cumulative, log_density = self._cumulative(), jnp.asarray(self.log_density)
        goal = q * cumulative[-1]
        cell = jnp.searchsorted(cumulative, goal, side="right") - 1
        cell = jnp.clip(cell, 0, len(log_density) - 2)
        share = (goal - cumulative[cell]) * jnp.exp(-log_density[cell])
        slope = jnp.diff(log_density)[cell]
        flat = abs(slope) < 1e-8
        safe = jnp.where(flat, 1.0, slope)
        within = jnp.where(flat, share, jnp.log1p(jnp.maximum(share * safe, -1.0)) / safe)
        value: Array = self.transform(self.low + self.step * (cell + jnp.clip(within, 0.0, 1.0)))
        return value

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws, by inversion."""
        return self.icdf(jax.random.uniform(key, sample_shape, dtype=float))

    def _cumulative(self) -> Array:
        masses = _masses(self.log_density)
        return jnp.concatenate([jnp.zeros(1), jnp.cumsum(masses)])

    def _rises(self) -> Array:
        return jnp.asarray(self.transform(1.0) > self.transform(0.0))


def _integral(slope: Array, end: Array) -> Array:
    """The integral of exp(slope t) from 0 to `end`."""
    flat = abs(slope) < 1e-8
    safe = jnp.where(flat, 1.0, slope)
    return jnp.where(flat, end, jnp.expm1(safe * end) / safe)


def _masses(log_density: Array) -> Array:
    """The mass between neighbouring knots at unit distance."""
    return jnp.exp(log_density[:-1]) * _integral(jnp.diff(log_density), jnp.ones(()))


class NodeMixture(_WithMoments):
    """A mixture over the nodes of a grid; `components` has the nodes' parameters stacked in front.

    Each element of a batch has its own mixture density. A draw takes one node for all of them, so
    that draws keep the dependence that the elements owe to the node.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    pytree_data_fields = ("components", "log_weights", "moments")

    def __init__(
        self,
        components: Distribution,
        log_weights: Array,
        moments: tuple[Array, Array],
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.components, self.log_weights, self.moments = components, log_weights, moments
        super().__init__(
            batch_shape=components.batch_shape,
            event_shape=components.event_shape,
            validate_args=validate_args,
        )

    @property
    def support(self) -> Any:
        """Where a component has its mass."""
        with jax.enable_x64(True):  # bounds that are doubles, asked in a session of singles too
            return self._component(0).support

    @property
    def probs(self) -> Array:
        """Of components over the values of discrete elements: the weighted sum of their shares."""
        each = jax.vmap(lambda law: law.probs)(self.components)
        return jnp.tensordot(jnp.exp(self.log_weights), each, 1)

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        """Log of the weighted sum of the components' densities."""
        each = jax.vmap(lambda law: law.log_prob(value))(self.components)
        return logsumexp(jnp.where(self._usable(each), each + self._spread(each), -jnp.inf), axis=0)

    def cdf(self, value: Array) -> Array:
        """The weighted sum of the components' cumulative probabilities."""
        each = jax.vmap(lambda law: law.cdf(value))(self.components)
        weights = jnp.exp(self._spread(each))
        return jnp.where(self._usable(each), each * weights, 0.0).sum(axis=0)

    def icdf(self, q: Array) -> Array:
        """The quantile of probability q, by bisection between the components' quantiles."""
        each = jax.vmap(lambda law: law.icdf(q))(self.components)
        counts = self._usable(each)
        low = jnp.where(counts, each, jnp.inf).min(axis=0)
        high = jnp.where(counts, each, -jnp.inf).max(axis=0)

        def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            middle = 0.5 * (ends[0] + ends[1])
            below = self.cdf(middle) < q
            return jnp.where(below, middle, ends[0]), jnp.where(below, ends[1], middle)

        low, high = jax.lax.fori_loop(0, 60, halve, (low, high))
        return jnp.asarray(0.5 * (low + high))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws, each from one component."""
        first, second = jax.random.split(key)
        nodes = jax.random.categorical(first, self.log_weights, shape=sample_shape)
        keys = jax.random.split(second, nodes.size)
        drawn = jax.vmap(lambda n, k: self._component(n).sample(k))(nodes.ravel(), keys)
        return jnp.reshape(drawn, sample_shape + drawn.shape[1:])

    def _component(self, node: Any) -> Distribution:
        one: Distribution = jax.tree.map(lambda a: jnp.asarray(a)[node], self.components)
        return one

    def _usable(self, each: Array) -> Array:
        return usable(jnp.exp(self._spread(each)), jnp.isfinite(each) | jnp.isneginf(each))

    def _spread(self, each: Array) -> Array:
        return self.log_weights.reshape((-1,) + (1,) * (each.ndim - 1))


def usable(weights: Array, finite: Array) -> Array:
    """Nodes to sum over: at nodes far out in the tail a factor may be beyond double precision."""
    return finite | (weights > NEGLIGIBLE)
