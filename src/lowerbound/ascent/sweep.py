"""A sweep of coordinate ascent over the blocks (alg:cavi), with its ELBO at no extra cost.

Each summand of the energy is scored when the last of its blocks in the sweep is updated: there it
is <its gradient, the new mean>, so that no term is ever evaluated again for the bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent.rule import step_towards
from lowerbound.ascent.turns import turns
from lowerbound.family.exponential import Mean, Natural
from lowerbound.family.factors.free import Free
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import Statistics, Summand, energies_and_gradient, energy, gradient

MAX_HALVINGS = 12
ROUNDING = 32.0  # units in the last place by which the ELBO may seem to fall


class State(NamedTuple):
    """The variational parameters: natural and mean parameters of every block."""

    naturals: tuple[Natural, ...]
    means: Statistics

    @classmethod
    def of(cls, family: MeanField, naturals: tuple[Natural, ...]) -> State:
        """With the means that natural parameters have."""
        return cls(naturals, family.means(naturals))

    def replaced(self, number: int, natural: Natural, mean: Mean) -> State:
        """The state with the parameters of one block replaced."""
        return State(
            (*self.naturals[:number], natural, *self.naturals[number + 1 :]),
            (*self.means[:number], mean, *self.means[number + 1 :]),
        )


class Trial(NamedTuple):
    """A step of a block: where it leads, what it scores, and whether it will do."""

    natural: Natural
    mean: Mean
    score: Array
    entropy: Array
    accepted: Array


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
        for numbers in self.together:
            steps = [step[n] if isinstance(step, Mapping) else step for n in numbers]
            if len(numbers) > 1:
                state, score = self._alike(arrays, state, numbers, steps)
            else:
                state, score = self._with_entropy(arrays, state, numbers[0], steps[0])
            bound += score
        return state, bound

    @property
    def together(self) -> tuple[tuple[int, ...], ...]:
        """The order, with blocks in one group that are free-form alike and do not meet.

        Their updates commute, and one compiled quadrature serves them all.
        """
        groups: list[tuple[int, ...]] = []
        for number in self.order:
            if groups and self._joins(groups[-1], number):
                groups[-1] = (*groups[-1], number)
            else:
                groups.append((number,))
        return tuple(groups)

    def _joins(self, group: tuple[int, ...], number: int) -> bool:
        family, block = self.family.families[number], self.family.blocks[number]
        if not isinstance(family, Free) or block.sequential or block.presence is not None:
            return False
        alike = all(self.family.families[other] == family for other in group)
        return alike and not any(number in s.blocks and s.blocks & {*group} for s in self.summands)

    def update(
        self, arrays: Sequence[Array], state: State, number: int, step: float | Array = 1.0
    ) -> tuple[State, Array]:
        """Update one block; also the energy of the summands whose last block it is."""
        mine, last, _ = self._summands(number)
        if self.family.blocks[number].sequential:
            state = self._in_turn(arrays, state, number, mine, step)
            return state, energy(last, arrays, state.means)
        if self._is_curved(number):
            state, score, _ = self._safeguarded(arrays, state, number, step)
            return state, score
        natural, own = self._aim(arrays, state, number, step)
        mean = self.family.families[number].mean(natural)
        return state.replaced(number, natural, mean), inner(own, mean)

    def checked(self, arrays: Sequence[Array], state: State, number: int) -> tuple[State, Array]:
        """Update one block; also where its new factors are proper."""
        family = self.family.families[number]
        if self.family.blocks[number].sequential or self._is_curved(number):
            state, _ = self.update(arrays, state, number)
            return state, family.in_domain(state.naturals[number])
        natural, _ = self._aim(arrays, state, number, 1.0)
        mean, proper = family.mean_and_domain(natural)
        return state.replaced(number, natural, mean), proper

    def _is_curved(self, number: int) -> bool:
        return any(number in s.curved for s in self.summands)

    def _summands(self, number: int) -> tuple[list[Summand], list[Summand], list[Summand]]:
        """The summands of a block; those whose last block it is; the others."""
        mine = [s for s in self.summands if number in s.blocks]
        last = [s for s in mine if self.last_block(s) == number]
        return mine, last, [s for s in mine if self.last_block(s) != number]

    def _aim(
        self, arrays: Sequence[Array], state: State, number: int, step: float | Array
    ) -> tuple[Natural, Natural]:
        """The new natural parameters, and the part of the target that this block scores."""
        _, *groups = self._summands(number)
        last, rest = (
            gradient(part, arrays, state.means, number) if part else {} for part in groups
        )
        target = jax.tree.map(jnp.add, last, rest) if last and rest else last or rest
        natural = step_towards(state.naturals[number], target, step)
        return self.family.present(natural, arrays, number), last

    def _with_entropy(
        self, arrays: Sequence[Array], state: State, number: int, step: float | Array
    ) -> tuple[State, Array]:
        """`update`, with the entropy of the block added to the score."""
        family, block = self.family.families[number], self.family.blocks[number]
        if isinstance(family, Free) and not block.sequential and block.presence is None:
            return self._alike(arrays, state, (number,), (step,))
        if not block.sequential and self._is_curved(number):
            state, score, entropy = self._safeguarded(arrays, state, number, step)
            return state, score + entropy
        state, score = self.update(arrays, state, number, step)
        return state, score + self.family.entropy(state.naturals, state.means, arrays, number)

    def _alike(
        self,
        arrays: Sequence[Array],
        state: State,
        numbers: Sequence[int],
        steps: Sequence[float | Array],
    ) -> tuple[State, Array]:
        """Update free-form blocks that do not meet, with the entropy of each in the score."""
        aims = [self._aim(arrays, state, n, step) for n, step in zip(numbers, steps, strict=True)]
        family = self.family.families[numbers[0]]
        if len(numbers) == 1:
            found = [family.mean_and_entropy(aims[0][0])]
        else:
            assert isinstance(family, Free)
            stacked = jax.tree.map(lambda *each: jnp.stack(each), *(aim[0] for aim in aims))
            every = family.copies(len(numbers)).mean_and_entropy(stacked)
            found = [jax.tree.map(lambda a, k=k: a[k], every) for k in range(len(numbers))]
        total = jnp.zeros((), dtype=float)
        for number, (natural, own), (mean, entropy) in zip(numbers, aims, found, strict=True):
            state = state.replaced(number, natural, mean)
            total += inner(own, mean) + entropy.sum(dtype=float)
        return state, total

    def _safeguarded(
        self,
        arrays: Sequence[Array],
        state: State,
        number: int,
        step: float | Array,
    ) -> tuple[State, Array, Array]:
        """A natural-gradient step where the energy is not affine in the block's mean.

        The target is then no optimum: the step is halved until the factor is proper and the ELBO
        does not fall; when none of the steps will do, the factor stays. Also the energy of the
        summands whose last block it is, and the entropy.
        """
        family = self.family.families[number]
        _, *parts = self._summands(number)
        before, mine = state.naturals[number], dict(state.means[number])
        energies, target = energies_and_gradient(parts, arrays, state.means, number)
        entropy = self.family.entropy(state.naturals, state.means, arrays, number)
        first = energies[0] + energies[1] + entropy
        precision = jax.tree.leaves(before)[0].dtype
        lowest = first - ROUNDING * float(np.finfo(precision).eps) * (1.0 + abs(first))

        def tried(step: float | Array) -> Trial:
            natural = step_towards(before, target, step)
            natural = self.family.present(natural, arrays, number)
            natural = {name: array.astype(before[name].dtype) for name, array in natural.items()}
            new = state.replaced(number, natural, family.mean(natural))
            score, rest = (energy(part, arrays, new.means) for part in parts)
            entropy = self.family.entropy(new.naturals, new.means, arrays, number)
            value = score + rest + entropy
            proper = family.in_domain(natural).all() & jnp.isfinite(value)
            # From a start without a finite bound, any finite one is progress.
            accepted = proper & ((value >= lowest) | ~jnp.isfinite(first))
            return Trial(natural, new.means[number], score, entropy, accepted)

        # Towards what is not a number no step leads; in a batch, all others would wait for it.
        aimed = jnp.stack([jnp.isfinite(part).all() for part in jax.tree.leaves(target)]).all()

        def more(loop: tuple[Array, Trial]) -> Array:
            return aimed & ~loop[1].accepted & (loop[0] <= MAX_HALVINGS)

        def halve(loop: tuple[Array, Trial]) -> tuple[Array, Trial]:
            return loop[0] + 1, tried(step * 0.5 ** loop[0].astype(float))

        stay = Trial(dict(before), mine, energies[0], entropy, jnp.zeros((), bool))
        _, last = jax.lax.while_loop(more, halve, (jnp.zeros((), int), stay))
        chosen = jax.tree.map(lambda new, old: jnp.where(last.accepted, new, old), last, stay)
        return state.replaced(number, chosen.natural, chosen.mean), chosen.score, chosen.entropy

    def _in_turn(
        self,
        arrays: Sequence[Array],
        state: State,
        number: int,
        summands: Sequence[Summand],
        step: float | Array,
    ) -> State:
        """Update the elements of a block in turns: those of one turn do not meet."""
        family = self.family.families[number]
        turn = turns(summands, number, family.batch_shape)
        order = jnp.asarray(turn.reshape(family.batch_shape))

        def body(now: Array, state: State) -> State:
            target = gradient(summands, arrays, state.means, number)
            before = state.naturals[number]
            natural = step_towards(before, target, step)
            new = chosen(order == now, natural, before)
            mean = chosen(order == now, family.mean(new), state.means[number])
            return state.replaced(number, new, mean)

        updated: State = jax.lax.fori_loop(0, int(turn.max(initial=-1)) + 1, body, state)
        return updated


def inner(natural: Natural, mean: Mean) -> Array:
    """<natural, mean>, accumulated in double precision."""
    return sum((jnp.sum(natural[k] * mean[k], dtype=float) for k in natural), jnp.zeros(()))


def chosen(own: Array, new: Natural, old: Natural) -> Natural:
    """The parameters of a batch of factors, new for some of them."""

    def where(a: Array, b: Array) -> Array:
        return jnp.where(own.reshape((*own.shape, *(1,) * (a.ndim - own.ndim))), a, b)

    return {name: where(new[name], old[name]) for name in old}
