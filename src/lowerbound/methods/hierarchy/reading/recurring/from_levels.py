"""From levels back to the increments that they are the sums of: z = M(t) z' + m(t)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr
from scipy.sparse import csr_array

from lowerbound.compiled.host import CALLS, lightly
from lowerbound.methods.hierarchy.reading.affine_maps import Entries, Maps
from lowerbound.methods.hierarchy.reading.cutting import Reading
from lowerbound.methods.hierarchy.reading.dependence_kinds import AFFINE, kinds_of
from lowerbound.methods.hierarchy.reading.flat_program import FlatProgram, Name, flattened
from lowerbound.methods.hierarchy.reading.recurring.levels import Places


@dataclass(frozen=True, eq=False)
class FromLevels:
    """The map of a program whose first inputs are theta, then z'; `leaves` are its data."""

    closed: ClosedJaxpr
    theta: int
    z: int
    leaves: Sequence[Any]
    places: Places
    compiled: dict[object, Any] = field(repr=False)

    @cached_property
    def flat(self) -> FlatProgram:
        """The program that makes z."""
        return flattened(self.closed)

    @cached_property
    def _own(self) -> tuple[Name, ...]:
        return self.flat.inputs[self.theta :][: self.z]

    @cached_property
    def size(self) -> int:
        """How many numbers z has."""
        return sum(name.size for name in self._own)

    @cached_property
    def _maps(self) -> tuple[Maps, Entries]:
        kinds = kinds_of(self.flat, self.flat.inputs[: self.theta], self._own)
        reading = Reading(self.flat, kinds)
        wanted = reading.places()
        known = dict(zip(wanted, self.places(self.flat, wanted), strict=True))
        maps = Maps(reading.makers, lambda atom: reading.kind(atom) == AFFINE, known)
        begin = 0
        for name in self._own:
            maps.start(name, begin)
            begin += name.size
        output = self.flat.outputs[0]
        assert isinstance(output, Name)
        return maps, maps.of(output)

    def __call__(self, t: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """The numbers of z, of levels (d,)."""
        return np.asarray(self._run("z", self._values, t, levels))

    def matrix(self, t: np.ndarray) -> csr_array:
        """M(t), (d, d)."""
        _, entries = self._maps
        values = np.asarray(self._run("entries", self._entries, t))
        found = csr_array((values, (entries.rows, entries.columns)), (self.size, self.size))
        found.sum_duplicates()
        return found

    def _run(self, key: object, function: Any, t: np.ndarray, *args: Any) -> Any:
        key = ("from levels", key)
        if key not in self.compiled:
            self.compiled[key] = lightly(function, CALLS)
        with jax.enable_x64(True):
            return self.compiled[key](np.asarray(t, float), tuple(self.leaves), *args)

    def _env(self, t: Array, leaves: Sequence[Any], levels: Array) -> dict[Name, Any]:
        inputs = self.flat.inputs
        env: dict[Name, Any] = {}
        for names, vector in ((inputs[: self.theta], t), (self._own, levels)):
            begin = 0
            for name in names:
                env[name] = vector[begin : begin + name.size].reshape(name.shape)
                begin += name.size
        return env | dict(zip(inputs[self.theta + self.z :], leaves, strict=True))

    def _values(self, t: Array, leaves: Sequence[Any], levels: Array) -> Array:
        env = self._env(t, leaves, levels)
        return jnp.asarray(self.flat.values(self.flat.outputs, env, self.flat.makers)[0])

    def _entries(self, t: Array, leaves: Sequence[Any]) -> Array:
        maps, entries = self._maps
        atoms = maps.tape.factors([entries.step])
        env = self._env(t, leaves, jnp.zeros(self.size))
        values = self.flat.values(atoms, env, self.flat.makers)
        table = {id(atom): value for atom, value in zip(atoms, values, strict=True)}
        indices = maps.tape.indices
        return maps.tape.run([entries.step], lambda atom: table.get(id(atom), 0.0), indices)[0]
