"""Between the nodes of a grid: log weights interpolated, draws of it, and their density."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.ndimage import map_coordinates
from jax.scipy.special import logsumexp

REFINED = {1: 16, 2: 8, 3: 4}  # cells that a draw picks from, per interval of the grid
BENT = 1.0  # times twice the bend of a parabola with given second differences: these may grow
CLIFF = 20.0  # nats: second differences where nodes end, or where nothing is known of the next
LITTLE = 1.5  # nats: second differences that are no cliff
OFFSETS = np.arange(-28, 29)  # of what a spline has its second derivatives from: 0.27^28 = 1e-16


def drawn_places(log_weights: Array, key: Array, count: int) -> tuple[Array, Array]:
    """Draws from the interpolated density in units of the grid (count, k), and a node for each.

    The nodes are draws too, of the weights, so that the sites of the nodes have the moments of
    their mixture exactly. Along each axis in turn, given those before, place and node are the same
    quantile of their laws: the node is always one beside the place.
    """
    k, refined = log_weights.ndim, REFINED[log_weights.ndim]
    fine = _refined(log_weights, refined, centres=True)
    tables = [jnp.exp(log_weights), jnp.exp(fine - fine.max())]
    steps = [
        [jnp.cumsum(t.sum(axis=tuple(range(axis + 1, k))), axis) for axis in range(k)]
        for t in tables
    ]

    def one(uniforms: Array) -> tuple[Array, Array]:
        node: tuple[Array, ...] = ()
        cell: tuple[Array, ...] = ()
        place = []
        for axis in range(k):
            number, _ = _quantile(steps[0][axis][node], uniforms[axis])
            chosen, within = _quantile(steps[1][axis][cell], uniforms[axis])
            place.append((chosen + within) / refined)
            node, cell = (*node, number), (*cell, chosen)
        return jnp.stack(place), jnp.ravel_multi_index(node, log_weights.shape, mode="clip")

    uniforms = jax.random.uniform(key, (count, k), dtype=float)
    drawn: tuple[Array, Array] = jax.vmap(one)(uniforms)
    return drawn


def density_in_cells(log_weights: Array, place: Array) -> tuple[Array, Array]:
    """The log density of what `drawn_places` draws, in units of the grid, and the node of each."""
    k, refined = log_weights.ndim, REFINED[log_weights.ndim]
    fine = _refined(log_weights, refined, centres=True)
    fine = fine - logsumexp(fine)
    tables = jnp.exp(log_weights), jnp.exp(fine)
    cell = jnp.floor(place * refined).astype(int)
    cell = jnp.clip(cell, 0, jnp.asarray(fine.shape) - 1)
    within = place * refined - cell

    def one(cell: Array, within: Array) -> tuple[Array, Array]:
        node: tuple[Array, ...] = ()
        before: tuple[Array, ...] = ()
        for axis in range(k):
            weights, masses = (
                t.sum(axis=tuple(range(axis + 1, k)))[own]
                for t, own in zip(tables, (node, before), strict=True)
            )
            total = jnp.cumsum(masses)
            below = total[cell[axis]] - masses[cell[axis]]
            share = (below + within[axis] * masses[cell[axis]]) / total[-1]
            node = (*node, _quantile(jnp.cumsum(weights), share)[0])
            before = (*before, cell[axis])
        return fine[before], jnp.ravel_multi_index(node, log_weights.shape, mode="clip")

    log_mass, nodes = jax.vmap(one)(cell, within)
    inside = ((place >= 0) & (place <= jnp.asarray(log_weights.shape) - 1)).all(axis=-1)
    scale = math.log(refined) * sum(size > 1 for size in log_weights.shape)
    return jnp.where(inside, log_mass + scale, -jnp.inf), nodes


def density_at_nodes(log_weights: Array, place: Array) -> tuple[Array, Array]:
    """The spline through log weights, in units of the grid, and the nearest node of each place."""
    refined = REFINED[log_weights.ndim]
    fine = _refined(log_weights, refined, centres=False)
    at = tuple(jnp.moveaxis(place * refined, -1, 0))
    found = map_coordinates(fine, at, order=1, mode="nearest")
    last = jnp.asarray(log_weights.shape) - 1
    # Nodes lie within rounding of themselves.
    inside = ((place >= -1e-6) & (place <= last + 1e-6)).all(axis=-1)
    nearest = jnp.clip(jnp.round(place).astype(int), 0, last)
    index = tuple(jnp.moveaxis(nearest, -1, 0))
    nodes = jnp.ravel_multi_index(index, log_weights.shape, mode="clip")
    return jnp.where(inside, found, -jnp.inf), nodes


def _refined(log_weights: Array, refined: int, *, centres: bool) -> Array:
    """The spline through log weights at finer places along every axis."""
    fine = log_weights
    for axis in range(log_weights.ndim):
        own = finer(jnp.moveaxis(fine, axis, 0), refined, centres=centres)
        fine = jnp.moveaxis(own, 0, axis)
    return fine


def finer(values: Array, refined: int, *, centres: bool) -> Array:
    """The spline through values along the leading axis, at finer places, without its overshoots.

    Beside a cliff, such as that of a half-normal prior in the log of its site, a spline rings: mass
    would be where there is none. So it bends away from the line between two nodes by no more than
    the lesser of the bends at these asks for, or a little.
    """
    count = len(values)
    if count == 1:
        return values
    places = np.arange((count - 1) * refined + (not centres)) / refined + 0.5 / refined * centres
    before = np.minimum(places.astype(int), count - 2)
    within = (places - before).reshape((-1,) + (1,) * (values.ndim - 1))
    line: Array = (1 - within) * values[before] + within * values[before + 1]
    if count == 2:
        return line
    curved = _second_derivatives(values)
    found = line + ((1 - within) ** 3 - (1 - within)) / 6 * curved[before]
    found += (within**3 - within) / 6 * curved[before + 1]
    bends = jnp.abs(jnp.diff(values, 2, axis=0))
    bends = jnp.where(bends < CLIFF, bends, 0.0)
    bends = jnp.concatenate([bends[:1], bends, bends[-1:]])
    one, other = bends[before], bends[before + 1]
    most = jnp.maximum(jnp.minimum(one, other), jnp.minimum((one + other) / 2, LITTLE))
    most = BENT * most * within * (1 - within)
    return jnp.clip(found, line - most, line + most)


def _second_derivatives(values: Array) -> Array:
    """Those of the cubic spline at its nodes, at unit distance along the leading axis.

    They solve m_{i-1} + 4 m_i + m_{i+1} = 6 d_i, with d the second differences, whose inverse is
    (sqrt 3 - 2)^|i - j| / (2 sqrt 3): a sum over a few neighbours, however many nodes there are.
    Beyond the ends the second differences stay what they are.
    """
    bends, count = jnp.diff(values, 2, axis=0), len(values)
    # Bends beside each node; beyond the ends, those at the ends.
    beside = np.clip(np.arange(count)[:, None] + OFFSETS - 1, 0, count - 3)
    shares = 6 * (math.sqrt(3) - 2) ** abs(OFFSETS) / (2 * math.sqrt(3))
    if values.ndim == 1:  # thousands of nodes, perhaps
        return jnp.asarray(bends[beside] @ shares.astype(values.dtype))
    matrix = np.zeros((count, count - 2))  # of several axes each has few
    np.add.at(matrix, (np.arange(count)[:, None], beside), shares)
    return jnp.asarray(jnp.tensordot(matrix.astype(values.dtype), bends, axes=1))


def _quantile(total: Array, probability: Array) -> tuple[Array, Array]:
    """The cell at a quantile, from the cumulative masses of cells, and how far into it."""
    goal = probability * total[-1]
    cell = jnp.minimum(jnp.searchsorted(total, goal), len(total) - 1)
    before = jnp.where(cell > 0, total[cell - 1], 0.0)
    within = (goal - before) / jnp.maximum(total[cell] - before, float(np.finfo(float).tiny))
    return cell, jnp.clip(within, 0.0, 1.0)
