"""Draws with weights in the place of a density: what a sampler or importance weights leave."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import CategoricalProbs, Distribution, constraints

from lowerbound.errors import NoDensityError
from lowerbound.family.variational import Parameters


@dataclass(frozen=True, eq=False)
class WeightedDraws:
    """S draws of all sites together, draw s with the probability weights[s].

    Parameters: "values", site -> (S, ...), and "weights" (S,), which sum to one. `states` has the
    number of values of each discrete site, which is held by indices.

    >>> q = WeightedDraws()
    >>> held = {"values": {"x": np.array([0.0, 1.0])}, "weights": np.array([0.25, 0.75])}
    >>> mean, variance = q.moments(held, "x")
    >>> float(mean), float(variance)
    (0.75, 0.1875)
    """

    states: Mapping[str, int] = field(default_factory=dict)

    def sample(
        self, parameters: Parameters, key: Array, shape: tuple[int, ...] = ()
    ) -> dict[str, Array]:
        """Draws of all sites, with leading axes `shape`: each of the S about as often as it weighs.

        Evenly spread over the S (systematic resampling), in random order: with equal weights none
        comes twice before all have come.
        """
        weights = jnp.asarray(parameters["weights"])
        picked = _picked(weights, key, math.prod(shape))
        values = parameters["values"]
        return {n: jnp.asarray(a)[picked].reshape(shape + a.shape[1:]) for n, a in values.items()}

    def moments(self, parameters: Parameters, site: str) -> tuple[Any, Any]:
        """Weighted mean and variance of one site, elementwise."""
        values = np.asarray(parameters["values"][site], float)
        weights = np.asarray(parameters["weights"])
        mean = np.tensordot(weights, values, axes=1)
        return mean, np.tensordot(weights, np.square(values - mean), axes=1)

    def marginal(self, parameters: Parameters, site: str) -> Distribution:
        """The draws of one site, as a distribution without a density; of a discrete site shares."""
        values, weights = np.asarray(parameters["values"][site]), np.asarray(parameters["weights"])
        if site not in self.states:
            return Empirical(jnp.asarray(values), jnp.asarray(weights))
        shares = [np.tensordot(weights, values == k, axes=1) for k in range(self.states[site])]
        return CategoricalProbs(jnp.asarray(np.stack(shares, axis=-1)))

    def log_prob(self, parameters: Parameters, values: Mapping[str, Array]) -> Array:
        """There is none."""
        raise NoDensityError


class Empirical(Distribution):  # type: ignore[misc]
    """The law that puts weight w_s on draw s: a whole array of the site's shape."""

    arg_constraints: ClassVar[dict[str, Any]] = {}
    pytree_data_fields = ("values", "weights")

    def __init__(self, values: Array, weights: Array, *, validate_args: Any = None) -> None:
        self.values, self.weights = values, weights
        super().__init__((), jnp.shape(values)[1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False)  # type: ignore[untyped-decorator]
    def support(self) -> Any:
        """Real arrays of the site's shape."""
        return constraints.independent(constraints.real, self.event_dim)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws, about as often as they weigh."""
        picked = _picked(jnp.asarray(self.weights), key, math.prod(sample_shape))
        return jnp.asarray(self.values)[picked].reshape(sample_shape + self.event_shape)

    @property
    def mean(self) -> Array:
        """The weighted mean, elementwise."""
        return jnp.tensordot(self.weights, self.values, axes=1)

    @property
    def variance(self) -> Array:
        """The weighted variance, elementwise."""
        return jnp.tensordot(self.weights, jnp.square(self.values - self.mean), axes=1)

    def cdf(self, value: Array) -> Array:
        """The share of draws that are not above `value`, elementwise; axes in front are kept."""
        value = jnp.asarray(value)
        below = self.values <= jnp.expand_dims(value, value.ndim - self.event_dim)
        axis = below.ndim - 1 - self.event_dim
        return jnp.tensordot(jnp.moveaxis(below, axis, -1).astype(float), self.weights, axes=1)

    def icdf(self, q: Array) -> Array:
        """Quantiles of every element: shape of q + that of the site."""
        flat = np.asarray(self.values, float).reshape(len(self.values), -1)
        order = np.argsort(flat, axis=0)
        held = np.cumsum(np.asarray(self.weights, float)[order], axis=0)
        levels = np.asarray(q, float)
        columns = [
            flat[order[np.minimum(np.searchsorted(held[:, j], levels), len(flat) - 1), j], j]
            for j in range(flat.shape[1])
        ]
        return jnp.asarray(np.stack(columns, axis=-1).reshape(levels.shape + self.event_shape))

    def log_prob(self, value: Array) -> Array:
        """There is none."""
        raise NoDensityError("The marginal of a corrected fit")


def _picked(weights: Array, key: Array, count: int) -> Array:
    """Which draws: systematic resampling, in random order."""
    first, second = jax.random.split(key)
    places = (jnp.arange(count) + jax.random.uniform(first, (), weights.dtype)) / max(count, 1)
    held = jnp.cumsum(weights)
    picked = jnp.searchsorted(held, places * held[-1])
    return jax.random.permutation(second, jnp.minimum(picked, len(weights) - 1))
