"""L(theta) of a series, compiled, at several theta at once: z eliminated block after block.

In an order in which each number of z meets only near ones, the precision of z given theta is block
tridiagonal, and one pass of small Cholesky factors (as a Kalman filter is one) integrates z out.
Around any c, with h the slope of log p by z there and P the precision,

    L(t) = log p(t, c) + h' P^-1 h / 2 - log |P| / 2 + d log(2 pi) / 2.

Where c is the mean of z given theta, as one pass finds it, no large numbers cancel: scales that are
nearly zero have curvatures of 1e20, and what they leave of log p has to be right to a tenth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.sparse import coo_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from lowerbound.compiled import jit
from lowerbound.family.numerics.orders import order_of
from lowerbound.methods.hierarchy.asked_of_terms import Data
from lowerbound.methods.hierarchy.inner.parabolas import AnySurface
from lowerbound.methods.hierarchy.predictors import Predictors

NARROW = 4  # numbers of a block at least
MOST_WORK = 2e7  # multiplications of one pass
MOST_PAIRS = 2_000_000


@dataclass(frozen=True, eq=False)
class Layout:
    """Where products of entries go. first, second, owner: (n,), of pairs in one predictor.

    place: (n,), in diagonal blocks, those below, or nowhere, one after the other. order: (d,), the
    place of each number of z. blocks, width: how many, and of how many numbers.
    """

    first: np.ndarray
    second: np.ndarray
    owner: np.ndarray
    place: np.ndarray
    order: np.ndarray
    blocks: int
    width: int


def layout(surface: AnySurface) -> Layout | None:
    """The blocks of a surface; None where they are too wide, as where some number meets all."""
    one, pattern = surface.predictors, surface.pattern
    graph = coo_array(
        (np.ones(len(pattern.rows)), (pattern.rows, pattern.columns)), (one.size, one.size)
    ).tocsr()
    order = np.empty(one.size, int)
    order[reverse_cuthill_mckee(graph + graph.T, symmetric_mode=True)] = np.arange(one.size)
    reach = int(abs(order[pattern.rows] - order[pattern.columns]).max(initial=0))
    width = max(reach, NARROW)
    blocks = -(-one.size // width)
    pairs = _pairs(one.rows)
    if pairs is None or blocks * width**3 > MOST_WORK:
        return None
    first, second = pairs
    later, earlier = order[one.columns[first]], order[one.columns[second]]
    row, column = later // width, earlier // width
    within = (later % width) * width + earlier % width
    whole = blocks * width**2
    place = np.where(row == column, row * width**2 + within, 2 * whole)
    place = np.where(row == column + 1, whole + row * width**2 + within, place)
    return Layout(first, second, one.rows[first], place, order, blocks, width)


def _pairs(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """All pairs of entries of one row, in both orders; None where they are too many."""
    order = order_of(rows)
    counts = np.bincount(rows)
    if int((counts.astype(float) ** 2).sum()) > MOST_PAIRS:
        return None
    begins = np.cumsum(counts) - counts
    first, second = [], []
    for count in np.unique(counts[counts > 0]):
        own = order[begins[counts == count][:, None] + np.arange(count)]
        first.append(np.repeat(own, count, axis=1).ravel())
        second.append(np.tile(own, (1, count)).ravel())
    return np.concatenate(first), np.concatenate(second)


@dataclass(frozen=True, eq=False)
class Eliminated:
    """L and its slope at rows of t, around the centre c (d,)."""

    predictors: Predictors
    layout: Layout
    centre: np.ndarray

    def __call__(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values (n,) and slopes (n, k) at rows of t (n, k); NaN where there is none."""
        one, own = self.predictors, self.layout
        key = ("eliminated", len(t), own.blocks, own.width)
        if key not in one.compiled:
            one.compiled[key] = jit(partial(_values_and_slopes, one, own.blocks, own.width))
        data = Data(one.leaves, tuple(one.parts.maps.tape.indices), one.joint)
        arrays = own.first, own.second, own.owner, own.place, own.order
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            found = one.compiled[key](np.asarray(t, float), data, self.centre, arrays)
        values, slopes = (np.asarray(array) for array in found)
        return values, slopes


