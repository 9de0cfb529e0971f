"""A sweep of coordinate ascent over the blocks (alg:cavi), with its ELBO at no extra cost.

Each summand of the energy is scored when the last of its blocks in the sweep is updated: there it
is <its gradient, the new mean>, so that no term is ever evaluated again for the bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.family.exponential import ExponentialFamily, Mean, Natural
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import Statistics, Summand, energy, gradient
from lowerbound.update.rule import step_towards

MAX_HALVINGS = 12
ROUNDING = 32.0  # units in the last place by which the ELBO may seem to fall


class State(NamedTuple):
    """The variational parameters: natural and mean parameters of every block."""

    naturals: tuple[Natural, ...]
    means: Statistics

    def replaced(self, number: int, natural: Natural, mean: Mean) -> State:
        """The state with the parameters of one block replaced."""
        return State(
            (*self.naturals[:number], natural, *self.naturals[number + 1 :]),
            (*self.means[:number], mean, *self.means[number + 1 :]),
        )


@dataclass(frozen=True)
class Sweep:
    """Coordinate ascent over `order`, for the energy given by `summands`."""

    family: MeanField
    summands: tuple[Summand, ...]
    order: tuple[int, ...]

    def last_block(self, summand: Summand) -> int | None:
        """The block of the summand that the sweep updates last."""
        mine = [number for number in self.order if number in summand.blocks]
        return mine[-1] if mine else None

    def __call__(
        self,
        arrays: Sequence[Array],
        state: State,
        step: float | Mapping[int, float | Array] = 1.0,
    ) -> tuple[State, Array]:
        """One sweep: the new state, and its ELBO. `step` is one for all, or one per block."""
        bound = jnp.zeros((), dtype=float)
        fixed = [s for s in self.summands if not s.blocks & set(self.order)]
        bound += energy(fixed, arrays, state.means)
        for number in self.order:
            own = step[number] if isinstance(step, Mapping) else step
            state, score = self.update(arrays, state, number, own)
            bound += score
        for number in self.order:
            bound += self.family.entropy(state.naturals, state.means, arrays, number)
        return state, bound

    def update(
        self, arrays: Sequence[Array], state: State, number: int, step: float | Array = 1.0
    ) -> tuple[State, Array]:
        """Update one block; also the energy of the summands whose last block it is."""
        mine = [s for s in self.summands if number in s.blocks]
        last = [s for s in mine if self.last_block(s) == number]
        if self.family.blocks[number].sequential:
            state = self._in_turn(arrays, state, number, mine, step)
            return state, energy(last, arrays, state.means)
        if any(number in s.curved for s in mine):
            state = self._safeguarded(arrays, state, number, mine, step)
            return state, energy(last, arrays, state.means)
        rest = [s for s in mine if self.last_block(s) != number]
        parts = [gradient(part, arrays, state.means, number) for part in (last, rest) if part]
        target = parts[0] if len(parts) == 1 else jax.tree.map(jnp.add, *parts)
        natural = step_towards(state.naturals[number], target, step)
        natural = self.family.present(natural, arrays, number)
        mean = self.family.families[number].mean(natural)
        score = inner(parts[0], mean) if last else jnp.zeros(())
        return state.replaced(number, natural, mean), score

    def _safeguarded(
        self,
        arrays: Sequence[Array],
        state: State,
        number: int,
        summands: Sequence[Summand],
        step: float | Array,
    ) -> State:
        """A natural-gradient step where the energy is not affine in the block's mean.

        The target is then no optimum: the step is halved until the factor is proper and the ELBO
        does not fall; when none of the steps will do, the factor stays.
        """
        family = self.family.families[number]
        target = gradient(summands, arrays, state.means, number)
        before = state.naturals[number]

        def score(natural: Natural, mean: Mean) -> Array:
            new = state.replaced(number, natural, mean)
            entropy = self.family.entropy(new.naturals, new.means, arrays, number)
            return energy(summands, arrays, new.means) + entropy

        first = score(before, state.means[number])
        precision = jax.tree.leaves(before)[0].dtype
        lowest = first - ROUNDING * float(np.finfo(precision).eps) * (1.0 + abs(first))

        def tried(step: float | Array) -> tuple[Natural, Mean, Array]:
            natural = step_towards(before, target, step)
            natural = self.family.present(natural, arrays, number)
            natural = {name: array.astype(before[name].dtype) for name, array in natural.items()}
            mean = family.mean(natural)
            value = score(natural, mean)
            proper = family.in_domain(natural).all() & jnp.isfinite(value)
            # From a start without a finite bound, any finite one is progress.
            return natural, mean, proper & ((value >= lowest) | ~jnp.isfinite(first))

        Trial = tuple[Array, Natural, Mean, Array]

        def more(trial: Trial) -> Array:
            trials, _, _, accepted = trial
            return ~accepted & (trials <= MAX_HALVINGS)

        def halve(trial: Trial) -> Trial:
            trials = trial[0]
            return trials + 1, *tried(step * 0.5 ** trials.astype(float))

        mine = dict(state.means[number])
        start = (jnp.zeros((), int), dict(before), mine, jnp.zeros((), bool))
        _, natural, mean, accepted = jax.lax.while_loop(more, halve, start)

        def kept(new: Array, old: Array) -> Array:
            return jnp.where(accepted, new, old)

        natural = jax.tree.map(kept, natural, before)
        mean = jax.tree.map(kept, mean, mine)
        return state.replaced(number, natural, mean)

    def _in_turn(
        self,
        arrays: Sequence[Array],
        state: State,
        number: int,
        summands: Sequence[Summand],
        step: float | Array,
    ) -> State:
        """Update the elements of a block one after the other: they meet in one term."""
        family = self.family.families[number]
        single = replace(family, batch_shape=())
        count = math.prod(family.batch_shape)

        def body(element: Array, state: State) -> State:
            target = gradient(summands, arrays, state.means, number)
            chosen = _element(target, family, element)
            before = _element(state.naturals[number], family, element)
            natural = step_towards(before, chosen, step)
            mean = single.mean(natural)
            return state.replaced(
                number,
                _put(state.naturals[number], natural, family, element),
                _put(state.means[number], mean, family, element),
            )

        updated: State = jax.lax.fori_loop(0, count, body, state)
        return updated


def inner(natural: Natural, mean: Mean) -> Array:
    """<natural, mean>, accumulated in double precision."""
    return sum((jnp.sum(natural[k] * mean[k], dtype=float) for k in natural), jnp.zeros(()))


def _element(arrays: Natural, family: ExponentialFamily, element: Array) -> Natural:
    rank = len(family.batch_shape)
    return {k: a.reshape((-1, *a.shape[rank:]))[element] for k, a in arrays.items()}


def _put(arrays: Natural, new: Natural, family: ExponentialFamily, element: Array) -> Natural:
    rank = len(family.batch_shape)
    return {
        k: a.reshape((-1, *a.shape[rank:])).at[element].set(new[k]).reshape(a.shape)
        for k, a in arrays.items()
    }
