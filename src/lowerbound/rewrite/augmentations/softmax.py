"""Two augmentations of the softmax: a Poisson rate, and Bouchard's bound.

1 / S^n = integral of u^(n-1) exp(-u S) / Gamma(n) over u > 0, with S = sum_k exp(a_k): given u the
counts are independent Poisson counts of means u exp(a_k), so that each a_k enters alone, through
its exponential.

And log sum_k exp(a_k) <= c + sum_k log(1 + exp(a_k - c)) for every number c (Bouchard 2007), where
each logistic term is quadratic given a weight. c is a number to choose, one per row, not a random
variable: this is a bound of the density, not an integral that gives it back.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln
from numpyro.distributions import Distribution, constraints

from lowerbound.rewrite.augmentations.given import GivenAuxiliary, Measure
from lowerbound.rewrite.augmentations.site import Chosen
from lowerbound.rewrite.augmentations.weights import PolyaGamma


class Offset(Distribution):  # type: ignore[misc]
    """A real number without a prior, at which a bound is taken: its factor is the best point."""

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.real

    def __init__(self, *, validate_args: bool | None = None) -> None:
        super().__init__((), (), validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        """Zero: no value is preferred."""
        return jnp.zeros(jnp.shape(value))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """The point 0."""
        return jnp.zeros((*sample_shape, *self.batch_shape))


class SoftmaxGivenWeights(GivenAuxiliary):
    """The bound of a categorical or multinomial density at an offset c, given weights w_k.

    With n draws and counts x: sum_k [x_k a_k - n (a_k - c) / 2 - w_k (a_k - c)^2 / 2 - n log 2]
    - n c + log h(x). Draws of x come from the density itself.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "offset": constraints.real,
        "weights": constraints.independent(constraints.positive, 1),
    }
    pytree_data_fields = ("whole", "offset", "weights")

    def __init__(
        self, whole: Distribution, offset: Any, weights: Any, *, validate_args: Any = None
    ) -> None:
        self.whole, self.offset, self.weights = whole, offset, weights
        shapes = whole.batch_shape, jnp.shape(offset), jnp.shape(weights)[:-1]
        batch = jnp.broadcast_shapes(*shapes)
        super().__init__(batch, whole.event_shape, validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        """The bound of the log density at the offset, given the weights."""
        logits, total = self.whole.logits, total_of(self.whole)
        above = logits - self.offset[..., None]
        share = jnp.asarray(total)[..., None]
        each = share * (above / 2 + math.log(2)) + self.weights * above**2 / 2
        linear = _linear(self.whole, value) - total * self.offset
        bound: Array = linear - jnp.sum(each, axis=-1)
        return bound


class FlatGamma(Measure):
    """The measure u^(n-1) / Gamma(n) on u > 0, a gamma density of rate 0; it has no draws."""

    arg_constraints: ClassVar[dict[str, Any]] = {"concentration": constraints.positive}
    support = constraints.positive

    def log_prob(self, value: Array) -> Array:
        """The log of the measure's density."""
        n = jnp.asarray(self.concentration) * 1.0
        return (n - 1) * jnp.log(value) - gammaln(n)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of the gamma density of rate 1, to start somewhere."""
        shape = (*sample_shape, *self.batch_shape)
        return jax.random.gamma(key, jnp.asarray(self.concentration, float), shape)


class SoftmaxGivenRate(GivenAuxiliary):
    """A categorical or multinomial density given its rate u: sum_k [x_k a_k - u exp(a_k)]."""

    arg_constraints: ClassVar[dict[str, Any]] = {"rate": constraints.positive}
    pytree_data_fields = ("whole", "rate")

    def __init__(self, whole: Distribution, rate: Any, *, validate_args: Any = None) -> None:
        self.whole, self.rate = whole, rate
        batch = jnp.broadcast_shapes(whole.batch_shape, jnp.shape(rate))
        super().__init__(batch, whole.event_shape, validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        """The log density given the rate."""
        means = self.rate * jnp.sum(jnp.exp(self.whole.logits), axis=-1)
        density: Array = _linear(self.whole, value) - means
        return density


def _linear(law: Distribution, value: Array) -> Array:
    """The part sum_k x_k a_k + log h(x) of a categorical or multinomial log density."""
    if isinstance(law, dist.CategoricalLogits):
        hot = value[..., None] == jnp.arange(law.logits.shape[-1])
        return jnp.sum(hot * law.logits, axis=-1)
    each = jnp.sum(value * law.logits - gammaln(value + 1.0), axis=-1)
    return each + gammaln(law.total_count + 1.0)


def total_of(law: Distribution) -> Any:
    """The number of draws of a multinomial law; 1 for a categorical one."""
    return law.total_count if isinstance(law, dist.MultinomialLogits) else 1


def poisson(site: Chosen) -> Distribution:
    """Logits a_k: a rate u, given which counts are Poisson of means u exp(a_k)."""
    rate = site.auxiliary("rate", FlatGamma(jnp.asarray(total_of(site.law) * 1.0)))
    return SoftmaxGivenRate(site.law, rate)


def bouchard(site: Chosen) -> Distribution:
    """Logits a_k: an offset c, and a weight PG(n, 0) for each a_k - c."""
    categories = site.law.logits.shape[-1]
    total = jnp.asarray(total_of(site.law) * 1.0)
    offset = site.auxiliary("offset", Offset())
    weights = site.auxiliary("omega", PolyaGamma(total[..., None]), categories)
    return SoftmaxGivenWeights(site.law, offset, weights)
