"""What a point is worth: its ELBO over fresh draws, all rows, and the densities of single rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent.rows.climb import Point
from lowerbound.ascent.rows.objective import Data, Objective
from lowerbound.ascent.rows.row_gaussians import log_prob, moved
from lowerbound.bound.restricted import Restricted, restricted

MOST, LEAST = 256, 32  # draws
WORK = 2e10  # operations that a measurement may take


def measured(
    objective: Objective, whole: Objective, point: Point, data: Data, work: float, seed: int
) -> Restricted:
    """The ELBO of all rows over fresh draws."""
    chunks = chunks_of(whole.rows, objective.rows)
    draws = int(np.clip(WORK / max(work * len(chunks), 1.0), LEAST, MOST))
    program = objective.jitted("measure", lambda own: partial(_terms, own), work)
    keys = jax.random.split(jax.random.key(seed), len(chunks) + 1)
    shared = jax.random.normal(keys[-1], (draws, *np.shape(point.shared["loc"])))
    values = -np.asarray(log_prob(point.shared, shared))
    for number, (index, weights) in enumerate(chunks):
        here, given, counted = point, data, None
        if len(chunks) > 1:
            own = jax.tree.map(lambda a, i=index: np.asarray(a)[i], point.own)
            here, given = point._replace(own=own), objective.take(data, index)
            counted = weights
        again = np.asarray(number > 0)
        values += np.asarray(program(here, shared, keys[number], given, counted, again))
    return restricted(values)


def chunks_of(total: int, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """All rows in batches of one size, the last filled up with rows of weight zero."""
    if size >= total:
        return [(np.arange(total), np.ones(total))]
    found = []
    for begin in range(0, total, size):
        index = np.arange(begin, begin + size)
        found.append((index % total, (index < total).astype(float)))
    return found


def _terms(
    objective: Objective,
    point: Point,
    shared: Array,
    key: Array,
    data: Data,
    weights: Array | None,
    again: Array,
) -> Array:
    """Log p - log q of the rows at every draw; what rows share is counted once: not `again`.

    With log q at the draws, and not the entropy, there is no noise where q is the posterior.
    """

    def one(each: tuple[Array, Array]) -> Array:
        noise = jax.random.normal(each[0], point.own["loc"].shape)
        own, common = moved(point.own, noise), moved(point.shared, each[1])
        spread = log_prob(point.own, noise)
        spread = spread if weights is None else spread * weights
        value = objective.log_joint(point.free, own, common, data, weights) - jnp.sum(spread)
        if weights is None:
            return value
        nothing = objective.log_joint(point.free, own, common, data, jnp.zeros_like(weights))
        return value - jnp.where(again, nothing, 0.0)

    return jnp.asarray(jax.lax.map(one, (jax.random.split(key, len(shared)), shared)))


def row_terms(objective: Objective, point: Point, noise: tuple[Array, Array], data: Data) -> Array:
    """Log p(x_n, z_n | shared) - log q(z_n) of every row, at one draw.

    The log density is linear in the weights of the rows: a row's own is the derivative by it.
    """
    own, shared = moved(point.own, noise[0]), moved(point.shared, noise[1])

    def weighted(weights: Array) -> Array:
        return objective.log_joint(point.free, own, shared, data, weights)

    found: Any = jax.grad(weighted)(jnp.ones(objective.rows))
    return jnp.asarray(found - log_prob(point.own, noise[0]))
