"""Stochastic ascent of a Gaussian with few draws a step, for many dimensions.

Reparameterised gradients without their score term ("sticking the landing", Roeder et al. 2017):
their noise vanishes as q approaches the posterior. Steps by Adam (Kingma and Ba 2015), the mean in
units of the present scale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.cost import mapped

Free = dict[str, Array]  # loc (d,), log_scale (d,), and factor (d, r) in units of the scale
_FIRST, _SECOND, _TINY = 0.9, 0.99, 1e-12


class Adam(NamedTuple):
    """The parameters, their average over a window, and the moments of the gradients."""

    free: Free
    average: Free
    first: Free
    second: Free
    steps: Array


def start(free: Free) -> Adam:
    """Before the first step."""
    zeros = jax.tree.map(jnp.zeros_like, free)
    return Adam(free, free, zeros, zeros, jnp.zeros((), int))


def parts(free: Free) -> dict[str, Array]:
    """The parameters of the Gaussian: loc, scale, and factor where there is one."""
    scale = jnp.exp(free["log_scale"])
    found = {"loc": free["loc"], "scale": scale}
    if "factor" in free:
        found["factor"] = scale[:, None] * free["factor"]
    return found


def log_q(free: Free, vector: Array) -> Array:
    """Log q(u), by the matrix inversion lemma where there is a factor."""
    whitened = (vector - free["loc"]) * jnp.exp(-free["log_scale"])
    square = whitened @ whitened
    volume = jnp.sum(free["log_scale"])
    if "factor" in free:
        W = free["factor"]
        inner = jnp.linalg.cholesky(jnp.eye(W.shape[1]) + W.T @ W)
        projected = jax.scipy.linalg.solve_triangular(inner, W.T @ whitened, lower=True)
        square -= projected @ projected
        volume += jnp.sum(jnp.log(jnp.diagonal(inner)))
    total: Array = -0.5 * (square + len(vector) * np.log(2 * np.pi)) - volume
    return total


def window(
    function: Callable[[Array], Array], adam: Adam, key: Array, rate: Array, steps: int, draws: int
) -> tuple[Adam, Array]:
    """Some steps of one rate: the state, with the average of its iterates, and their mean ELBO."""

    def bound(free: Free, noise: Array) -> tuple[Array, Free]:
        """The ELBO over some draws, as many at a time as memory holds, with its gradient."""
        size, fixed = len(free["loc"]), free

        def place(free: Free) -> Array:
            moved = noise[:, :size]
            if "factor" in free:
                moved = moved + noise[:, size:] @ free["factor"].T
            return free["loc"] + jnp.exp(free["log_scale"]) * moved

        def one(vector: Array) -> Array:
            return function(vector) - log_q(fixed, vector)

        vectors, back = jax.vjp(place, free)
        values, slopes = mapped(jax.value_and_grad(one), vectors, what="one draw with its gradient")
        return jnp.mean(values), back(slopes / len(noise))[0]

    def step(adam: Adam, key: Array) -> tuple[Adam, Array]:
        free = adam.free
        width = len(free["loc"]) + (free["factor"].shape[1] if "factor" in free else 0)
        half = jax.random.normal(key, (draws // 2, width), free["loc"].dtype)
        value, gradient = bound(free, jnp.concatenate([half, -half]))
        scale = jnp.exp(free["log_scale"])
        gradient = {**gradient, "loc": gradient["loc"] * scale}
        fine = (
            jnp.isfinite(value)
            & jnp.stack([jnp.all(jnp.isfinite(g)) for g in gradient.values()]).all()
        )
        gradient = jax.tree.map(lambda g: jnp.where(fine, g, 0.0), gradient)
        count = adam.steps + 1
        first = jax.tree.map(lambda m, g: _FIRST * m + (1 - _FIRST) * g, adam.first, gradient)
        second = jax.tree.map(
            lambda v, g: _SECOND * v + (1 - _SECOND) * g**2, adam.second, gradient
        )
        ahead = jax.tree.map(
            lambda m, v: (m / (1 - _FIRST**count)) / (jnp.sqrt(v / (1 - _SECOND**count)) + _TINY),
            first,
            second,
        )
        ahead = {**ahead, "loc": ahead["loc"] * scale}
        moved = jax.tree.map(lambda x, a: x + rate * a, free, ahead)
        # A point where log p is not finite: come closer to the centre.
        free = jax.tree.map(lambda m, x: jnp.where(fine, m, x), moved, free)
        free = {**free, "log_scale": free["log_scale"] - jnp.where(fine, 0.0, 0.5)}
        return Adam(free, adam.average, first, second, count), jnp.where(fine, value, -jnp.inf)

    def summed(carry: tuple[Adam, Free], key: Array) -> tuple[tuple[Adam, Free], Array]:
        adam, total = carry
        adam, value = step(adam, key)
        return (adam, jax.tree.map(jnp.add, total, adam.free)), value

    zeros = jax.tree.map(jnp.zeros_like, adam.free)
    (adam, total), values = jax.lax.scan(summed, (adam, zeros), jax.random.split(key, steps))
    average = jax.tree.map(lambda t: t / steps, total)
    return adam._replace(average=average), jnp.mean(values)
