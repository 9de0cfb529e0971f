"""Densities given a weight: quadratic where the density itself is not.

Only the integral over the weight is a probability density of y, so draws of y come from that.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.transforms import PowerTransform


class GivenAuxiliary(Distribution):  # type: ignore[misc]
    """A density given auxiliary variables; over all of them it is `whole`, where draws are from."""

    whole: Distribution

    @property
    def support(self) -> Any:
        """The support of the whole density."""
        return self.whole.support

    @property
    def kind(self) -> str:
        """The class of the whole density."""
        return type(self.whole).__name__

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws with the auxiliary variables integrated out."""
        drawn: Array = self.whole.expand(self.batch_shape).sample(key, sample_shape)
        return drawn


class Measure(Distribution):  # type: ignore[misc]
    """A density of one positive parameter without its normaliser, which is that of no law.

    Its draws are those of a law nearby, to start somewhere.
    """

    def __init__(self, parameter: Any, *, validate_args: bool | None = None) -> None:
        (name,) = self.arg_constraints
        setattr(self, name, parameter)
        super().__init__(jnp.shape(parameter), (), validate_args=validate_args)


class LogitsGivenWeight(GivenAuxiliary):
    """A density of the form h(y) exp(y a) / (1 + exp(a))^n, given its weight w ~ PG(n, 0).

    log p(y | w) = (y - n / 2) a - w a^2 / 2 - n log 2 + log h(y).
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "weight": constraints.positive,
        "total_count": constraints.nonnegative,
    }
    pytree_data_fields = ("whole", "weight", "total_count")

    def __init__(
        self, whole: Distribution, weight: Any, total_count: Any, *, validate_args: Any = None
    ) -> None:
        self.whole, self.weight, self.total_count = whole, weight, total_count
        shapes = whole.batch_shape, jnp.shape(weight), jnp.shape(total_count)
        super().__init__(jnp.broadcast_shapes(*shapes), (), validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        """The log density given the weight."""
        a = self.whole.logits
        log_h: Array | float = 0.0
        if self.kind == "BinomialLogits":
            n = self.whole.total_count
            log_h = gammaln(n + 1.0) - gammaln(value + 1.0) - gammaln(n - value + 1.0)
        elif self.kind == "NegativeBinomialLogits":
            r = self.whole.total_count
            log_h = gammaln(r + value * 1.0) - gammaln(value + 1.0) - gammaln(r * 1.0)
        linear = (value - self.total_count / 2) * a - self.total_count * math.log(2)
        density: Array = linear - self.weight * a**2 / 2 + log_h
        return density


class LaplaceGivenWeight(Distribution):  # type: ignore[misc]
    """A Laplace density given its Lévy weight w: exp(-w r^2 / 2) / (2 scale), r standardised."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "weight": constraints.positive,
    }
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, weight: Any, *, validate_args: Any = None) -> None:
        self.loc, self.scale, self.weight = loc, scale, weight
        batch = jnp.broadcast_shapes(jnp.shape(loc), jnp.shape(scale), jnp.shape(weight))
        super().__init__(batch, (), validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        """The log density given the weight."""
        residual = (value - self.loc) / self.scale
        density: Array = -self.weight * residual**2 / 2 - jnp.log(2 * self.scale)
        return density

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws with the weight integrated out."""
        whole = dist.Laplace(self.loc, self.scale).expand(self.batch_shape)
        drawn: Array = whole.sample(key, sample_shape)
        return drawn


class RootInverseGamma(dist.TransformedDistribution):  # type: ignore[misc]
    """The density of a scale z > 0 whose precision z^-2 is Gamma(concentration, rate)."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support = constraints.positive
    reparametrized_params: ClassVar[list[str]] = ["concentration", "rate"]

    def __init__(self, concentration: Any, rate: Any, *, validate_args: Any = None) -> None:
        base = dist.Gamma(concentration, rate)
        self.concentration, self.rate = base.concentration, base.rate
        super().__init__(base, PowerTransform(-0.5), validate_args=validate_args)
