"""Responsibilities of a mixture: what they say of its components, and other ones to try.

Everything here is made from r_nk, the probability of component k in row n, and from s_nk, the
derivative of the energy by it: the expected log density of the row in the component, up to a
constant of the row. So any mixture whose assignments have a factor is one of these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent import State
from lowerbound.compute.engine import Arrays, Engine
from lowerbound.methods.coordinate.seeds import Seeds

TRIAL = 2  # sweeps after which a proposal is judged
PARTING, HARD = 8, 5  # times that rows are parted between two halves; those with no row shared


class Seen(NamedTuple):
    """What the responsibilities say of every component.

    rows: how many it holds, (K,). loss: by which the expected log density falls when its rows move
    to another component as that is now, (K, K). spread: the same when they move to the best ones.
    """

    rows: np.ndarray
    loss: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True, eq=False)
class Partition:
    """The assignments of a mixture, block `number` of an engine, with compiled functions."""

    engine: Engine
    arrays: Arrays
    number: int

    @property
    def components(self) -> int:
        """K."""
        return int(self.engine.family.families[self.number].statistic_shapes()["indicator"][-1])

    def _run(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        key, compiled = ("growth", name), self.engine.compiled
        if key not in compiled:
            compiled[key] = self.engine.compile(function, self.arrays, *args)
        return compiled[key](self.arrays, *args)

    def _seeds(self, arrays: Arrays) -> Seeds:
        return Seeds(self.engine, arrays, self.number)

    # -- what there is ---------------------------------------------------------------------------

    def seen(self, state: State) -> Seen:
        """How many rows the components hold, and what it costs to move them."""

        def look(arrays: Arrays, state: State) -> tuple[Array, Array, Array]:
            r, s = self._both(arrays, state)
            held = r.sum(0, dtype=float)
            products = (r.T @ s).astype(float)
            here = jnp.diag(products)
            used = held >= HELD
            elsewhere = _best_other(jnp.where(used, s, -jnp.inf))
            spread = here - jnp.where(r > 0, r * elsewhere, 0.0).sum(0, dtype=float)
            return held, here[:, None] - products, spread

        return Seen(*(np.asarray(array) for array in self._run("look", look, state)))

    def _both(self, arrays: Arrays, state: State) -> tuple[Array, Array]:
        seeds = self._seeds(arrays)
        s = seeds.scores(state)
        return state.means[self.number]["indicator"].reshape(s.shape), s

    # -- other responsibilities ------------------------------------------------------------------

    def together(self, state: State) -> Array:
        """All rows in the first component."""

        def every(arrays: Arrays, state: State) -> Array:
            r, _ = self._both(arrays, state)
            return jnp.zeros_like(r).at[:, 0].set(1.0)

        found: Array = self._run("together", every, state)
        return found

    def joined(self, state: State, into: np.ndarray, kept: np.ndarray) -> Array:
        """The rows of each component k in `into[k]`; of those not `kept`, in what suits them.

        A permutation in `into` puts the components in another order.
        """

        def join(arrays: Arrays, state: State, into: Array, kept: Array) -> Array:
            r, s = self._both(arrays, state)
            places = jax.nn.one_hot(into, len(into), dtype=r.dtype)
            held = r.sum(0) >= HELD
            left = (r * ~kept).sum(1, keepdims=True)
            shares = jax.nn.softmax(jnp.where(held & kept, s, -jnp.inf), axis=1)
            moved: Array = (r * kept) @ places + left * shares
            return moved

        found: Array = self._run("join", join, state, into, kept)
        return found

    def parted(
        self, state: State, halves: np.ndarray, others: np.ndarray, uniforms: np.ndarray
    ) -> tuple[Array, np.ndarray]:
        """Responsibilities with the rows of some components shared with empty ones.

        halves, others: which, (pairs,), and where their other halves go; K where there is no pair.
        Two rows begin, drawn as k-means++ draws them; then the rows of a pair are parted between
        its halves some times over. uniforms: (2, pairs), which pick the rows. Also what the rows
        of each pair gain by it, with the entropy of their shares, in nats.
        """

        def part(
            arrays: Arrays, state: State, halves: Array, others: Array, uniforms: Array
        ) -> tuple[Array, Array]:
            seeds = self._seeds(arrays)
            r, s = self._both(arrays, state)
            here = jax.nn.one_hot(halves, s.shape[1], dtype=r.dtype)  # (pairs, K)
            there = jax.nn.one_hot(others, s.shape[1], dtype=r.dtype)
            own = r @ here.T  # (rows, pairs)
            rest = r * (1 - here.sum(0) - there.sum(0))
            mass = own.sum(0)

            def scored(first: Array, second: Array) -> tuple[Array, Array]:
                s = seeds.scores(seeds.given(rest + first @ here + second @ there, state))
                return s @ here.T, s @ there.T

            def at(rows: Array) -> Array:
                return jax.nn.one_hot(rows, len(r), axis=0, dtype=r.dtype)

            one = _picked(own, uniforms[0])
            near = 0.5 * own + 0.5 * mass * at(one)  # drawn to a row, as wide as the component
            gap = scored(0.5 * own, near)[1]
            gap = jnp.maximum(jnp.take_along_axis(gap, one[None], 0) - gap, 0.0) + 1e-6
            far = 0.5 * own + 0.5 * mass * at(_picked(own * gap, uniforms[1]))

            def body(time: Array, scores: tuple[Array, Array]) -> tuple[Array, Array]:
                gap = scores[0] - scores[1]  # first every row in one half: these soon differ
                shares = jnp.where(time < HARD, (gap > 0).astype(r.dtype), jax.nn.sigmoid(gap))
                return scored(own * shares, own * (1 - shares))

            begun = scored(0.5 * far, 0.5 * near)
            first, second = jax.lax.fori_loop(0, PARTING, body, begun)
            shares = jax.nn.sigmoid(first - second)
            divided = rest + (own * shares) @ here + (own * (1 - shares)) @ there
            gained = own * (jnp.logaddexp(first, second) - s @ here.T)
            return divided, gained.sum(0, dtype=float)

        found, gained = self._run("part", part, state, halves, others, uniforms)
        return found, np.asarray(gained)

    def of(self, state: State, other: Array, columns: np.ndarray) -> Array:
        """The responsibilities of a state, some columns from others."""

        def mix(arrays: Arrays, state: State, other: Array, columns: Array) -> Array:
            r, _ = self._both(arrays, state)
            return jnp.where(columns, other, r)

        found: Array = self._run("mix", mix, state, other, columns)
        return found

    # -- what they lead to -----------------------------------------------------------------------

    def tried(self, state: State, responsibilities: Array) -> tuple[State, float]:
        """All factors given the responsibilities, and a few sweeps from there, with the ELBO."""

        def attempt(arrays: Arrays, state: State, responsibilities: Array) -> tuple[State, Array]:
            seeds = self._seeds(arrays)
            led = seeds.settled(seeds.given(responsibilities, state))
            led = self.engine.cast_tree(led)

            def body(_: Array, carry: tuple[State, Array]) -> tuple[State, Array]:
                return self.engine.sweep(arrays, carry[0])

            ended: tuple[State, Array] = jax.lax.fori_loop(
                0, TRIAL, body, (led, jnp.zeros((), float))
            )
            return ended

        new, elbo = self._run("attempt", attempt, state, responsibilities)
        return new, float(elbo)


HELD = 0.5  # rows, below which a component is empty


def _best_other(scores: Array) -> Array:
    """Of every row and component, the best score among the other components."""
    top = jax.lax.top_k(scores, 2)[0]
    return jnp.where(scores == top[:, :1], top[:, 1:], top[:, :1])


def _picked(weights: Array, uniforms: Array) -> Array:
    """A row for every column, with probabilities in proportion to the weights."""
    totals = jnp.cumsum(weights.astype(float), axis=0)
    return (totals < uniforms * totals[-1]).sum(0).clip(0, len(weights) - 1)
