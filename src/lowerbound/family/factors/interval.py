"""The density proportional to exp(h x - Lambda x^2 / 2) on an interval, at any distance.

The integral and the moments are taken about an anchor c where nothing cancels: with scale
s = Lambda^(-1/2) and x = c - d y, d = +-s, the density of y is proportional to
exp(-slope y - y^2 / 2). Three cases: an interval so narrow that quadrature is exact (c its
midpoint), one in a tail of the normal (c the bound nearest the mode, Mills' ratio), and one that
contains the mode (c the mode).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr, ndtri

__all__ = ["Tilted", "draw", "inside", "tilted"]

_FAR = 1e18  # stands for infinity in units of s; its square is finite in float32
# Where the continued fraction takes over, and how deep it must be there to be exact.
_FRACTION = {4: (4.0, 14), 8: (6.0, 22)}  # bytes of the floating type: (from, depth)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)


class Tilted(NamedTuple):
    """x = anchor - direction * y; y has log integral, mean and second moment as given."""

    anchor: Array
    direction: Array
    slope: Array
    log_integral: Array
    first: Array
    second: Array


class _Cases(NamedTuple):
    location: Array
    scale: Array
    sign: Array
    near: Array  # the two bounds in units of s, reflected so that near + far <= 0
    far: Array
    width: Array
    anchor: Array
    slope: Array
    narrow: Array
    tail: Array


def _mills(x: Array) -> tuple[Array, Array, Array]:
    """M(x) = integral over y > 0 of exp(-x y - y^2/2), with E y and E y^2; x >= 0.

    Laplace's continued fraction 1/M = x + 1/(x + 2/(x + 3/(x + ...))) gives E y = 1/(x + k) and
    E y^2 = k/(x + k) with k = 2/(x + 3/(x + ...)) without cancellation.
    """
    start, depth = _FRACTION[x.dtype.itemsize]
    use = x < start
    small = jnp.where(use, x, 0)
    ratio = ndtr(-small) * jnp.exp(small * small / 2 + _LOG_ROOT_TWO_PI)
    first = 1 / ratio - small
    large = jnp.where(use, start, x)
    tail = large
    for j in range(depth, 2, -1):
        tail = large + j / tail
    k = 2 / tail
    g = 1 / (large + k)
    return (
        jnp.where(use, ratio, 1 / (large + g)),
        jnp.where(use, first, g),
        jnp.where(use, 1 - small * first, g * k),
    )


def _quadrature(slope: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Integrals of 1, y, y^2 against exp(-slope y - y^2/2) over [low, high], Gauss-Legendre."""
    middle, half, slope = (
        ((high + low) / 2)[..., None],
        ((high - low) / 2)[..., None],
        slope[..., None],
    )
    y = middle + half * jnp.asarray(_NODES, slope.dtype)
    mass = half * jnp.asarray(_WEIGHTS, slope.dtype) * jnp.exp(-y * (slope + y / 2))
    return jnp.sum(mass, axis=-1), jnp.sum(mass * y, axis=-1), jnp.sum(mass * y * y, axis=-1)


def _cases(natural_x: Array, natural_x2: Array, lower: Array, upper: Array) -> _Cases:
    """Choose the anchor of each interval."""
    precision = -2 * natural_x2
    scale = 1 / jnp.sqrt(precision)
    location = natural_x / precision
    has_lower, has_upper = jnp.isfinite(lower), jnp.isfinite(upper)
    lower = jnp.where(has_lower, lower, 0)
    upper = jnp.where(has_upper, upper, 0)
    alpha = jnp.clip(jnp.where(has_lower, (lower - location) / scale, -_FAR), -_FAR, _FAR)
    beta = jnp.clip(jnp.where(has_upper, (upper - location) / scale, _FAR), -_FAR, _FAR)
    width = jnp.where(has_lower & has_upper, jnp.minimum((upper - lower) / scale, _FAR), _FAR)
    flip = alpha + beta > 0
    near, far = jnp.where(flip, -alpha, beta), jnp.where(flip, -beta, alpha)
    sign = jnp.where(flip, -1.0, 1.0).astype(scale.dtype)
    middle = lower + (upper - lower) / 2
    tilt = jnp.abs(location - middle) / scale
    narrow = (width < 1) & (tilt * width < 1)
    tail = ~narrow & (near <= 0)
    bound = jnp.where(flip, lower, upper)
    anchor = jnp.where(narrow, middle, jnp.where(tail, bound, location))
    slope = jnp.clip(sign * (location - anchor) / scale, -_FAR, _FAR)
    return _Cases(location, scale, sign, near, far, width, anchor, slope, narrow, tail)


