"""Finite discrete sites and the states of one row: what is summed over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jax import Array


@dataclass(frozen=True, eq=False)
class Finite:
    """A discrete latent site of finitely many values.

    `rows` is the batch shape of the site with 1 for the axes whose entries are summed over
    together; one row then has one entry, or cell, for each of those and of the event.
    """

    name: str
    values: np.ndarray
    rows: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def cells(self) -> int:
        """The number of entries in one row."""
        return math.prod(self.shape) // math.prod(self.rows)

    @property
    def states(self) -> int:
        """The number of joint values of the entries in one row."""
        count: int = len(self.values) ** self.cells
        return count

    @cached_property
    def table(self) -> np.ndarray:
        """The index of the value of every cell in every state, (states, cells)."""
        counts = (len(self.values),) * self.cells
        return np.stack(np.unravel_index(np.arange(self.states), counts), axis=-1)

    def entries(self, cells: Array, rest: int = 0) -> Array:
        """Arrange cells (*rows, cells, *rest) as the entries of the site, (*shape, *rest)."""
        rank = len(self.rows)
        batch = tuple(n // r for n, r in zip(self.shape[:rank], self.rows, strict=True))
        event, tail = self.shape[rank:], cells.shape[cells.ndim - rest :]
        apart = cells.reshape(self.rows + batch + event + tail)
        order = [axis for i in range(rank) for axis in (i, rank + i)]
        order += range(2 * rank, apart.ndim)
        return apart.transpose(order).reshape(self.shape + tail)


@dataclass(frozen=True, eq=False)
class Group:
    """Discrete sites that meet in some density, and are summed over together in each row.

    `terms` are the sites whose densities depend on them; `rows` is the shape of the rows.
    """

    sites: tuple[Finite, ...]
    terms: tuple[str, ...]
    rows: tuple[int, ...]

    @property
    def states(self) -> int:
        """The number of joint values of the sites in one row."""
        return math.prod(site.states for site in self.sites)

    def indices(self, states: Array) -> dict[str, Array]:
        """The index of the value of every entry of the sites, where rows are in given states."""
        found = {}
        for site, own in zip(self.sites, self._own(states), strict=True):
            cells = jnp.asarray(site.table)[own.reshape(site.rows)]
            found[site.name] = site.entries(cells)
        return found

    def values(self, states: Array) -> dict[str, Array]:
        """The values of the sites, where rows are in given states."""
        indices = self.indices(states)
        return {site.name: jnp.asarray(site.values)[indices[site.name]] for site in self.sites}

    def marginals(self, probabilities: Array) -> dict[str, Array]:
        """The probability of every value of every entry, given those of states (states, *rows)."""
        found = {}
        for site, own in zip(self.sites, self._own(np.arange(self.states)), strict=True):
            chosen = np.eye(len(site.values))[
                site.table[np.asarray(own)]
            ]  # (states, cells, values)
            cells = jnp.tensordot(probabilities, chosen, axes=(0, 0))
            found[site.name] = site.entries(cells.reshape((*site.rows, *chosen.shape[1:])), rest=1)
        return found

    def by_row(self, log_prob: Array) -> Array:
        """A log density summed to one number for each row."""
        padded = (1,) * (log_prob.ndim - len(self.rows)) + self.rows
        axes = tuple(i for i, n in enumerate(padded) if n == 1)
        return jnp.sum(log_prob, axis=axes, keepdims=True).reshape(self.rows)

    def _own(self, states: Array | np.ndarray) -> list[Array | np.ndarray]:
        """The state of each site alone."""
        found: list[Array | np.ndarray] = []
        for site in reversed(self.sites):
            found.insert(0, states % site.states)
            states = states // site.states
        return found


def row_axes(batch: Sequence[int], terms: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The batch shape of a discrete site with 1 for the axes that some term does not have.

    `terms` are the batch shapes of the densities that depend on the site.

    >>> row_axes((5, 3), [(5, 1), (2, 5, 3)])
    (5, 1)
    """
    rank = len(batch)

    def kept(axis: int) -> bool:
        place = axis - rank
        return all(len(b) >= -place and b[place] == batch[axis] for b in terms)

    return tuple(n if kept(axis) else 1 for axis, n in enumerate(batch))
