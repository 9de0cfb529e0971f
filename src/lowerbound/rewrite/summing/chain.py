"""Chains of finite discrete sites: rows whose densities depend on the rows just before them.

Let a density in row t depend on the row's own state and on those of the r rows before: its reach is
r. If all rows take states that repeat with period r + 1, every row meets one window of states; over
all such patterns it meets all. So a few runs of the program give the density of every row in every
window: as many as there are states where it depends on the row alone, as what is observed usually
does, and their square for a transition. The forward algorithm sums over the chain (Rabiner 1989).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.rewrite.summing.finite import Finite, Group, log_sum


@dataclass(frozen=True, eq=False)
class Chain(Group):
    """Discrete sites along an axis of the rows, and those that all rows of a chain share.

    `sites` are those of `along`, of shape `rows` with the axis `axis`, and those of `shared`, of
    the shape without it. `backward` says that a row depends on the rows after it. `whole` are the
    terms that have no rows along the axis. The weights are (shared, window..., rows), the last
    axis of a window for the row's own state.
    """

    axis: int = 0
    backward: bool = False
    along: int = 1  # how many of the sites are along the axis; they come last
    whole: tuple[str, ...] = ()

    @property
    def own_states(self) -> int:
        """The number of joint values of the sites of one row."""
        return math.prod(site.states for site in self.sites[len(self.sites) - self.along :])

    @property
    def shared_states(self) -> int:
        """The number of joint values of the sites that a chain shares."""
        return math.prod(site.states for site in self.sites[: len(self.sites) - self.along])

    @property
    def length(self) -> int:
        """The number of rows in one chain."""
        return self.rows[self.axis]

    @property
    def apart(self) -> tuple[int, ...]:
        """The shape of the chains, which do not affect each other."""
        return (*self.rows[: self.axis], *self.rows[self.axis + 1 :])

    @property
    def table(self) -> tuple[int, ...]:
        """The shape of the weights."""
        return (self.shared_states, *(self.own_states,) * (self.lag + 1), *self.rows)

    def runs(self, reach: int) -> int:
        """The number of patterns."""
        return int(self.shared_states * self.own_states ** (reach + 1))

    @property
    def text(self) -> str:
        """What is summed over, in words."""
        return f"along {self.length} rows with {self.own_states} states each"

    def site_states(self, own: Array | np.ndarray, site: Finite) -> Array | np.ndarray:
        """The state of a site in its own rows, given those of all rows."""
        shared = self.sites.index(site) < len(self.sites) - self.along
        return own.take(0, axis=self.axis) if shared else own

    def patterns(self, reach: int) -> np.ndarray:
        """The states of rows in every run, (runs, *rows), of length 1 but along a chain."""
        period = reach + 1
        shape = (self.shared_states, *(self.own_states,) * period)
        shared, *digits = np.unravel_index(np.arange(self.runs(reach)), shape)
        phase = np.arange(self.length) % period
        along = np.stack(digits)[phase].T + self.own_states * shared[:, None]  # (runs, length)
        places = [1] * (len(self.rows) + 1)
        places[0], places[1 + self.axis] = along.shape
        return along.reshape(places)

    def by_row(self, log_prob: Array, term: str = "") -> Array:
        """A log density summed to one number a row; that of a whole chain is put in one row."""
        if term not in self.whole:
            return super().by_row(log_prob)
        shared = Group(self.sites, self.terms, self.apart).by_row(log_prob)
        last = 0 if self.backward else self.length - 1
        place = jnp.arange(self.length) == last
        along = [1] * len(self.rows)
        along[self.axis] = self.length
        return jnp.where(place.reshape(along), jnp.expand_dims(shared, self.axis), 0.0)

    def arranged(self, found: Array | np.ndarray, reach: int) -> Any:
        """Weights (runs, *rows) by window: (shared, 1, ..., own, ..., own, *rows)."""
        period = reach + 1
        apart = found.reshape((self.shared_states, *(self.own_states,) * period, *self.rows))
        along = [1] * apart.ndim
        along[1 + period + self.axis] = self.length
        row = np.arange(self.length).reshape(along)
        # Trials have runs of NumPy's, where XLA would take longer to compile than to compute.
        of = np if isinstance(found, np.ndarray) else jnp
        weights: Any = of.zeros_like(apart)
        for phase in range(period):
            # The row before this one by `reach - i` has the digit of its own phase.
            step = -1 if self.backward else 1
            digits = [(phase + step * (i - reach)) % period for i in range(period)]
            axes = (0, *(1 + d for d in digits), *range(1 + period, apart.ndim))
            weights = of.where(row % period == phase, apart.transpose(axes), weights)
        return of.expand_dims(weights, tuple(range(1, 1 + self.lag - reach)))

    def windows(self, states: np.ndarray, reach: int) -> tuple[np.ndarray, ...]:
        """The index into the weights of some reach, where rows are in given states."""
        shared, own = np.divmod(states, self.own_states)
        window = []
        for back in range(self.lag, -1, -1):
            moved = np.roll(own, -back if self.backward else back, axis=self.axis)
            absent = np.arange(self.length) < back  # before the first row there is no state
            absent |= back > reach
            absent = absent[::-1] if self.backward else absent
            along = [1] * len(self.rows)
            along[self.axis] = self.length
            window.append(np.where(absent.reshape(along), 0, moved))
        return (shared, *window, *np.indices(self.rows))

    def random(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Random states of all rows, (count, *rows)."""
        own = rng.integers(self.own_states, size=(count, *self.rows))
        shared = rng.integers(self.shared_states, size=(count, *self.apart))
        return own + self.own_states * np.expand_dims(shared, 1 + self.axis)

    # -- the forward algorithm ---------------------------------------------------------------------

    def totals(self, weights: Array) -> Array:
        """The log of the sum over all states of every chain."""
        last = self._forward(weights)[0]
        return log_sum(last, axis=tuple(range(1 + self.lag)))

    def _steps(self, weights: Array) -> Array:
        """The weights with the rows of a chain first, in the order in which they follow."""
        steps = jnp.moveaxis(weights, 2 + self.lag + self.axis, 0)
        return steps[::-1] if self.backward else steps

    def _forward(self, weights: Array) -> tuple[Array, Array]:
        """The log sums (shared, last `lag` states, chains), at the end and after every row."""
        steps = self._steps(weights)
        # Before the first row there is no state: the densities are then those of any one, and the
        # first stands for all.
        first = jnp.full(steps.shape[1 : 2 + self.lag] + steps.shape[3 + self.lag :], -jnp.inf)
        first = first.at[(slice(None), *(0,) * self.lag)].set(0.0)

        def step(before: Array, weight: Array) -> tuple[Array, Array]:
            after = log_sum(jnp.expand_dims(before, 1 + self.lag) + weight, axis=1)
            return after, after

        found: tuple[Array, Array] = jax.lax.scan(step, first.astype(weights.dtype), steps)
        return found

    def probabilities(self, weights: Array) -> dict[str, Array]:
        """The probability of every value of every entry of the sites.

        The derivative of the log sum in a weight is the probability of its window.
        """
        windows = jax.grad(lambda w: self.totals(w).sum())(weights)
        own = windows.sum(axis=tuple(range(1, 1 + self.lag)))  # (shared, own, *rows)
        return self.marginals(own.reshape((self.states, *self.rows)))

    def draw(self, weights: Array, key: Array) -> dict[str, Array]:
        """A draw of the sites, as indices: backwards from the end of every chain."""
        last, alphas = self._forward(weights)
        steps, count, lag = self._steps(weights), self.own_states, self.lag
        first, rest = jax.random.split(key)
        flat = last.reshape((-1, *self.apart))
        end = jax.random.categorical(first, flat, axis=0)
        digits = jnp.unravel_index(end, last.shape[: 1 + lag])
        shared, window = digits[0], jnp.stack(digits[1:])  # the last states, oldest first
        # alpha before a row, given its window but for the oldest state
        before = jnp.concatenate([jnp.full_like(alphas[:1], -jnp.inf), alphas[:-1]])
        before = before.at[(0, slice(None), *(0,) * lag)].set(0.0)
        cells = jnp.indices(self.apart)

        def step(window: Array, inputs: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            alpha, weight, key = inputs
            joint = jnp.expand_dims(alpha, 1 + lag) + weight  # (shared, oldest, window..., chains)
            joint = jnp.moveaxis(joint, 1, -1)
            logits = joint[(shared, *window, *cells)]
            oldest = jax.random.categorical(key, logits, axis=-1)
            return jnp.concatenate([oldest[None], window[:-1]]), window[-1]

        keys = jax.random.split(rest, self.length)
        _, own = jax.lax.scan(step, window, (before, steps, keys), reverse=True)
        own = own[::-1] if self.backward else own
        states = jnp.moveaxis(own + count * shared, 0, self.axis)
        return self.indices(states)
