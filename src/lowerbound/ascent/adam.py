"""Adam (Kingma and Ba 2015): steps along the average gradient, by its root mean square."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

_FIRST, _SECOND, _TINY = 0.9, 0.99, 1e-12

T = TypeVar("T")  # a tree of arrays


class Adam(NamedTuple, Generic[T]):
    """The parameters, their average over a window, and the moments of the gradients."""

    now: T
    average: T
    first: T
    second: T
    steps: Array


def start(now: T) -> Adam[T]:
    """Before the first step."""
    zeros = jax.tree.map(jnp.zeros_like, now)
    return Adam(now, now, zeros, zeros, jnp.zeros((), int))


def usable(value: Array, gradient: T) -> tuple[Array, T]:
    """Whether a value and its gradient are finite, and the gradient: none where they are not."""
    leaves = jax.tree.leaves(gradient)
    fine = jnp.isfinite(value) & jnp.stack([jnp.all(jnp.isfinite(g)) for g in leaves]).all()
    return fine, jax.tree.map(lambda g: jnp.where(fine, g, 0.0), gradient)


def moments(first: T, second: T, gradient: T) -> tuple[T, T]:
    """The average gradient and the average square, with one more gradient."""
    return (
        jax.tree.map(lambda m, g: _FIRST * m + (1 - _FIRST) * g, first, gradient),
        jax.tree.map(lambda v, g: _SECOND * v + (1 - _SECOND) * g**2, second, gradient),
    )


def direction(first: Array, second: Array, count: Array) -> Array:
    """A step of rate one, from the moments of `count` gradients."""
    return (first / (1 - _FIRST**count)) / (jnp.sqrt(second / (1 - _SECOND**count)) + _TINY)


def ahead(adam: Adam[T], gradient: T) -> tuple[T, T, T]:
    """The moments after one more gradient, and the direction of the step."""
    count = adam.steps + 1
    first, second = moments(adam.first, adam.second, gradient)
    return first, second, jax.tree.map(lambda m, v: direction(m, v, count), first, second)
