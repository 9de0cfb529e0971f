"""Expectations of log p under normals of its predictors, and slopes of these: what is compiled.

E[g], E[g'] and -E[g''] of every term by quadrature, by which non-conjugate message passing makes
its steps, the derivative of their sum by t, and what predictors say away from their means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import Array

from lowerbound.methods.hierarchy.asked_of_terms import Data, Law
from lowerbound.methods.hierarchy.joint_terms import (
    Normals,
    Root,
    Rule,
    averaged,
    curved_by,
    in_clusters,
    moved_by,
    rooted,
    turned_by,
)

if TYPE_CHECKING:
    from lowerbound.methods.hierarchy.predictors import Predictors


def slope_in(one: Predictors, t: Array, data: Data) -> Callable[[Array], Array]:
    """The gradient of log p in the predictors."""
    return jax.grad(lambda predictors: one.log_p(t, data, predictors))


def moments(
    one: Predictors, t: Array, data: Data, normals: Normals, narrow: Array, nodes: Rule
) -> tuple[Array, Array, Array]:
    """Means of log p, its slopes, and its curvatures with opposite sign, under normals."""
    mean, deviation, together = normals
    spread = jnp.maximum(deviation, narrow * (1.0 + jnp.abs(mean)))
    root = rooted(data.joint, spread, together)

    def at(node: Array) -> tuple[Array, Array, tuple[Array, Array]]:
        both = jax.value_and_grad(lambda p: one.log_p(t, data, p))
        value, gradient = both(mean + moved_by(data.joint, root, node))
        return value, gradient, turned_by(data.joint, -gradient, node)

    # E[g''] = E[g' (eta - mean)] / variance: the derivative of what is averaged, kinks and all.
    value, gradient, turned = averaged(at, nodes)
    curvature, alone = curved_by(data.joint, root, turned)
    wider = 0.5 * jnp.sum(alone * (spread**2 - deviation**2))
    return value + wider, gradient, curvature


def slopes_at(one: Predictors, t: Array, data: Data, normals: Normals, places: Array) -> Array:
    """The derivative of every g by x, at mean + deviation x for each place x."""
    slope = slope_in(one, t, data)

    def at(x: Array) -> Array:
        return jnp.asarray(normals.deviation * slope(normals.mean + normals.deviation * x))

    return jnp.asarray(jax.lax.map(at, places))


def slopes_along(
    one: Predictors, t: Array, data: Data, mean: Array, beside: Root, places: Array, nodes: Rule
) -> Array:
    """Of clusters: the expected derivatives by x of their terms, given x."""
    slope = slope_in(one, t, data)
    alone = Root(jnp.zeros_like(mean), beside.lower)

    def at(x: Array) -> Array:
        place = mean + beside.deviation * x
        expected = averaged(lambda n: slope(place + moved_by(data.joint, alone, n)), nodes)
        return in_clusters(data.joint, beside.deviation * expected).sum(axis=1)

    return jnp.asarray(jax.lax.map(at, places))


def raised(
    one: Predictors, t: Array, data: Data, mean: Array, away: Array, shares: Array, weights: Array
) -> Array:
    """Of clusters: by how much log p is larger after each move, by its slopes along the way."""
    slope = slope_in(one, t, data)

    def at(move: Array) -> Array:
        slopes = jax.vmap(lambda share: slope(mean + share * move))(shares)
        return in_clusters(data.joint, move * (weights @ slopes)).sum(axis=1)

    return jnp.asarray(jax.lax.map(at, away))


def by_theta(
    one: Predictors,
    t: Array,
    data: Data,
    normals: Normals,
    slopes: tuple[Array, Array],
    law: Law,
    nodes: Rule,
) -> Array:
    """The derivative by t of the expected log p, with the law of z held fixed."""
    slope, curvature = slopes
    root = rooted(data.joint, normals.deviation, normals.together)

    def at(node: Array) -> Array:
        place = normals.mean + moved_by(data.joint, root, node)
        return jnp.asarray(jax.grad(lambda t: one.log_p(t, data, place))(t))

    direct: Array = averaged(at, nodes)

    def moved(t: Array) -> Array:
        """How the laws of the predictors follow t: their means, and their variances."""
        if one.is_fixed:
            return jnp.asarray(slope @ one.lines_at(t, data, law.loc))
        values = one.entries_at(t, data)[data.joint.entry]
        means = one.lines_at(t, data, law.loc)
        first, second, owner = law.pairs
        products = values[first] * values[second] * law.covariance
        return jnp.asarray(slope @ means - 0.5 * jnp.sum(curvature[owner] * products))

    return jnp.asarray(direct + jax.grad(moved)(t))
