"""Finite discrete sites and the states of one row: what is summed over."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from lowerbound.model import Site


def is_listable(site: Site) -> bool:
    """Whether the values of a discrete site can be listed: finitely many, or counts 0, 1, ..."""
    if site.support_values is not None:
        return True
    counts = site.support is not None and not site.event_shape
    return counts and getattr(site.support, "lower_bound", 0) == 0


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

    def spanning(self, rows: Sequence[int]) -> Finite:
        """The site with other rows: one in place of many, say, where all are in the same state."""
        rank = len(self.rows)
        own = ((1,) * rank + tuple(rows))[len(rows) :]
        batch = zip(self.shape, self.rows, own, strict=False)
        shape = tuple(n // before * after for n, before, after in batch)
        return replace(self, rows=own, shape=shape + self.shape[rank:])

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

    `terms` are the sites whose densities depend on them; `rows` is the shape of the rows. `once`
    says that a state which rows share can be given to the program once, with an axis of length 1
    for these rows: what depends on it alone is then computed once, and not in every row.

    The reach of a term is how many rows back the states are that its density in a row depends on,
    and `lag` is the longest: 0 where rows do not affect each other. A term is evaluated in as many
    runs of the program as there are windows of states within its reach.
    """

    sites: tuple[Finite, ...]
    terms: tuple[str, ...]
    rows: tuple[int, ...]
    once: bool = field(default=False, kw_only=True)
    lag: int = field(default=0, kw_only=True)
    reach: Mapping[str, int] = field(default_factory=dict, kw_only=True)  # `lag` unless it says

    @property
    def states(self) -> int:
        """The number of joint values of the sites in one row."""
        return math.prod(site.states for site in self.sites)

    @property
    def apart(self) -> tuple[int, ...]:
        """The shape of what does not affect each other: here the rows."""
        return self.rows

    @property
    def table(self) -> tuple[int, ...]:
        """The shape of the weights."""
        return (self.states, *self.rows)

    @property
    def by_reach(self) -> dict[int, tuple[str, ...]]:
        """The terms of every reach."""
        of = {term: self.reach.get(term, self.lag) for term in self.terms}
        return {r: tuple(t for t in self.terms if of[t] == r) for r in sorted(set(of.values()))}

    def runs(self, reach: int) -> int:
        """The number of runs of the program that give the weights of terms of some reach."""
        return self.states

    @property
    def text(self) -> str:
        """What is summed over, in words."""
        return f"over {self.states} states in each row"

    def patterns(self, reach: int) -> np.ndarray:
        """The states of rows in every run, (runs, *rows), of length 1 where rows share theirs."""
        return np.arange(self.states).reshape((-1,) + (1,) * len(self.rows))

    def given(self, reach: int) -> np.ndarray:
        """The patterns as the program takes them: with all rows, unless once is enough."""
        every = self.patterns(reach)
        return every if self.once else np.broadcast_to(every, (len(every), *self.rows))

    def arranged(self, found: Array | np.ndarray, reach: int) -> Any:
        """The weights of terms of some reach, given their log densities by row in every run.

        They have the axes of `table`, of length 1 for the states beyond the reach.
        """
        return found

    def instead(self, possible: Array) -> Array:
        """The states to take in every run, possible ones, where rows do not affect each other.

        The slope of an impossible state may be 0 * inf.
        """
        return jnp.where(possible, self.patterns(0), jnp.argmax(possible, axis=0))

    def windows(self, states: np.ndarray, reach: int) -> tuple[np.ndarray, ...]:
        """The index into the weights of some reach, where rows are in given states."""
        return (states, *np.indices(self.rows))

    def random(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Random states of all rows, (count, *rows)."""
        return rng.integers(self.states, size=(count, *self.rows))

    def site_states(self, own: Array | np.ndarray, site: Finite) -> Array | np.ndarray:
        """What belongs to a site's own rows, given an array with the axes of all rows first."""
        return own

    def totals(self, weights: Array) -> Array:
        """The log of the sum over states, in every row."""
        return log_sum(weights, axis=0)

    def probabilities(self, weights: Array) -> dict[str, Array]:
        """The probability of every value of every entry of the sites."""
        return self.marginals(jax.nn.softmax(weights, axis=0))

    def draw(self, weights: Array, key: Array) -> dict[str, Array]:
        """A draw of the sites, as indices of their values."""
        return self.indices(jax.random.categorical(key, weights, axis=0))

    def indices(self, states: Array) -> dict[str, Array]:
        """The index of the value of every entry of the sites, where rows are in given states."""
        found = {}
        for site, own in zip(self.sites, self._own(states), strict=True):
            mine = jnp.asarray(self.site_states(own, site))
            spanned = site.spanning(mine.shape)
            found[site.name] = spanned.entries(jnp.asarray(site.table)[mine.reshape(spanned.rows)])
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
            cells = jnp.asarray(self.site_states(cells, site))
            found[site.name] = site.entries(cells.reshape((*site.rows, *chosen.shape[1:])), rest=1)
        return found

    def by_row(self, log_prob: Array, term: str = "") -> Array:
        """A log density summed to one number for each row."""
        log_prob = log_prob.reshape((1,) * (len(self.rows) - log_prob.ndim) + log_prob.shape)
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


def log_sum(logs: Array, axis: int | tuple[int, ...]) -> Array:
    """The log of a sum of exponentials, whose slope is 0, and not 0 / 0, where all are zeros."""
    alive = ~(logs == -jnp.inf).all(axis=axis, keepdims=True)
    sums = logsumexp(jnp.where(alive, logs, 0.0), axis=axis)
    return jnp.where(alive.squeeze(axis), sums, -jnp.inf)


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
