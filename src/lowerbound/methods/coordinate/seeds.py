"""Starts of a mixture: responsibilities from rows of the data, and the factors given them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent import State
from lowerbound.compute.engine import Arrays, Engine
from lowerbound.joint import gradient


def one_of(scores: Array) -> Array:
    """Each row in the category of its largest score."""
    chosen: Array = jax.nn.one_hot(jnp.argmax(scores, -1), scores.shape[-1], dtype=scores.dtype)
    return chosen


@dataclass(frozen=True)
class Seeds:
    """Starts of a mixture from responsibilities, with the other factors given them."""

    engine: Engine
    arrays: Arrays
    number: int  # the block of the assignments

    def soft(self, state: State, rows_drawn: Any, uniforms: Any, how: str) -> tuple[Array, State]:
        """Responsibilities from K rows of the data, (rows, K), and the factors given them.

        Each component gets half its share of the rows from one row and half from all rows alike, so
        that its centre is drawn to the row and its spread is that of the data. Rows are drawn one
        by one with probability proportional to how much worse the components so far explain a row
        than they explain their own (squared distance, for unit-variance Gaussians): k-means++.
        """
        rows, categories, dtype = self._shape(state)
        share = rows / categories
        base = jnp.full((rows, categories), 0.5 / categories, dtype)
        if how == "rows":
            drawn: Array = base.at[rows_drawn, jnp.arange(categories)].add(0.5 * share)
            return drawn, self.given(drawn, state)

        def body(k: Array, carry: tuple[Array, Array, State]) -> tuple[Array, Array, State]:
            indicator, gap, _ = carry
            total = jnp.cumsum(gap)
            row = jnp.searchsorted(total, uniforms[k] * total[-1])
            indicator = indicator.at[row, k].add(0.5 * share)
            led = self.given(indicator, state)
            own = self.scores(led)[:, k]
            return indicator, jnp.minimum(gap, jnp.maximum(own[row] - own, 0.0) + 1e-6), led

        gap = jnp.full((rows,), float(np.finfo(dtype).max) / (2 * rows), dtype)
        like = jax.eval_shape(self.given, base, state)
        blank = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)
        found, _, led = jax.lax.fori_loop(0, categories, body, (base, gap, blank))
        return found, led

    def hard(self, state: State, rounds: Array) -> State:
        """Every row in the component that explains it best, a few times over: k-means."""

        def body(_: Array, state: State) -> State:
            return self.given(one_of(self.scores(state)), state)

        hardened: State = jax.lax.fori_loop(0, rounds, body, state)
        return hardened

    def _shape(self, state: State) -> tuple[int, int, Any]:
        indicator = state.means[self.number]["indicator"]
        rows = self.engine.joint.blocks[self.number].elements
        return rows, indicator.shape[-1], indicator.dtype

    def scores(self, state: State) -> Array:
        """The expected log density of every row in every component, up to a constant of the row."""
        rows, categories, _ = self._shape(state)
        found = gradient(self.engine.joint.summands, self.arrays, state.means, self.number)
        return found["indicator"].reshape(rows, categories)

    def given(self, indicator: Array, state: State) -> State:
        """The factors of all rows, given responsibilities."""
        shape = state.means[self.number]["indicator"].shape
        own = self.engine.family.families[self.number].assigned(indicator.reshape(shape))
        state = state.replaced(self.number, state.naturals[self.number], own)
        for number in reversed(self._others):
            state = self._updated(state, number)
        return state

    @property
    def _others(self) -> list[int]:
        return [n for n in self._free if n not in self._beside]

    @property
    def _free(self) -> list[int]:
        blocks = self.engine.joint.blocks
        return [n for n in self.engine.sweep.order if n != self.number and not blocks[n].sequential]

    @property
    def _beside(self) -> list[int]:
        """Other factors of single rows: a row weighs more or less than one here.

        Only sums over rows can bear that.
        """
        blocks, local = self.engine.joint.blocks, set(self.engine.joint.model.local)
        return [n for n in self._free if set(blocks[n].sites) & local]

    def settled(self, state: State) -> State:
        """Where single rows have other factors, those and the responsibilities updated."""
        for number in (self.number, *self._beside) if self._beside else ():
            state = self._updated(state, number)
        return state

    def _updated(self, state: State, number: int) -> State:
        """A block updated where its target is proper.

        As rows do not weigh one, what should be a sum of squares may be negative.
        """
        new, proper = self.engine.sweep.checked(self.arrays, state, number)
        for array in jax.tree.leaves(new.means[number]):
            fine = jnp.isfinite(array).reshape((*proper.shape, -1)).all(axis=-1)
            proper = proper & fine
        old = state.naturals[number], state.means[number]
        chosen = jax.tree.map(
            lambda a, b: _kept(proper, a, b),
            (new.naturals[number], new.means[number]),
            old,
        )
        return state.replaced(number, *chosen)


def _kept(proper: Array, new: Array, old: Array) -> Array:
    if new.shape[: proper.ndim] != proper.shape:
        return new  # a constant of the statistics, which all factors share
    spread = proper.reshape(proper.shape + (1,) * (new.ndim - proper.ndim))
    return jnp.where(spread, new, old.astype(new.dtype))
