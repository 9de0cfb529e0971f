"""Quadrature of many densities on the line at once, wherever their mass lies.

A density exp(g(u)) is known only through g, and its scale may be 1e-7 or 1e7. A mesh that starts as
one net over the whole line is moved until every cell holds an equal share of what there is to
resolve: the change of exp(g / TAIL) and the bend of g. Its cells are then joined to a few panels,
each with a Gauss-Legendre rule. The first axis of every array counts nodes, cells or panels; the
other axes are the batch of densities.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

__all__ = ["Cumulative", "Placed", "below", "cumulative", "invert", "place", "polished", "rule"]

CELLS: Final = 40
PANELS: Final = 20
NODES: Final = 8  # of each panel
ROUNDS: Final = 14  # at most; the mesh of an ordinary density settles after four or five
TAIL: Final = 12.0
DEPTH: Final = 45.0  # nats below the mode that the panels cover
BEND: Final = 3.0  # what one bend counts, beside one nat of change
GROWTH: Final = 1.0  # of panels with their distance from what is small
FALL: Final = 21.0  # nats that a proper density falls towards either end of the line

_X, _W = np.polynomial.legendre.leggauss(NODES)


class Placed(NamedTuple):
    """Edges of the panels, shape (PANELS + 1,) + batch, and which rows fall at both ends.

    The first row tells whether the density is proper, the others whether its moments are finite.
    """

    edges: Array
    counted: Array

    @property
    def proper(self) -> Array:
        """True where the density can be normalised."""
        return self.counted[0]


class _Mesh(NamedTuple):
    nodes: Array
    share: Array  # of every cell in what there is to resolve
    counted: Array
    settled: Array
    round: Array


# --------------------------------------------------------------------------------------------------
# Placement


def place(profiles: Callable[[Array], Array], batch: tuple[int, ...], dtype: np.dtype) -> Placed:
    """Panels that cover the mass of each density and of its moments.

    `profiles` maps nodes, shape (n,) + batch, to rows of shape (m, n) + batch: first g = log
    density, then g + log|t| for every t whose mean is wanted; -inf where nothing is known.
    """
    net = _net().astype(dtype).reshape(-1, *(1 for _ in batch))
    start = jnp.broadcast_to(net, (CELLS + 1, *batch))
    rows = jax.eval_shape(profiles, start).shape[0]
    first = _Mesh(
        start,
        jnp.ones((CELLS, *batch), dtype),  # so that the first round keeps the net
        jnp.ones((rows, *batch), bool),
        jnp.zeros(batch, bool),
        jnp.zeros((), int),
    )

    def unsettled(mesh: _Mesh) -> Array:
        return (mesh.round < ROUNDS) & ~jnp.all(mesh.settled)

    def refined(mesh: _Mesh) -> _Mesh:
        nodes = _equal_shares(mesh.nodes, mesh.share, CELLS)
        rows = profiles(nodes)
        top = jnp.max(rows, axis=1, keepdims=True)
        fallen = rows - jnp.where(jnp.isfinite(top), top, 0)
        # Judged anew: a net may know a narrow density at a single node, beside which it is zero.
        counted = _falls(fallen) & jnp.isfinite(top[:, 0])
        share = _graded(nodes, _shares(nodes, fallen, counted.at[0].set(True)), PANELS)
        crowded = jnp.max(share, axis=0) * CELLS > 4 * jnp.sum(share, axis=0)
        return _Mesh(nodes, share, counted, ~crowded, mesh.round + 1)

    mesh = lax.while_loop(unsettled, refined, first)
    return Placed(_equal_shares(mesh.nodes, mesh.share, PANELS), mesh.counted)


def _net() -> np.ndarray:
    """Nodes over the whole line: even near the origin, geometric beyond."""
    near = np.arange(1, CELLS // 4 + 1) * 2.0
    far = near[-1] * np.geomspace(1, 1e11, CELLS // 4 + 1)[1:]
    half = np.concatenate([near, far])
    return np.concatenate([-half[::-1], [0.0], half])


def _falls(fallen: Array) -> Array:
    """True where a row has fallen at the first and the last node where it is known."""
    known = fallen > -jnp.inf
    first, last = jnp.argmax(known, axis=1), -1 - jnp.argmax(known[:, ::-1], axis=1)
    ends = jnp.stack([first, last + fallen.shape[1]], axis=1)
    return jnp.all(_taken(fallen, ends, 1) < -FALL, axis=1)


def _taken(array: Array, index: Array, axis: int = 0) -> Array:
    """Entries by their position, which is one of the array: nothing is compiled to check it."""
    return jnp.take_along_axis(array, index, axis=axis, mode="promise_in_bounds")


def _shares(nodes: Array, fallen: Array, counted: Array) -> Array:
    """How much there is to resolve in every cell; infinite moments are not pursued."""
    weight = jnp.where(counted[:, None] & (fallen > -DEPTH), jnp.exp(fallen / TAIL), 0)
    change = TAIL * jnp.max(jnp.abs(jnp.diff(weight, axis=1)), axis=0)
    highest = jnp.max(weight, axis=0)
    return change + jnp.maximum(highest[:-1], highest[1:]) * _bend(nodes, fallen[0])


def _bend(nodes: Array, fallen: Array) -> Array:
    """How far g departs from a line, and from a cubic, in every cell, in units of length."""
    width = jnp.diff(nodes, axis=0)
    difference = jnp.maximum(fallen, -2 * DEPTH)
    bend = jnp.zeros_like(width)
    for order in range(1, 5):
        reach = nodes[order:] - nodes[:-order]
        difference = jnp.diff(difference, axis=0) / jnp.where(reach > 0, reach, jnp.inf)
        if order % 2 == 0:
            near = _widest(jnp.abs(difference), order, len(width))
            # Roots first: the fourth power of a width overflows in single precision.
            root = near ** (1 / order) * width
            bend = jnp.maximum(bend, jnp.minimum(root, DEPTH ** (1 / order)))
    return BEND * bend


def _widest(difference: Array, order: int, cells: int) -> Array:
    """The largest difference that spans each cell."""
    padding = [(order - 1, order - 1), *((0, 0) for _ in difference.shape[1:])]
    padded = jnp.pad(difference, padding)
    spans = [padded[k : k + cells] for k in range(order)]
    return jnp.max(jnp.stack(spans), axis=0)


def _graded(nodes: Array, share: Array, count: int) -> Array:
    """Shares enlarged so that the sizes of `count` cells grow no faster than their distance."""
    width = jnp.diff(nodes, axis=0)
    middle = nodes[:-1] + width / 2
    size = jnp.where(share > 0, width / jnp.where(share > 0, share, 1), jnp.inf)
    size = size * jnp.sum(share, axis=0) / count
    rise = GROWTH * middle
    size = jnp.minimum(lax.cummin(size - rise) + rise, lax.cummin(size + rise, reverse=True) - rise)
    return jnp.where(share > 0, width / jnp.maximum(size, np.finfo(size.dtype).tiny), 0)


def _equal_shares(nodes: Array, share: Array, count: int) -> Array:
    """Edges of `count` cells with equal shares, a share being spread evenly over its old cell."""
    reached = jnp.cumsum(share, axis=0)
    before = reached - share
    steps = np.linspace(0, 1, count + 1).reshape(-1, *(1 for _ in share.shape[1:]))
    wanted = jnp.asarray(steps, share.dtype) * reached[-1]
    last = share.shape[0] - 1 - jnp.argmax(share[::-1] > 0, axis=0)
    cell = jnp.sum(reached[None] <= wanted[:, None], axis=1)
    cell = jnp.minimum(cell, last)

    def at(array: Array) -> Array:
        return _taken(array, cell)

    size = at(share)
    part = jnp.clip((wanted - at(before)) / jnp.where(size > 0, size, 1), 0, 1)
    left, right = at(nodes[:-1]), at(nodes[1:])
    return lax.cummax(left + part * (right - left))


# --------------------------------------------------------------------------------------------------
# Integration


def rule(edges: Array) -> tuple[Array, Array]:
    """Nodes and weights of the Gauss-Legendre rule on every panel, PANELS * NODES in all."""
    half = jnp.diff(edges, axis=0) / 2
    middle = edges[:-1] + half
    batch = edges.shape[1:]
    ones = [1 for _ in batch]
    column = (1, NODES, *ones)
    x, w = (jnp.asarray(a.reshape(column), edges.dtype) for a in (_X, _W))
    nodes = middle[:, None] + half[:, None] * x
    weights = half[:, None] * w
    return nodes.reshape(-1, *batch), weights.reshape(-1, *batch)


class Cumulative(NamedTuple):
    """P(u below each edge), and within a panel a polynomial in x from -1 to 1, constant first."""

    edges: Array
    reached: Array
    polynomials: Array  # (NODES + 1, PANELS) + batch


def cumulative(edges: Array, probabilities: Array) -> Cumulative:
    """The distribution function of a density with the given probabilities at the rule's nodes."""
    batch = edges.shape[1:]
    mass = probabilities.reshape(PANELS, NODES, *batch)
    reached = jnp.cumsum(jnp.sum(mass, axis=1), axis=0)
    reached = jnp.concatenate([jnp.zeros_like(reached[:1]), reached]) / reached[-1]
    matrix = jnp.asarray(_antiderivative(), edges.dtype)
    return Cumulative(edges, reached, jnp.einsum("ck,pk...->cp...", matrix, mass))


