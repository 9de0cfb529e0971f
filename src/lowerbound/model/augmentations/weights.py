"""Weights on squares: laws of w > 0 with E exp(-w c^2 / 2) in closed form.

A density that is such an integral becomes quadratic given w: 1 / (2 cosh(a / 2))^n for the
Pólya-Gamma law PG(n, 0) (Polson, Scott & Windle 2013), exp(-|r|) for the Lévy law. The law tilted
by exp(-w c^2 / 2) is the optimal factor of w. Its density is stated *relative to* the law without
tilt: that one cancels between p and q, and no update needs it.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, constraints

TERMS = 24  # gamma variables that a draw of PG sums; one more has the moments of all others


class PolyaGamma(Distribution):  # type: ignore[misc]
    """PG(n, c): the law with density proportional to exp(-w c^2 / 2) PG(w; n, 0)."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "total_count": constraints.nonnegative,
        "tilt": constraints.nonnegative,
    }
    support = constraints.positive

    def __init__(
        self, total_count: Any, tilt: Any = 0.0, *, validate_args: bool | None = None
    ) -> None:
        self.total_count, self.tilt = jnp.asarray(total_count), jnp.asarray(tilt)
        batch = jnp.broadcast_shapes(jnp.shape(total_count), jnp.shape(tilt))
        super().__init__(batch, (), validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        """The log density relative to PG(n, 0): n log cosh(c / 2) - w c^2 / 2."""
        tilt = jnp.asarray(self.tilt, float)
        return self.total_count * log_cosh_root(tilt**2 / 4) - value * tilt**2 / 2

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws: w = sum_k Gamma(n, 1) / (2 pi^2 ((k - 1/2)^2 + (c / 2 pi)^2))."""
        shape = (*sample_shape, *self.batch_shape)
        n = jnp.broadcast_to(jnp.asarray(self.total_count, float), shape)
        shift = (jnp.asarray(self.tilt, float) / (2 * math.pi)) ** 2

        def term(k: Array | int, sums: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            draw, first, second = sums
            weight = 1 / (2 * math.pi**2 * ((k + 0.5) ** 2 + shift))
            gamma = jax.random.gamma(jax.random.fold_in(key, k), n)
            return draw + weight * gamma, first + weight, second + weight**2

        nothing = jnp.zeros(shape, n.dtype)
        draw, first, second = jax.lax.fori_loop(0, TERMS, term, (nothing, nothing, nothing))
        mean = jnp.maximum(self.mean - n * first, 0)
        variance = jnp.maximum(self.variance - n * second, 1e-6 * mean**2)
        some = mean > 0  # n = 0 is the law at 0
        shape_of_rest = jnp.where(some, mean**2, 1) / jnp.where(some, variance, 1)
        rest = jax.random.gamma(jax.random.fold_in(key, TERMS), shape_of_rest)
        tiny = float(np.finfo(draw.dtype).tiny)
        return jnp.maximum(draw + jnp.where(some, rest * variance / mean, 0), tiny)

    @property
    def mean(self) -> Array:
        """E w = n tanh(c / 2) / (2 c)."""
        ratio, _ = tanh_root(jnp.asarray(self.tilt, float) ** 2 / 4)
        return jnp.broadcast_to(self.total_count * ratio / 4, self.batch_shape)

    @property
    def variance(self) -> Array:
        """The variance n (sinh c - c) / (4 c^3 cosh^2(c / 2))."""
        _, slope = tanh_root(jnp.asarray(self.tilt, float) ** 2 / 4)
        return jnp.broadcast_to(-self.total_count * slope / 8, self.batch_shape)


class LevyWeight(Distribution):  # type: ignore[misc]
    """The Lévy law of w = 1 / e^2, e standard normal, tilted by exp(-w c^2 / 2).

    With c > 0 it is the inverse Gaussian law of mean 1 / c and shape 1.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"tilt": constraints.nonnegative}
    support = constraints.positive

    def __init__(self, tilt: Any = 0.0, *, validate_args: bool | None = None) -> None:
        self.tilt = jnp.asarray(tilt)
        super().__init__(jnp.shape(tilt), (), validate_args=validate_args)

    def log_prob(self, value: Array) -> Array:
        """The log density relative to the law without tilt: c - w c^2 / 2."""
        return self.tilt - value * self.tilt**2 / 2

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws (Michael, Schucany & Haas 1976), without cancellation for a small tilt."""
        shape = (*sample_shape, *self.batch_shape)
        first, second = jax.random.split(key)
        tilt = jnp.asarray(self.tilt, float)
        square = jax.random.normal(first, shape, tilt.dtype) ** 2
        # The roots of the quadratic in c w multiply to 1.
        root = 1 + square / (2 * tilt) + jnp.sqrt(square / tilt + (square / (2 * tilt)) ** 2)
        small = jnp.where(tilt > 0, 1 / (tilt * root), 1 / square)
        large = root / tilt
        uniform = jax.random.uniform(second, shape, tilt.dtype)
        keep = (tilt == 0) | (uniform * (1 + tilt * small) <= 1)
        limits = np.finfo(tilt.dtype)
        return jnp.clip(jnp.where(keep, small, large), float(limits.tiny), float(limits.max))

    @property
    def mean(self) -> Array:
        """E w = 1 / c, infinite without tilt."""
        return 1 / self.tilt

    @property
    def variance(self) -> Array:
        """The variance 1 / c^3."""
        return 1 / self.tilt**3


_TANH = (1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925)
_LOG_COSH = (0.0, 1 / 2, -1 / 12, 1 / 45, -17 / 2520, 31 / 14175)
_SMALL = 0.01  # where the power series in u = x^2 are exact to rounding


def tanh_root(u: Array) -> tuple[Array, Array]:
    """t(u) = tanh(x) / x at x = sqrt(u), and its derivative; smooth at u = 0."""
    near = u < _SMALL
    series = jnp.where(near, u, 0)
    x = jnp.sqrt(jnp.where(near, 1, u))
    tanh = jnp.tanh(x)
    slope = (x * (1 - tanh**2) - tanh) / (2 * x**3)
    slopes = tuple(i * c for i, c in enumerate(_TANH))[1:]
    return (
        jnp.where(near, _polynomial(_TANH, series), tanh / x),
        jnp.where(near, _polynomial(slopes, series), slope),
    )


def log_cosh_root(u: Array) -> Array:
    """The function log cosh(sqrt(u)), smooth at u = 0."""
    near = u < _SMALL
    x = jnp.sqrt(jnp.where(near, 1, u))
    far = x + jnp.log1p(jnp.exp(-2 * x)) - math.log(2)
    return jnp.where(near, _polynomial(_LOG_COSH, jnp.where(near, u, 0)), far)


def _polynomial(coefficients: tuple[float, ...], u: Array) -> Array:
    value = jnp.zeros_like(u)
    for coefficient in coefficients[::-1]:
        value = value * u + coefficient
    return value
