"""Inverse maps of the digamma kind, by Newton steps in coordinates where the map is nearly linear.

Every function takes and returns arrays of one floating type and keeps full relative accuracy
from the smallest to the largest positive numbers of that type.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import digamma, gammaln, logsumexp

__all__ = [
    "dirichlet_concentration",
    "gamma_shape",
    "interior",
    "inverse_digamma",
    "log_minus_digamma",
    "multivariate_digamma",
    "multivariate_gammaln",
]

_SERIES_FROM = 20.0  # beyond it the asymptotic series is exact to float64


def interior(shape: Array) -> Array:
    """A shape parameter read off a rounded natural parameter: exactly zero means below rounding."""
    return jnp.where(shape == 0, float(np.finfo(shape.dtype).eps) / 4, shape)


def log_minus_digamma(a: Array) -> Array:
    """log(a) - digamma(a), positive and decreasing, without cancellation for large a."""
    use = a < _SERIES_FROM
    small, r = jnp.where(use, a, 1), 1 / jnp.where(use, _SERIES_FROM, a)
    r2 = r * r
    series = r * (0.5 + r * (1 / 12 - r2 * (1 / 120 - r2 * (1 / 252 - r2 * (1 / 240)))))
    direct = jnp.log(small) - digamma(1 + small) + 1 / small
    return jnp.where(use, direct, series)


def _scaled_trigamma(a: Array) -> Array:
    """The product a * trigamma(a) to about seven digits, finite however small a is."""
    # Four steps of trigamma(x) = trigamma(x + 1) + 1/x^2, then the asymptotic series: it only
    # steers Newton steps, and is far cheaper to compile than polygamma.
    r = 1 / (a + 4)
    r2 = r * r
    series = 1 + r * (0.5 + r * (1 / 6 - r2 * (1 / 30 - r2 * (1 / 42 - r2 / 30))))
    steps = sum(a / (a + j) ** 2 for j in range(1, 4))
    return a * r * series + steps + 1 / a


def _one_minus_scaled_trigamma(a: Array) -> Array:
    """1 - a * trigamma(a): the derivative of `log_minus_digamma` with respect to log a."""
    use = a < _SERIES_FROM
    small, r = jnp.where(use, a, 1), 1 / jnp.where(use, _SERIES_FROM, a)
    r2 = r * r
    series = -r * (0.5 + r * (1 / 6 - r2 * (1 / 30 - r2 * (1 / 42 - r2 * (1 / 30)))))
    return jnp.where(use, 1 - _scaled_trigamma(small), series)


def inverse_digamma(y: Array) -> Array:
    """The positive a with digamma(a) = y (Minka's start, Newton on log a)."""
    negative = jnp.minimum(y, -2.0)
    a = jnp.where(y >= -2.22, jnp.exp(y) + 0.5, -1 / (negative + 0.5772156649015329))

    def step(_: int, a: Array) -> Array:
        return a * jnp.exp((y - digamma(a)) / _scaled_trigamma(a))

    result: Array = jax.lax.fori_loop(0, 6, step, a)
    return result


def _offsets(dim: int, like: Array) -> Array:
    """0, 1/2, ..., (dim - 1)/2 along a new last axis."""
    return jnp.arange(dim, dtype=like.dtype) / 2


def multivariate_digamma(a: Array, dim: int) -> Array:
    """The derivative of the log multivariate gamma function, sum_i digamma(a - i/2)."""
    return jnp.sum(digamma(a[..., None] - _offsets(dim, a)), axis=-1)


def multivariate_gammaln(a: Array, dim: int) -> Array:
    """The log multivariate gamma function, dim (dim - 1)/4 log(pi) + sum_i log Gamma(a - i/2)."""
    logs = gammaln(a[..., None] - _offsets(dim, a))
    return jnp.sum(logs, axis=-1) + dim * (dim - 1) / 4 * math.log(math.pi)


def gamma_shape(gap: Array, dim: int = 1) -> Array:
    """The shape a of a Gamma (dim = 1) or Wishart whose log E and E log differ by `gap`.

    Solves dim log(a) - multivariate_digamma(a, dim) = gap by Newton on the logarithm of both
    sides as a function of log(a - (dim - 1)/2), which has slope near -1 at both ends.
    """
    gap = jnp.maximum(gap, float(np.finfo(gap.dtype).eps))
    offsets = _offsets(dim, gap)
    start = jnp.log((dim * (dim + 1) / 4 + gap) / (gap * (1 + gap)))

    def step(_: int, u: Array) -> Array:
        excess = jnp.exp(u)[..., None]
        each = excess + offsets  # a - i/2 in reverse order
        a = excess + (dim - 1) / 2
        below = (dim - 1) / 2 - offsets
        value = jnp.sum(log_minus_digamma(each) - jnp.log1p(-below / a), axis=-1)
        slope = jnp.sum(excess / each * (_one_minus_scaled_trigamma(each) - below / a), axis=-1)
        return u - (jnp.log(value) - jnp.log(gap)) * value / slope

    return jnp.exp(jax.lax.fori_loop(0, 10, step, start)) + (dim - 1) / 2


def dirichlet_concentration(mean_log: Array) -> Array:
    """The concentration a, shape (..., K), with digamma(a_k) - digamma(sum a) = mean_log_k.

    One equation in the total s = sum a: the sum of inverse_digamma(mean_log_k + digamma(s)) is s.
    """
    dim = mean_log.shape[-1]
    eps = float(np.finfo(mean_log.dtype).eps)
    spare = jnp.maximum(-jnp.expm1(logsumexp(mean_log, axis=-1)), eps)
    start = jnp.log(max(dim - 1, 1) / 2 / spare)

    def parts(u: Array) -> Array:
        return inverse_digamma(mean_log + digamma(jnp.exp(u))[..., None])

    def step(_: int, u: Array) -> Array:
        a = parts(u)
        total = jnp.sum(a, axis=-1)
        growth = jnp.sum(a / _scaled_trigamma(a), axis=-1) / total
        slope = _scaled_trigamma(jnp.exp(u)) * growth - 1
        move = (jnp.log(total) - u) / jnp.minimum(slope, -eps)
        return u - jnp.clip(move, -3.0, 3.0)

    return parts(jax.lax.fori_loop(0, 20, step, start))
