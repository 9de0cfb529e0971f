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

# Gamma variables that a draw of PG sums; an inverse Gaussian one has the moments of all others,
# and is their limit law for a large tilt.
TERMS = 8


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
            gamma = _draw_gamma(jax.random.fold_in(key, k), n)
            return draw + weight * gamma, first + weight, second + weight**2

        nothing = jnp.zeros(shape, n.dtype)
        draw, first, second = jax.lax.fori_loop(0, TERMS, term, (nothing, nothing, nothing))
        mean = jnp.maximum(self.mean - n * first, 0)
        variance = jnp.maximum(self.variance - n * second, 1e-6 * mean**2)
        some = mean > 0  # n = 0 is the law at 0
        safe = jnp.where(some, mean, 1)
        ratio = safe**2 / jnp.where(some, variance, 1)
        rest = safe * _draw_inverse_gaussian(jax.random.fold_in(key, TERMS), ratio)
        tiny = float(np.finfo(draw.dtype).tiny)
        return jnp.maximum(draw + jnp.where(some, rest, 0), tiny)

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
        """Draws; without tilt, of one over a squared standard normal."""
        shape = (*sample_shape, *self.batch_shape)
        tilt = jnp.broadcast_to(jnp.asarray(self.tilt, float), shape)
        safe = jnp.where(tilt > 0, tilt, 1)
        tilted = _draw_inverse_gaussian(key, safe) / safe
        levy = jax.random.normal(key, shape, tilt.dtype) ** -2.0
        limits = np.finfo(tilt.dtype)
        draw = jnp.where(tilt > 0, tilted, levy)
        return jnp.clip(draw, float(limits.tiny), float(limits.max))

    @property
    def mean(self) -> Array:
        """E w = 1 / c, infinite without tilt."""
        return 1 / self.tilt

    @property
    def variance(self) -> Array:
        """The variance 1 / c^3."""
        return 1 / self.tilt**3


def _draw_inverse_gaussian(key: Array, ratio: Array) -> Array:
    """Inverse Gaussian draws of mean 1 and variance 1 / ratio (Michael, Schucany & Haas 1976)."""
    first, second = jax.random.split(key)
    half = jax.random.normal(first, ratio.shape, ratio.dtype) ** 2 / (2 * ratio)
    root = 1 + half + jnp.sqrt(half * (2 + half))  # the larger of two roots that multiply to 1
    uniform = jax.random.uniform(second, ratio.shape, ratio.dtype)
    return jnp.where(uniform * (1 + 1 / root) <= 1, 1 / root, root)


def _draw_gamma(key: Array, shape: Array) -> Array:
    """Gamma(shape, 1) draws (Marsaglia & Tsang 2000), all elements at once.

    JAX's own sampler takes elements one by one on CPUs, a hundred times slower.
    """
    d = shape + 2 / 3  # that of Gamma(shape + 1); the power of a uniform takes the one back
    c = 1 / jnp.sqrt(9 * d)
    last, key = jax.random.split(key)

    def attempt(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        key, value, done = state
        key, first, second = jax.random.split(key, 3)
        x = jax.random.normal(first, d.shape, d.dtype)
        v = (1 + c * x) ** 3
        inside = v > 0
        log_v = jnp.log(jnp.where(inside, v, 1))
        uniform = jax.random.uniform(second, d.shape, d.dtype)
        accept = inside & (jnp.log(uniform) < x**2 / 2 + d * (1 - v + log_v))
        return key, jnp.where(done, value, d * v), done | accept

    start = (key, jnp.zeros_like(d), jnp.zeros(d.shape, bool))
    _, value, _ = jax.lax.while_loop(lambda state: ~state[2].all(), attempt, start)
    log_uniform = jnp.log1p(-jax.random.uniform(last, d.shape, d.dtype))
    some = shape > 0
    return jnp.where(some, value * jnp.exp(log_uniform / jnp.where(some, shape, 1)), 0)


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
