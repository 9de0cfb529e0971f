"""q(theta) p(z | x, theta): discrete sites given the continuous ones exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from numpyro.distributions import CategoricalProbs, Distribution

from lowerbound.family.variational import Parameters, Variational
from lowerbound.joint.compilation import quickly
from lowerbound.model.dependence import digest
from lowerbound.model.summation import Summation

DRAWS = 4096  # of theta, over which probabilities of z are averaged
BATCH = 64  # draws that are worked on together


@dataclass(frozen=True, eq=False)
class Summed:
    """A density q(theta) of the continuous sites, and p(z | x, theta) of the discrete ones.

    The parameters are those of `inner`, which is q(theta). The ELBO of the pair is that of q(theta)
    in the program with z summed out.
    """

    inner: Variational
    summation: Summation
    compiled: dict[object, Any] = field(default_factory=dict, repr=False)

    def sample(
        self, parameters: Parameters, key: Array, shape: tuple[int, ...] = ()
    ) -> dict[str, Array]:
        """Joint draws of all sites, with leading axes `shape`; discrete ones as indices."""
        count = math.prod(shape)
        theta = self.inner.sample(parameters, key, (count,))

        def drawn(weights: tuple[Array, ...], key: Array) -> dict[str, Array]:
            return self.summation.draw(weights, key)

        keys = jax.random.split(jax.random.fold_in(key, 1), count)
        found = {**theta, **self._each("draw", drawn, theta, keys)}
        return {n: found[n].reshape(shape + found[n].shape[1:]) for n in self.summation.model.latent}

    def moments(self, parameters: Parameters, site: str) -> tuple[Array, Array]:
        """Mean and variance of one site under q, elementwise."""
        if site not in self.summation.names:
            return self.inner.moments(parameters, site)
        values = jnp.asarray(self.summation.model.latent[site].support_values)
        probabilities = self._probabilities(parameters)[site]
        mean = probabilities @ values
        return mean, probabilities @ values**2 - mean**2

    def marginal(self, parameters: Parameters, site: str) -> Distribution:
        """The marginal density of one site under q, as a NumPyro distribution.

        That of a discrete site is over the indices of its values.
        """
        if site not in self.summation.names:
            return self.inner.marginal(parameters, site)
        return CategoricalProbs(self._probabilities(parameters)[site])

    def _probabilities(self, parameters: Parameters) -> dict[str, Array]:
        """E_q[p(z = k | x, theta)] of every entry of the discrete sites."""
        theta = self.inner.sample(parameters, jax.random.key(0), (DRAWS,))

        def probabilities(weights: tuple[Array, ...], key: Array) -> dict[str, Array]:
            return self.summation.probabilities(weights)

        keys = jax.random.split(jax.random.key(0), DRAWS)
        return self._each("probabilities", probabilities, theta, keys, average=True)