def tilted(natural_x: Array, natural_x2: Array, lower: Array, upper: Array) -> Tilted:
    """The integral and the first two moments of each interval about its anchor."""
    c = _cases(natural_x, natural_x2, lower, upper)
    # Each case sees harmless numbers where another applies, so that no gradient is NaN.
    half = jnp.where(c.narrow, c.width, 1) / 2
    narrow = _quadrature(jnp.where(c.narrow, c.slope, 0), -half, half)

    x, w = jnp.where(c.tail, c.slope, 0), jnp.where(c.tail, c.width, 1)
    (ratio, ratio_end), (g, g_end), (gk, gk_end) = _mills(jnp.stack([x, x + w]))
    beyond = jnp.exp(-w * (x + w / 2)) * ratio_end
    rho = beyond / (ratio - beyond)
    tail = (
        jnp.log(ratio - beyond),
        g - rho * (w + g_end - g),
        gk - rho * (w * w + 2 * w * g_end + gk_end - gk),
    )

    straddles = ~c.narrow & ~c.tail
    near, far = jnp.where(straddles, c.near, 1), jnp.where(straddles, c.far, -1)
    ends = jnp.stack([near, far])
    below = ndtr(ends)
    mass = below[0] - below[1]
    at_near, at_far = jnp.exp(-ends * ends / 2 - _LOG_ROOT_TWO_PI) / mass
    straddle = (
        jnp.log(mass) + _LOG_ROOT_TWO_PI,
        at_near - at_far,
        1 + far * at_far - near * at_near,
    )

    log_integral, first, second = (
        jnp.where(c.narrow, n, jnp.where(c.tail, t, s))
        for n, t, s in zip(
            (jnp.log(narrow[0]), narrow[1] / narrow[0], narrow[2] / narrow[0]),
            tail,
            straddle,
            strict=True,
        )
    )
    return Tilted(c.anchor, c.sign * c.scale, c.slope, log_integral, first, second)


def inside(x: Array, lower: Array, upper: Array) -> Array:
    """The point x moved, if it must be, to the nearest number strictly between the bounds."""
    inf = jnp.asarray(jnp.inf, x.dtype)
    low = jax.lax.stop_gradient(jnp.nextafter(lower.astype(x.dtype), inf))
    high = jax.lax.stop_gradient(jnp.nextafter(upper.astype(x.dtype), -inf))
    return jnp.clip(x, low, high)


def draw(uniform: Array, natural_x: Array, natural_x2: Array, lower: Array, upper: Array) -> Array:
    """The quantile of the density at a monotone function of `uniform`, by Newton in the tails."""
    c = _cases(natural_x, natural_x2, lower, upper)
    limits = np.finfo(uniform.dtype)
    tiny, top = float(limits.tiny), 1 - float(limits.epsneg)
    u = jnp.clip(uniform, tiny, top)

    # Tail: log P(Y > y) is concave, and Newton from the right of the root is monotone.
    x, w = jnp.where(c.tail, c.slope, 0), jnp.where(c.tail, c.width, 1)
    ratio, ratio_end = _mills(jnp.stack([x, x + w]))[0]
    share = jnp.exp(-w * (x + w / 2)) * ratio_end / ratio
    target = -jnp.log(u + (1 - u) * share)

    def tail_step(_: int, y: Array) -> Array:
        here = _mills(x + y)[0]
        return jnp.clip(y + (target - y * (x + y / 2) + jnp.log(here / ratio)) * here, 0, w)

    y = jnp.minimum(2 * target / (x + jnp.sqrt(x * x + 2 * target) + tiny), w)
    tail = jax.lax.fori_loop(0, 8, tail_step, y)

    half = jnp.where(c.narrow, c.width, 1) / 2
    slope = jnp.where(c.narrow, c.slope, 0)
    total = _quadrature(slope, -half, half)[0]

    def narrow_step(_: int, y: Array) -> Array:
        excess = _quadrature(slope, -half, y)[0] - u * total
        return jnp.clip(y - excess * jnp.exp(y * (slope + y / 2)), -half, half)

    y = jnp.broadcast_to((2 * u - 1) * half, jnp.broadcast_shapes(u.shape, half.shape))
    narrow = jax.lax.fori_loop(0, 4, narrow_step, y)

    straddles = ~c.narrow & ~c.tail
    near, far = jnp.where(straddles, c.near, 1), jnp.where(straddles, c.far, -1)
    above, below = ndtr(jnp.stack([near, far]))
    p = below + u * (above - below)
    straddle = -ndtri(jnp.clip(p, tiny, top))

    y = jnp.where(c.narrow, narrow, jnp.where(c.tail, tail, straddle))
    return inside(c.anchor - c.sign * c.scale * y, lower, upper)
