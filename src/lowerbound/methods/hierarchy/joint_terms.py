"""Predictors that meet in one term: their joint normal law, and quadratures of it.

The expected curvature of a term of several predictors is a block of W. A block is written as
weights of lines, which are the predictors and the sums of two of them,

    W_ij (a_i a_j' + a_j a_i') = W_ij ((a_i + a_j)(a_i + a_j)' - a_i a_i' - a_j a_j'),

so that A' W A, the slope by theta and the variances need nothing but lines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular

from lowerbound.family.numerics.orders import order_of

SINGLE = 12  # nodes of a predictor by itself
NODES = {1: SINGLE, 2: 10, 3: 6}  # of each of so many that meet
RARE = 1e-6  # weight of a node that is left out
CLOSE = 1e-10  # relative variance by which predictors of a term differ at least
MOST = 6  # predictors that may meet


class Joint(NamedTuple):
    """Which predictors meet: clusters (c, m) with -1 where they are fewer, and all pairs (p, 2).

    entry: (e,), the entries of A that lines have, in order; row: (e,), the line of each.
    """

    clusters: Any
    pairs: Any
    entry: Any
    row: Any


class Rule(NamedTuple):
    """A quadrature for m standard normals, of whose nodes (n, m) the first `used` are."""

    nodes: Any
    weights: Any
    used: Any


class Root(NamedTuple):
    """Independent numbers of which predictors are made: sds (count,), and roots (c, m, m)."""

    deviation: Any
    lower: Any


class Normals(NamedTuple):
    """Normals of the predictors: means, sds, and covariances of pairs that meet."""

    mean: Any
    deviation: Any
    together: Any = np.zeros(0)


def joint(clusters: np.ndarray, rows: np.ndarray, count: int) -> Joint:
    """The lines of predictors, whose entries are in some rows."""
    high, low = np.tril_indices(clusters.shape[1], -1)
    pairs = np.stack([clusters[:, low].ravel(), clusters[:, high].ravel()], axis=1)
    pairs = pairs[(pairs >= 0).all(axis=1)]
    order = order_of(rows)
    widths = np.bincount(rows, minlength=count)
    starts = np.cumsum(widths) - widths
    own = widths[pairs.ravel()]
    within = np.arange(own.sum()) - np.repeat(np.cumsum(own) - own, own)
    entry = order[np.repeat(starts[pairs.ravel()], own) + within]
    row = np.repeat(count + np.arange(len(pairs)).repeat(2), own)
    both = np.concatenate([np.arange(len(rows)), entry]), np.concatenate([rows, row])
    return Joint(clusters, pairs, *both)


def covariances(known: Joint, variance: np.ndarray) -> np.ndarray:
    """The covariance of each pair, from the variances of lines."""
    count = len(variance) - len(known.pairs)
    alone = np.maximum(variance[:count], 0.0)
    both = alone[known.pairs]
    most = np.sqrt(both.prod(axis=1))
    found = 0.5 * (variance[count:] - both.sum(axis=1))
    within: np.ndarray = np.clip(found, -most, most)
    return within


def rooted(known: Joint, deviation: Array, together: Array) -> Root:
    """What independent standard normals are multiplied by."""
    clusters = known.clusters
    m = clusters.shape[1]
    if not len(clusters):
        return Root(deviation, jnp.zeros((0, m, m)))
    padded = jnp.append(deviation, 1.0)
    matrix = jnp.eye(m) * (padded[clusters] ** 2 * (1.0 + CLOSE))[:, :, None]
    number = jnp.full(len(padded), -1).at[clusters].set(jnp.arange(len(clusters))[:, None])
    slot = jnp.zeros(len(padded), int).at[clusters].set(jnp.arange(m)[None])
    first, second = known.pairs[:, 0], known.pairs[:, 1]
    at = number[first], slot[first], slot[second]
    matrix = matrix.at[at].set(together).at[at[0], at[2], at[1]].set(together)
    return Root(deviation, jnp.linalg.cholesky(matrix))


def moved_by(known: Joint, root: Root, node: Array) -> Array:
    """How far predictors are from their means at a node (m,) of a quadrature."""
    alone = jnp.append(root.deviation * node[0], 0.0)
    if not len(known.clusters):
        return alone[:-1]
    return alone.at[known.clusters].set(root.lower @ node)[:-1]


def turned_by(known: Joint, slope: Array, node: Array) -> tuple[Array, Array]:
    """Slopes times the numbers of a node: of predictors alone, and of clusters (c, m, m)."""
    return slope * node[0], in_clusters(known, slope)[:, :, None] * node


def in_clusters(known: Joint, numbers: Array) -> Array:
    """Numbers of predictors by the clusters that these meet in, (c, m); 0 where they are fewer."""
    return jnp.append(numbers, 0.0)[known.clusters]


def curved_by(known: Joint, root: Root, turned: tuple[Array, Array]) -> tuple[Array, Array]:
    """E[g''] from averages of slopes times nodes: weights of lines, and the diagonal alone.

    By Stein's identity, E[g' x'] = E[g''] L where L x is what a cluster is moved by.
    """
    alone, together = turned
    diagonal = alone / root.deviation
    clusters, pairs = known.clusters, known.pairs
    if not len(clusters):
        return diagonal, diagonal
    m = clusters.shape[1]
    ones = jnp.broadcast_to(jnp.eye(m), root.lower.shape)
    block = together @ solve_triangular(root.lower, ones, lower=True)
    block = 0.5 * (block + jnp.swapaxes(block, 1, 2))
    own = jnp.diagonal(block, axis1=1, axis2=2)
    diagonal = jnp.append(diagonal, 0.0).at[clusters].set(own)[:-1]
    count = len(diagonal)
    number = jnp.full(count + 1, -1).at[clusters].set(jnp.arange(len(clusters))[:, None])
    slot = jnp.zeros(count + 1, int).at[clusters].set(jnp.arange(m)[None])
    first, second = pairs[:, 0], pairs[:, 1]
    off = block[number[first], slot[first], slot[second]]
    lines = diagonal.at[first].add(-off).at[second].add(-off)
    return jnp.concatenate([lines, off]), diagonal


def positive(known: Joint, curvature: np.ndarray, smallest: float) -> np.ndarray:
    """Weights of lines whose blocks are positive: what is not has its sign changed.

    In the tail of a Student law, say, a step by this curvature leads to about its middle; one by
    next to none leads anywhere.
    """
    clusters, pairs = known.clusters, known.pairs
    count, m = len(curvature) - len(pairs), clusters.shape[1]
    off = curvature[count:]
    diagonal = curvature[:count] + np.bincount(pairs.ravel(), np.repeat(off, 2), minlength=count)
    least = smallest * max(float(abs(diagonal).max(initial=0.0)), 1e-300)
    found = np.maximum(abs(diagonal), least)
    if len(clusters):
        number, slot = (np.zeros(count + 1, int) for _ in range(2))
        number[clusters], slot[clusters] = np.arange(len(clusters))[:, None], np.arange(m)
        at = number[pairs[:, 0]], slot[pairs[:, 0]], slot[pairs[:, 1]]
        blocks = np.eye(m) * np.append(diagonal, 1.0)[clusters][:, :, None]
        blocks[at] = blocks[at[0], at[2], at[1]] = off
        values, vectors = np.linalg.eigh(blocks)
        blocks = (vectors * np.maximum(abs(values), least)[:, None]) @ vectors.transpose(0, 2, 1)
        padded = np.append(found, 0.0)
        padded[clusters] = np.diagonal(blocks, axis1=1, axis2=2)
        found, off = padded[:-1], blocks[at]
    found = found - np.bincount(pairs.ravel(), np.repeat(off, 2), minlength=count)
    return np.concatenate([found, off])


@cache
def rule(size: int, count: int = 0) -> Rule:
    """A Gauss-Hermite quadrature for `size` standard normals.

    With one of them, rules of every `count` of nodes have the same shape, so that one program
    serves them all. Of more than three, a rule of degree five has fewer nodes than products have.
    """
    if size > 3:
        nodes, weights = _degree_five(size)
    else:
        line, heights = np.polynomial.hermite_e.hermegauss(count or NODES[size])
        heights = heights / heights.sum()
        nodes = np.array(list(product(line, repeat=size)))
        weights = np.prod(list(product(heights, repeat=size)), axis=1)
        kept = weights > (RARE if size > 1 else 0.0)
        nodes, weights = nodes[kept], weights[kept] / weights[kept].sum()
    used = len(weights)
    if size == 1:
        nodes = np.pad(nodes, ((0, SINGLE - used), (0, 0)))
        weights = np.pad(weights, (0, SINGLE - used))
    return Rule(nodes, weights, used)


def _degree_five(m: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights, exact for polynomials of degree five (McNamee and Stenger 1967)."""
    far = np.sqrt(3.0)
    nodes, weights = [np.zeros(m)], [1.0 + m * (m - 7) / 18.0]
    for i in range(m):
        for sign in (-far, far):
            nodes.append(sign * np.eye(m)[i])
            weights.append((4.0 - m) / 18.0)
        for j in range(i):
            for one, other in product((-far, far), repeat=2):
                nodes.append(one * np.eye(m)[i] + other * np.eye(m)[j])
                weights.append(1.0 / 36.0)
    return np.array(nodes), np.array(weights)


def averaged(at: Callable[[Array], Any], nodes: Rule) -> Any:
    """The weighted sum of a function over the first nodes of a quadrature."""

    def add(number: Array, total: Any) -> Any:
        found = at(nodes.nodes[number])
        return jax.tree.map(lambda a, b: a + nodes.weights[number] * b, total, found)

    shapes = jax.eval_shape(at, nodes.nodes[0])
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return jax.lax.fori_loop(0, nodes.used, add, zero)