def _values_and_slopes(
    one: Predictors, blocks: int, width: int, t: Array, data: Data, centre: Array, arrays: Any
) -> Any:
    def value(t: Array) -> Array:
        return _log_marginal(one, blocks, width, t, data, centre, arrays)

    return jax.vmap(jax.value_and_grad(value))(t)


def _log_marginal(
    one: Predictors, blocks: int, width: int, t: Array, data: Data, centre: Array, arrays: Any
) -> Array:
    first, second, owner, place, order = arrays

    def log_p(z: Array) -> Array:
        return one.log_p(t, data, one.lines_at(t, data, z))

    lines = one.lines_at(t, data, centre)
    slope = jax.grad(lambda p: one.log_p(t, data, p))
    weights = -jax.jvp(slope, (lines,), (jnp.ones_like(lines),))[1]  # each term has one line
    entries = one.entries_at(t, data)
    whole = blocks * width**2
    products = entries[first] * entries[second] * weights[owner]
    sums = jnp.zeros(2 * whole + 1).at[place].add(products)
    diagonal = sums[:whole].reshape(blocks, width, width)
    below = sums[whole : 2 * whole].reshape(blocks, width, width)
    spare = blocks * width - one.size
    if spare:  # numbers that fill up the last block, and say nothing
        more = jnp.concatenate([jnp.zeros(width - spare), jnp.ones(spare)])
        diagonal = diagonal.at[-1].add(jnp.diag(more))
    roots, aways = _factor(diagonal, below)

    def solved(z: Array) -> tuple[Array, Array, Array]:
        """Log p at z, its slope there, and the first half of P^-1 times it."""
        value, push = jax.value_and_grad(log_p)(z)
        pushes = jnp.zeros(blocks * width).at[order].set(push).reshape(blocks, width)
        return value, push, _halfway(roots, aways, pushes)

    moved = _rest_of_way(roots, aways, solved(centre)[2])
    mean = jax.lax.stop_gradient(centre + jnp.ravel(moved)[order])
    value, _, half = solved(mean)
    logs = jnp.sum(jnp.log(jnp.diagonal(roots, axis1=1, axis2=2)))
    constant = 0.5 * one.size * math.log(2.0 * math.pi)
    return jnp.asarray(value + 0.5 * jnp.sum(half**2) - logs + constant)


def _factor(diagonal: Array, below: Array) -> tuple[Array, Array]:
    """The Cholesky factor of a block tridiagonal matrix: its diagonal blocks, and those above."""

    def step(root: Array, now: Any) -> tuple[Array, Any]:
        own, across = now
        away = jax.scipy.linalg.solve_triangular(root, across.T, lower=True)
        root = jnp.linalg.cholesky(own - away.T @ away)
        return root, (root, away)

    _, found = jax.lax.scan(step, jnp.eye(diagonal.shape[1]), (diagonal, below))
    roots, aways = found
    return roots, aways


def _halfway(roots: Array, aways: Array, pushes: Array) -> Array:
    """The solution of the lower factor, forwards."""

    def step(before: Array, now: Any) -> tuple[Array, Array]:
        root, away, push = now
        own = jax.scipy.linalg.solve_triangular(root, push - away.T @ before, lower=True)
        return own, own

    found: Array = jax.lax.scan(step, jnp.zeros(pushes.shape[1]), (roots, aways, pushes))[1]
    return found


def _rest_of_way(roots: Array, aways: Array, half: Array) -> Array:
    """The solution of the upper factor, backwards."""

    def step(after: tuple[Array, Array], now: Any) -> tuple[Any, Array]:
        above, later = after
        root, away, own = now
        own = jax.scipy.linalg.solve_triangular(root, own - above @ later, lower=True, trans="T")
        return (away, own), own

    start = jnp.zeros(roots.shape[1:]), jnp.zeros(half.shape[1])
    found: Array = jax.lax.scan(step, start, (roots, aways, half), reverse=True)[1]
    return found