def _antiderivative() -> np.ndarray:
    """From masses at the nodes of a panel to the coefficients of their integral from -1 to x."""
    legendre = np.polynomial.legendre
    columns = []
    for node in range(NODES):
        basis = legendre.legvander(_X[node : node + 1], NODES - 1)[0]
        series = basis * (2 * np.arange(NODES) + 1) / 2
        columns.append(legendre.leg2poly(legendre.legint(series, lbnd=-1)))
    return np.stack(columns, axis=1)


def below(table: Cumulative, u: Array) -> Array:
    """P(U < u); `u` has leading axes before the batch."""
    inside = table.edges[1:-1]
    lead = u.reshape(-1, *inside.shape[1:])
    panel = jnp.sum(inside[None] <= lead[:, None], axis=1)
    left, width, reached, polynomial = _panel(table, panel)
    x = jnp.clip(2 * (lead - left) / jnp.where(width > 0, width, 1) - 1, -1, 1)
    return jnp.clip(reached + _horner(polynomial, x)[0], 0, 1).reshape(u.shape)


def invert(table: Cumulative, p: Array) -> Array:
    """The quantile u with P(U < u) = p; `p` has leading axes before the batch."""
    inside = table.reached[1:-1]
    lead = p.reshape(-1, *inside.shape[1:])
    panel = jnp.sum(inside[None] <= lead[:, None], axis=1)
    left, width, reached, polynomial = _panel(table, panel)
    wanted = lead - reached
    slack = 8 * float(np.finfo(p.dtype).eps)

    def step(_: int, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, low, high = state
        value, slope = _horner(polynomial, x)
        low = jnp.where(value < wanted, x, low)
        high = jnp.where(value < wanted, high, x)
        new = x + (wanted - value) / jnp.where(slope > 0, slope, 1)
        # At the root, a rounding beyond the bracket must not send the next step to its middle.
        good = (slope > 0) & (new > low - slack) & (new < high + slack)
        return jnp.where(good, new, (low + high) / 2), low, high

    one = jnp.ones_like(lead)
    x: Array = lax.fori_loop(0, 25, step, (0 * one, -one, one))[0]
    return (left + (x + 1) / 2 * width).reshape(p.shape)


def polished(table: Cumulative, density: Callable[[Array], Array], p: Array, u: Array) -> Array:
    """The quantile u of p corrected by the density itself, which is integrated from its panel on.

    `density` takes points of shape (n,) + batch.
    """
    inside = table.edges[1:-1]
    lead, wanted = (a.reshape(-1, *inside.shape[1:]) for a in (u, p))
    panel = jnp.sum(inside[None] <= lead[:, None], axis=1)
    left, width, reached, _ = _panel(table, panel)
    ones = [1 for _ in lead.shape]
    x, w = (jnp.asarray(a, u.dtype).reshape(-1, *ones) for a in ((_X + 1) / 2, _W / 2))

    def step(_: int, at: Array) -> Array:
        nodes = jnp.concatenate([left + x * (at - left), at[None]])
        q = density(nodes.reshape(-1, *inside.shape[1:])).reshape(nodes.shape)
        excess = reached + (at - left) * jnp.sum(w * q[:-1], axis=0) - wanted
        move = jnp.where(q[-1] > 0, excess / jnp.where(q[-1] > 0, q[-1], 1), 0)
        return jnp.clip(at - move, left, left + width)

    found: Array = lax.fori_loop(0, 3, step, lead)
    return found.reshape(u.shape)


def _panel(table: Cumulative, panel: Array) -> tuple[Array, Array, Array, Array]:
    """Left edge, width, probability before it and polynomial of the panels asked for."""

    def at(array: Array) -> Array:
        return _taken(array, panel)

    left = at(table.edges[:-1])
    polynomial = _taken(table.polynomials, panel[None], 1)
    return left, at(table.edges[1:]) - left, at(table.reached[:-1]), polynomial


def _horner(polynomial: Array, x: Array) -> tuple[Array, Array]:
    """The value of a polynomial and its derivative."""
    value, slope = polynomial[-1], jnp.zeros_like(x)
    for coefficient in polynomial[-2::-1]:
        value, slope = value * x + coefficient, slope * x + value
    return value, slope
