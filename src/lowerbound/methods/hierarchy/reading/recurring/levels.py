"""Levels as coordinates: a program of increments becomes one of the sums that they make.

A level is defined by those before it, by other sites, and by one number of z that is in no other of
its elements: u[t] = d(u[t - 1], z) + c z[t]. Then u[t] takes the place of z[t], which is
(u[t] - d) / c, with log density - log |c|. Each level meets its neighbours only, whereas all sums
meet all increments before them. Where there is no such number, the loop has no levels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from lowerbound.compiled import traced
from lowerbound.methods.hierarchy.reading.affine_maps import Maps
from lowerbound.methods.hierarchy.reading.cutting import Reading
from lowerbound.methods.hierarchy.reading.dependence_kinds import AFFINE, kinds_of
from lowerbound.methods.hierarchy.reading.flat_program import FlatProgram, Name, flattened
from lowerbound.methods.hierarchy.reading.plain_terms import Plain

Places = Callable[[FlatProgram, Sequence[Name]], Sequence[np.ndarray]]


class NoLevelsError(Exception):
    """The levels of some loop cannot be coordinates. owner: the number of the loop."""

    def __init__(self, owner: int) -> None:
        super().__init__(owner)
        self.owner = owner


@dataclass(frozen=True, eq=False)
class InLevels:
    """A program of theta, z' and data, where z' are levels in the places of their increments.

    back: the numbers of z as they were, one after the other, from the same inputs.
    """

    closed: ClosedJaxpr
    back: ClosedJaxpr


def in_levels(plain: Plain, theta: int, sites: Sequence[bool], places: Places) -> InLevels:
    """The program with levels as coordinates; the first inputs are `theta` sites, then z.

    sites: whether each of those of z may have others in its place. Raises NoLevelsError.
    """
    flat = flattened(plain.closed)
    change = _Change(flat, plain.owners, theta, tuple(sites), places)
    shapes = [np.zeros(name.shape, name.dtype) for name in change.outer]
    assert change.order  # found outside of a trace, as it evaluates data
    closed = traced(lambda *inputs: change.run(inputs)[0])(*shapes)
    back = traced(lambda *inputs: change.run(inputs)[1])(*shapes)
    return InLevels(closed, back)


@dataclass(frozen=True, eq=False)
class _Change:
    flat: FlatProgram
    owners: Sequence[int]
    theta: int
    sites: tuple[bool, ...]
    places: Places

    @property
    def z(self) -> tuple[Name, ...]:
        return self.flat.inputs[self.theta :][: len(self.sites)]

    @property
    def levels(self) -> tuple[Name, ...]:
        return self.flat.inputs[len(self.flat.inputs) - len(self.owners) :]

    @property
    def outer(self) -> tuple[Name, ...]:
        """The inputs of the program, without levels."""
        return self.flat.inputs[: len(self.flat.inputs) - len(self.owners)]

    @cached_property
    def starts(self) -> dict[Name, int]:
        """The first column of every name, of z and of levels."""
        found, begin = {}, 0
        for name in (*self.z, *self.levels):
            found[name] = begin
            begin += name.size
        return found

    @cached_property
    def size(self) -> int:
        return sum(name.size for name in self.z)

    @cached_property
    def _definitions(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Rows and columns of what defines each of the levels."""
        own = (*self.z, *self.levels)
        kinds = kinds_of(self.flat, self.flat.inputs[: self.theta], own)
        for owner, atom in zip(self.owners, self.flat.outputs[1:], strict=True):
            if not isinstance(atom, Name) or kinds[atom] != AFFINE:
                raise NoLevelsError(owner)
        reading = Reading(self.flat, kinds)
        wanted = reading.places()
        known = dict(zip(wanted, self.places(self.flat, wanted), strict=True))
        maps = Maps(reading.makers, lambda atom: reading.kind(atom) == AFFINE, known)
        for name in own:
            maps.start(name, self.starts[name])
        found = []
        for atom in self.flat.outputs[1:]:
            assert isinstance(atom, Name)
            entries = maps.of(atom)
            pairs = np.unique(np.stack([entries.rows, entries.columns]), axis=1)
            found.append((pairs[0], pairs[1]))
        return found

    @cached_property
    def targets(self) -> list[np.ndarray]:
        """The column that each element of a level takes the place of."""
        free = np.concatenate([np.full(n.size, s) for n, s in zip(self.z, self.sites, strict=True)])
        free = np.concatenate([free, np.zeros(sum(n.size for n in self.levels), bool)])
        found = []
        for number, name in enumerate(self.levels):
            rows, columns = self._definitions[number]
            alone = np.bincount(columns, minlength=len(free))[columns] == 1
            some = alone & free[columns]
            chosen = np.full(name.size, -1)
            # Numbers of z rather than other levels, and the last of them.
            order = np.argsort(np.where(columns < self.size, columns + len(free), columns)[some])
            chosen[rows[some][order]] = columns[some][order]
            if (chosen < 0).any():
                raise NoLevelsError(self.owners[number])
            free[chosen] = False
            free[self.starts[name] + np.arange(name.size)] = True
            found.append(chosen)
        return found

    @cached_property
    def replaced(self) -> np.ndarray:
        """(columns, 2): the level and the element of it that stand in for each column, or -1."""
        found = np.full((self.size + sum(n.size for n in self.levels), 2), -1)
        for number, chosen in enumerate(self.targets):
            found[chosen, 0] = number
            found[chosen, 1] = np.arange(len(chosen))
        return found

    @cached_property
    def order(self) -> list[int]:
        """The levels, each after those that are needed to solve for what it stands in for."""
        needs = []
        for number, (_, columns) in enumerate(self._definitions):
            own = self.starts[self.levels[number]] + np.arange(self.levels[number].size)
            others = np.setdiff1d(np.concatenate([columns, own]), self.targets[number])
            needs.append(set(self.replaced[others, 0].tolist()) - {-1})
        left, found = list(range(len(self.levels))), list[int]()
        while left:
            ready = [number for number in left if needs[number] <= set(found)]
            if not ready:
                raise NoLevelsError(self.owners[left[-1]])
            found += ready
            left = [number for number in left if number not in ready]
        return found

    @cached_property
    def _sources(self) -> dict[Name, np.ndarray]:
        """Where the elements of names are among z', and the solutions that follow it."""
        lengths = [name.size for name in self.levels]
        offsets = self.size + np.cumsum([0, *lengths])
        position = np.concatenate([np.arange(self.size), np.full(sum(lengths), -1)])
        found = {}
        for number, name in enumerate(self.levels):  # z' has a level where its target was
            own = self.starts[name] + np.arange(name.size)
            position[own] = position[self.targets[number]]
        for name in (*self.z, *self.levels):
            own = self.starts[name] + np.arange(name.size)
            level, element = self.replaced[own].T
            found[name] = np.where(level < 0, position[own], offsets[level] + element)
        return found

    def run(self, inputs: Sequence[Any]) -> tuple[Any, Any]:
        """Log p of z', with the change of volume, and z."""
        order = self.order
        known = dict(zip(self.outer, inputs, strict=True))
        vector = jnp.concatenate([jnp.ravel(known[name]) for name in self.z])
        solutions: dict[int, Any] = {}
        makers, volume = self.flat.makers, jnp.zeros(())

        def arrays(solutions: Mapping[int, Any], names: Collection[Name]) -> dict[Name, Any]:
            nothing = [jnp.zeros(name.size, vector.dtype) for name in self.levels]
            parts = [solutions.get(number, zero) for number, zero in enumerate(nothing)]
            pool = jnp.concatenate([vector, *parts])
            return {n: pool[self._sources[n]].reshape(n.shape).astype(n.dtype) for n in names}

        every = (*self.z, *self.levels)
        for number in order:
            name, definition = self.levels[number], self.flat.outputs[1 + number]

            def defined(own: Any, number: int = number, definition: Any = definition) -> Any:
                env = known | arrays(solutions | {number: own}, every)
                return jnp.ravel(self.flat.values([definition], env, makers)[0])

            zero = jnp.zeros(name.size, vector.dtype)
            rest, slope = jax.jvp(defined, (zero,), (jnp.ones_like(zero),))
            level = jnp.ravel(arrays(solutions, [name])[name])
            solutions[number] = (level - rest) / slope
            volume = volume - jnp.sum(jnp.log(jnp.abs(slope)))
        env = known | arrays(solutions, every)
        log_p = self.flat.values(self.flat.outputs[:1], env, makers)[0]
        return log_p + volume, jnp.concatenate([jnp.ravel(env[name]) for name in self.z])
