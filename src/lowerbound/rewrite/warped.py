"""Warped coordinates: x = T(u) entry by entry, for sites that are skewed on the real line.

x are the sites' own unconstrained numbers, and T is a smooth increasing map by a table: where it
takes standard normal numbers to the law that x has, a Gaussian of u is that law.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.nn import log_sigmoid
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import ComposeTransform, ParameterFreeTransform, Transform

FAR, KNOTS = 8.0, 65
GRID = np.linspace(-FAR, FAR, KNOTS)  # of u, between which a table holds; straight on beyond
_STEP = float(GRID[1] - GRID[0])


class Warp(Transform):  # type: ignore[misc]
    """The map of each entry: rational quadratic between the knots (Gregory & Delbourgo 1982).

    table: values and slopes at the knots, with the axes (entries..., knots, 2).
    """

    domain = constraints.real
    codomain = constraints.real

    def __init__(self, table: Any) -> None:
        self.table = table

    def __call__(self, u: Any) -> Array:
        """The numbers x."""
        return jnp.asarray(warped(u, self.table)[0])

    def _inverse(self, x: Any) -> Array:
        table = jnp.broadcast_to(self.table, (*jnp.shape(x), *np.shape(self.table)[-2:]))
        cell = jnp.sum(table[..., 0] <= x[..., None], axis=-1) - 1
        low, high, below, above = _ends(table, jnp.clip(cell, 0, KNOTS - 2), jnp)
        inside = jnp.where(x < low, low, jnp.where(x > high, high, x))
        mean, rise = (high - low) / _STEP, inside - low
        bend = below + above - 2.0 * mean
        square = (high - low) * (mean - below) + rise * bend
        linear = (high - low) * below - rise * bend
        root = jnp.sqrt(jnp.maximum(linear**2 + 4.0 * square * mean * rise, 0.0))
        share = 2.0 * mean * rise / (linear + root)
        beyond = (x - inside) / jnp.where(x < low, below, above)
        first = -FAR + _STEP * jnp.clip(cell, 0, KNOTS - 2)
        return jnp.asarray(first + _STEP * share + beyond)

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Array:
        """Log dx/du of each entry."""
        return jnp.asarray(warped(x, self.table)[1])

    def tree_flatten(self) -> Any:
        """The table is an array of the program."""
        return (self.table,), (("table",), {})

    def eq(self, other: object, static: bool = False) -> Any:
        """Whether both have one table."""
        if not isinstance(other, Warp):
            return False
        return self.table is other.table if static else jnp.array_equal(self.table, other.table)


class Sticks(ParameterFreeTransform):  # type: ignore[misc]
    """NumPyro's stick breaking, without its bounds: a share of 1e-30 is one, and not 2e-16."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def __call__(self, x: Any) -> Array:
        """The simplex."""
        logs = _log_shares(x)[0]
        return jnp.exp(jnp.maximum(logs, np.log(np.finfo(logs.dtype).tiny)))

    def _inverse(self, y: Any) -> Array:
        rest = jnp.cumsum(y[..., ::-1], axis=-1)[..., ::-1][..., 1:]
        return jnp.asarray(jnp.log(y[..., :-1]) - jnp.log(rest) + _offsets(y.shape[-1] - 1))

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Array:
        """Log of the product of shares and of what is left beside each stick."""
        logs, left = _log_shares(x)
        return jnp.sum(logs[..., :-1] + left, axis=-1)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number more."""
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """One number less."""
        return (*shape[:-1], shape[-1] - 1)


def warped(u: Any, table: Any, using: Any = jnp) -> tuple[Any, Any]:
    """The numbers x at u, and log dx/du; by NumPy where that is what is `using`."""
    place = (u + FAR) / _STEP
    cell = using.clip(using.floor(place), 0, KNOTS - 2)
    shape = (*np.shape(place), *np.shape(table)[-2:])
    ends = _ends(using.broadcast_to(table, shape), cell.astype(int), using)
    low, high, below, above = ends
    # Where a share is cut off it has no slope, and at a knot it has its own.
    share = using.where(place < 0.0, 0.0, using.where(place > KNOTS - 1, 1.0, place - cell))
    beyond = _STEP * (place - cell - share)
    mean, both = (high - low) / _STEP, share * (1.0 - share)
    under = mean + (below + above - 2.0 * mean) * both
    inside = low + (high - low) * (mean * share**2 + below * both) / under
    over = above * share**2 + 2.0 * mean * both + below * (1.0 - share) ** 2
    slope = 2.0 * using.log(mean / under) + using.log(over)
    return inside + using.where(beyond < 0.0, below, above) * beyond, slope


def straight_table(shape: tuple[int, ...]) -> np.ndarray:
    """The table of x = u."""
    table = np.stack([GRID, np.ones(KNOTS)], axis=-1)
    return np.broadcast_to(table, (*shape, KNOTS, 2))


def warping(support: Any, table: Any) -> Transform:
    """The bijection from u to a site."""
    simplex = isinstance(support, type(constraints.simplex))
    own = Sticks() if simplex else biject_to(support)
    return ComposeTransform([Warp(table), own])


def warp_name(site: str) -> str:
    """The name of a table among the data."""
    return f"warp of {site}"


def warp_of(site: str, data: Mapping[str, Any]) -> Any:
    """The table of a warped site."""
    return data[warp_name(site)]


def _ends(table: Any, cell: Any, using: Any) -> tuple[Any, Any, Any, Any]:
    """Values at both ends of a cell, and slopes there."""

    def at(knot: Any) -> Any:
        return using.take_along_axis(table, knot[..., None, None], axis=-2)[..., 0, :]

    first, last = at(cell), at(cell + 1)
    return first[..., 0], last[..., 0], first[..., 1], last[..., 1]


def _offsets(sticks: int) -> Array:
    """Of numbers x = 0, for which all shares are equal."""
    return jnp.asarray(np.log(sticks - np.arange(sticks)))


def _log_shares(x: Any) -> tuple[Array, Array]:
    """Logs of the shares, and of what each stick leaves."""
    logits = x - _offsets(x.shape[-1]).astype(x.dtype)
    left = log_sigmoid(-logits)
    none = jnp.zeros_like(left[..., :1])
    before = jnp.concatenate([none, jnp.cumsum(left, axis=-1)], axis=-1)
    return jnp.concatenate([log_sigmoid(logits), none], axis=-1) + before, left
