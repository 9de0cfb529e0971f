"""q(theta) p(z | x, theta): discrete sites given the continuous ones exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import CategoricalProbs, Distribution

from lowerbound.cost import mapped, numbers_computed
from lowerbound.family.completed.completing import BATCH, Completed, Conditionals, Values
from lowerbound.family.variational import Parameters, Variational
from lowerbound.rewrite.summing.summation import Summation

DRAWS, FEWEST = 4096, 256  # of theta, over which probabilities of z are averaged
MOST_NUMBERS = 200_000_000  # that such an average is computed from, where there are many rows
MOST_COMPUTED = 10_000_000_000  # on the way there: a density may be a large sum of its own


@dataclass(frozen=True, eq=False)
class Summed(Completed):
    """A density q(theta) of the continuous sites, and p(z | x, theta) of the discrete ones."""

    inner: Variational
    elimination: Summation

    def own_moments(self, parameters: Parameters, site: str) -> tuple[Array, Array]:
        """Mean and variance of a discrete site, elementwise."""
        values = jnp.asarray(self.elimination.model.latent[site].support_values)
        probabilities = self._probabilities(parameters)[site]
        mean = probabilities @ values
        return mean, probabilities @ values**2 - mean**2

    def own_marginal(self, parameters: Parameters, site: str) -> Distribution:
        """The marginal density of a discrete site, over the indices of its values."""
        return CategoricalProbs(self._probabilities(parameters)[site])

    def _probabilities(self, parameters: Parameters) -> dict[str, Array]:
        """E_q[p(z = k | x, theta)] of every entry of the discrete sites."""
        summation = self.elimination
        if len(summation.names) == len(summation.model.latent):  # nothing else is latent

            def exactly(weights: Conditionals, theta: Values, data: Values) -> Values:
                return summation.probabilities(weights(theta, data))

            alone: Values = self.run("probabilities", exactly, {})
            return alone
        numbers = sum(math.prod(g.table) for g in summation.groups)
        draws = int(max(FEWEST, min(DRAWS, MOST_NUMBERS // numbers)))
        theta = self.inner.sample(parameters, jax.random.key(0), (draws // BATCH * BATCH,))
        with jax.enable_x64(True):
            computed = numbers_computed(self.traced(theta).jaxpr)
        batches = int(max(FEWEST, min(draws, MOST_COMPUTED // computed))) // BATCH
        theta = {name: array[: batches * BATCH] for name, array in theta.items()}

        def average(weights: Conditionals, theta: Values, data: Values) -> Values:
            def one(theta: Values) -> Values:
                return summation.probabilities(weights(theta, data))

            def add(total: Values, theta: Values) -> tuple[Values, None]:
                found = mapped(one, theta, what="one draw")
                return jax.tree.map(lambda t, a: t + a.mean(axis=0), total, found), None

            parts = jax.tree.map(lambda a: a.reshape((batches, BATCH, *a.shape[1:])), theta)
            shapes = jax.eval_shape(one, jax.tree.map(lambda a: a[0], theta))
            zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
            total, _ = jax.lax.scan(add, zeros, parts)
            return {name: array / batches for name, array in total.items()}

        found: Values = self.run("probabilities", average, theta)
        return found
