"""Discrete sites of rows within rows: the true class of an item, and each reader's attention.

Given the outer site, the inner one is summed over in every fine row by itself; then the outer one,
in every coarse row. That costs the states of one pair in every fine row, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.rewrite.summing.finite import Finite, Group, log_sum


@dataclass(frozen=True, eq=False)
class Nested(Group):
    """Sites of fine rows, of shape `rows`, within coarse ones, of shape `coarse`.

    Both shapes have one rank, and `coarse` has 1 where rows lie within one another. The first
    `outer` of the sites are those of coarse rows, and the terms `whole` depend on them alone. The
    weights are (outer, inner, *rows); those of a whole coarse row are in its first fine one.
    """

    coarse: tuple[int, ...] = ()
    outer: int = 1
    whole: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, sites: Sequence[Finite], terms: Sequence[str], inside: Mapping[str, frozenset[str]]
    ) -> Nested | None:
        """The nested group of sites with rows of two shapes; None where there is no such order.

        `inside` says which discrete sites each term depends on.
        """
        rank = max(len(site.rows) for site in sites)
        rows = {s.name: (1,) * (rank - len(s.rows)) + tuple(s.rows) for s in sites}
        shapes = sorted(set(rows.values()), key=math.prod)
        if len(shapes) != 2:
            return None
        coarse, fine = shapes
        if any(a not in (1, b) for a, b in zip(coarse, fine, strict=True)):
            return None
        above = tuple(site for site in sites if rows[site.name] == coarse)
        within = tuple(site for site in sites if rows[site.name] == fine)
        names = {site.name for site in within}
        whole = tuple(term for term in terms if not inside[term] & names)
        return cls((*above, *within), tuple(terms), fine, coarse, len(above), whole)

    @property
    def outer_states(self) -> int:
        """The number of joint values of the sites of one coarse row."""
        return math.prod(site.states for site in self.sites[: self.outer])

    @property
    def apart(self) -> tuple[int, ...]:
        """The shape of the coarse rows, which do not affect each other."""
        return self.coarse

    @property
    def text(self) -> str:
        """What is summed over, in words."""
        inner = self.states // self.outer_states
        return f"over {inner} states in each row, and {self.outer_states} of the rows around it"

    # -- states ------------------------------------------------------------------------------------

    def site_states(self, own: Array | np.ndarray, site: Finite) -> Array | np.ndarray:
        """What belongs to a site's own rows: an outer one has the first fine row of each."""
        if self.sites.index(site) >= self.outer:
            return own
        first = tuple(slice(None) if n > 1 else slice(1) for n in self.coarse)
        return own[first]

    def random(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Random states of all rows, (count, *rows): fine rows share that of their coarse one."""
        inner = self.states // self.outer_states
        outer = rng.integers(self.outer_states, size=(count, *self.coarse))
        return outer * inner + rng.integers(inner, size=(count, *self.rows))

    def by_row(self, log_prob: Array, term: str = "") -> Array:
        """A log density summed to one number for each row."""
        if term not in self.whole:
            return super().by_row(log_prob)
        places = [
            i == 0 if n == 1 else i >= 0
            for i, n in zip(np.indices(self.rows), self.coarse, strict=True)
        ]
        shared = Group(self.sites, self.terms, self.coarse).by_row(log_prob)
        return jnp.where(np.all(places, axis=0), shared, 0.0)

    def instead(self, possible: Array) -> Array:
        """The states to take in every run: possible ones, all fine rows with one outer state."""
        inner = self.states // self.outer_states
        apart = possible.reshape((self.outer_states, inner, *self.rows))
        above = self._within(~apart.any(axis=1)) == 0
        outer = jnp.arange(self.outer_states).reshape((-1,) + (1,) * len(self.rows))
        outer = jnp.where(above, outer, jnp.argmax(above, axis=0))
        outer = jnp.broadcast_to(outer, (self.outer_states, *self.rows))
        there = jnp.take_along_axis(apart, outer[:, None], axis=0)
        own = jnp.arange(inner).reshape((1, -1) + (1,) * len(self.rows))
        own = jnp.where(there, own, jnp.argmax(there, axis=1, keepdims=True))
        return (outer[:, None] * inner + own).reshape((self.states, *self.rows))

    # -- sums --------------------------------------------------------------------------------------

    def totals(self, weights: Array) -> Array:
        """The log of the sum over all states of every coarse row."""
        return log_sum(self._outer(weights), axis=0)

    def probabilities(self, weights: Array) -> dict[str, Array]:
        """The probability of every value of every entry of the sites."""
        outer = jax.nn.softmax(self._outer(weights), axis=0)
        apart = self._apart(weights)
        alive = (apart > -jnp.inf).any(axis=1, keepdims=True)
        inner = jax.nn.softmax(jnp.where(alive, apart, 0.0), axis=1) * outer[:, None]
        return self.marginals(inner.reshape((self.states, *self.rows)))

    def draw(self, weights: Array, key: Array) -> dict[str, Array]:
        """A draw of the sites, as indices: the outer ones, then those inside."""
        first, second = jax.random.split(key)
        outer = jax.random.categorical(first, self._outer(weights), axis=0)
        spread = jnp.broadcast_to(outer, self.rows)
        given = jnp.take_along_axis(self._apart(weights), spread[None, None], axis=0)[0]
        inner = jax.random.categorical(second, given, axis=0)
        return self.indices(spread * (self.states // self.outer_states) + inner)

    def _apart(self, weights: Array) -> Array:
        return weights.reshape((self.outer_states, -1, *self.rows))

    def _outer(self, weights: Array) -> Array:
        """The log weights of the outer states, with the inner ones summed out."""
        return self._within(log_sum(self._apart(weights), axis=1))

    def _within(self, fine: Array) -> Array:
        """The sum of numbers of fine rows over each coarse row."""
        axes = tuple(1 + i for i, n in enumerate(self.coarse) if n == 1)
        return jnp.sum(fine, axis=axes, keepdims=True)
