"""A mixture of densities of one family: factors of rows, averaged over draws of what they share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import CategoricalLogits, CategoricalProbs, Distribution

from lowerbound.family.densities.gridded import NodeMixture
from lowerbound.family.meanfield import MeanField


@dataclass(frozen=True, eq=False)
class Averaged:
    """The average of densities of `inner`, whose parameters are stacked in front."""

    inner: MeanField

    def sample(self, parameters: Any, key: Array, shape: tuple[int, ...] = ()) -> dict[str, Array]:
        """Draws of one density after another, each picked at random."""
        count, total = _count(parameters), math.prod(shape)
        picked = jax.random.randint(key, (total,), 0, count)
        keys = jax.random.split(jax.random.fold_in(key, 1), total)

        def draw(parameters: Any, picked: Array, keys: Array) -> dict[str, Array]:
            def one(number: Array, key: Array) -> dict[str, Array]:
                return self.inner.sample(jax.tree.map(lambda a: a[number], parameters), key, ())

            return jax.vmap(one)(picked, keys)

        jitted = self.inner.jitted("averaged sample", draw)
        drawn: Mapping[str, Array] = jitted(parameters, picked, keys)
        return {name: array.reshape(shape + array.shape[1:]) for name, array in drawn.items()}

    def log_prob(self, parameters: Any, values: Mapping[str, Array]) -> Array:
        """Log of the average density of draws."""

        def density(parameters: Any, values: Mapping[str, Array]) -> Array:
            each = jax.vmap(lambda p: self.inner.log_prob(p, values))(parameters)
            return jax.scipy.special.logsumexp(each, axis=0) - math.log(_count(parameters))

        found: Array = self.inner.jitted("averaged log_prob", density)(parameters, dict(values))
        return found

    def moments(self, parameters: Any, site: str) -> tuple[Array, Array]:
        """Mean and variance of one site, elementwise: that within densities and between them."""

        def both(parameters: Any) -> tuple[Array, Array]:
            means, variances = jax.vmap(lambda p: self.inner.moments(p, site))(parameters)
            return means.mean(axis=0), variances.mean(axis=0) + means.var(axis=0)

        found: tuple[Array, Array] = self.inner.jitted(("averaged moments", site), both)(parameters)
        return found

    def marginal(self, parameters: Any, site: str) -> Distribution:
        """The density of one site, a mixture as well."""

        def law(parameters: Any) -> Distribution:
            each = jax.vmap(lambda p: self.inner.marginal(p, site))(parameters)
            if isinstance(each, CategoricalProbs | CategoricalLogits):
                return CategoricalProbs(jax.vmap(lambda one: one.probs)(each).mean(axis=0))
            count = _count(parameters)
            weights = jnp.full(count, -math.log(count))
            return NodeMixture(each, weights, self.moments(parameters, site))

        found: Distribution = self.inner.jitted(("averaged marginal", site), law)(parameters)
        return found


def _count(parameters: Any) -> int:
    return len(jax.tree.leaves(parameters)[0])
