"""Stochastic ascent of a Gaussian with few draws a step, for many dimensions.

Reparameterised gradients without their score term ("sticking the landing", Roeder et al. 2017):
their noise vanishes as q approaches the posterior. Steps by Adam, the mean in units of the present
scale.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent.adam import Adam, ahead, usable
from lowerbound.cost import mapped

Free = dict[str, Array]  # loc (d,), log_scale (d,), and factor (d, r) in units of the scale


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


def pairs(free: Free, key: Array, draws: int) -> Array:
    """Standard normal numbers of some draws, in pairs e, -e."""
    width = len(free["loc"]) + (free["factor"].shape[1] if "factor" in free else 0)
    half = jax.random.normal(key, (draws // 2, width), free["loc"].dtype)
    return jnp.concatenate([half, -half])


def by_scale(gradient: Free, free: Free) -> Free:
    """Means are measured by their own scales, before and after a step."""
    return {**gradient, "loc": gradient["loc"] * jnp.exp(free["log_scale"])}


def stepped(free: Free, forward: Free, rate: Array, fine: Array) -> Free:
    """The Gaussian after a step; where log p is not finite at a draw, closer to its centre."""
    moved = jax.tree.map(lambda x, a: x + rate * a, free, by_scale(forward, free))
    free = jax.tree.map(lambda m, x: jnp.where(fine, m, x), moved, free)
    return {**free, "log_scale": free["log_scale"] - jnp.where(fine, 0.0, 0.5)}


def window(
    function: Callable[[Array], Array],
    adam: Adam[Free],
    key: Array,
    rate: Array,
    steps: int,
    draws: int,
) -> tuple[Adam[Free], Array]:
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

    def step(adam: Adam[Free], key: Array) -> tuple[Adam[Free], Array]:
        free = adam.now
        value, gradient = bound(free, pairs(free, key, draws))
        fine, gradient = usable(value, by_scale(gradient, free))
        first, second, forward = ahead(adam, gradient)
        moved = stepped(free, forward, rate, fine)
        found = Adam(moved, adam.average, first, second, adam.steps + 1)
        return found, jnp.where(fine, value, -jnp.inf)

    def summed(carry: tuple[Adam[Free], Free], key: Array) -> tuple[tuple[Adam[Free], Free], Array]:
        adam, total = carry
        adam, value = step(adam, key)
        return (adam, jax.tree.map(jnp.add, total, adam.now)), value

    zeros = jax.tree.map(jnp.zeros_like, adam.now)
    (adam, total), values = jax.lax.scan(summed, (adam, zeros), jax.random.split(key, steps))
    average = jax.tree.map(lambda t: t / steps, total)
    return adam._replace(average=average), jnp.mean(values)
