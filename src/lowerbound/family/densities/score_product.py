"""q(z) q(u): independent discrete entries with free probabilities, and a Gaussian of the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import CategoricalProbs, Distribution

from lowerbound.compiled.host import readily
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.family.variational import Parameters, Variational


@dataclass(frozen=True, eq=False)
class ScoreProduct:
    """Every entry of a discrete site by itself, and one Gaussian of all continuous sites.

    The parameters are "logits", by site, with a last axis for the values of the site, and those of
    the Gaussian under "gaussian". `sites` are in the order of the program. Counts without an upper
    end are 0, 1, ... up to where q has no mass left.
    """

    most_together: ClassVar[int] = 96
    sites: tuple[str, ...]
    inner: UnconstrainedGaussian
    compiled: dict[object, Any] = field(default_factory=dict, repr=False)

    def sample(
        self, parameters: Parameters, key: Array, shape: tuple[int, ...] = ()
    ) -> dict[str, Array]:
        """Independent draws of all sites, with leading axes `shape`; discrete ones as indices."""
        logits = parameters["logits"]

        def draw(logits: Mapping[str, Array], key: Array) -> dict[str, Array]:
            keys = jax.random.split(key, len(logits))
            return {
                name: jax.random.categorical(own, array, shape=shape + array.shape[:-1])
                for own, (name, array) in zip(keys, sorted(logits.items()), strict=True)
            }

        drawn = self._call(("discrete", shape), draw, dict(logits), jax.random.fold_in(key, 1))
        if self.inner.coordinates.shapes:
            drawn = {**drawn, **self.inner.sample(parameters["gaussian"], key, shape)}
        return {name: drawn[name] for name in self.sites}

    def log_prob(self, parameters: Parameters, values: Mapping[str, Array]) -> Array:
        """Log q(z) + log q(u) of draws; discrete sites are indices, as in `sample`."""

        def density(logits: Mapping[str, Array], values: Mapping[str, Array]) -> Array:
            total = jnp.zeros(())
            for name, array in logits.items():
                index = values[name][..., None]
                log_p = jnp.broadcast_to(
                    jax.nn.log_softmax(array), (*index.shape[:-1], array.shape[-1])
                )
                # A count beyond all that q holds has no probability.
                each = jnp.take_along_axis(log_p, index, -1, mode="fill", fill_value=-jnp.inf)
                total = total + each.sum(axis=tuple(range(1, each.ndim)))
            return total

        logits = dict(parameters["logits"])
        found: Array = self._call("log_prob", density, logits, {n: values[n] for n in logits})
        if self.inner.coordinates.shapes:
            found = found + self.inner.log_prob(parameters["gaussian"], values)
        return found

    def moments(self, parameters: Parameters, site: str) -> tuple[Array, Array]:
        """Mean and variance of one site under q, elementwise; of a discrete one, of its indices."""
        if site in self.inner.coordinates.shapes:
            return self.inner.moments(parameters["gaussian"], site)
        probabilities = jax.nn.softmax(jnp.asarray(parameters["logits"][site]))
        index = jnp.arange(probabilities.shape[-1], dtype=probabilities.dtype)
        mean = probabilities @ index
        return mean, probabilities @ index**2 - mean**2

    def marginal(self, parameters: Parameters, site: str) -> Distribution:
        """The factor of one site; that of a discrete site is over the indices of its values."""
        if site in self.inner.coordinates.shapes:
            return self.inner.marginal(parameters["gaussian"], site)
        return CategoricalProbs(jax.nn.softmax(jnp.asarray(parameters["logits"][site])))

    def without(
        self, parameters: Parameters, sites: Collection[str]
    ) -> tuple[Variational, Parameters] | None:
        """The Gaussian, where the sites are all discrete ones."""
        if set(sites) != set(parameters["logits"]) or not self.inner.coordinates.shapes:
            return None
        return self.inner, parameters["gaussian"]

    def _call(self, key: object, function: Callable[..., Any], *args: Any) -> Any:
        if key not in self.compiled:
            self.compiled[key] = readily(function)
        with jax.enable_x64(True):
            return self.compiled[key](*args)


def entropy(logits: Array) -> Array:
    """The entropy of all entries together, whose logits are along the last axis."""
    log_p = jax.nn.log_softmax(logits)
    total: Array = -jnp.sum(jnp.where(log_p > -math.inf, jnp.exp(log_p) * log_p, 0.0))
    return total
