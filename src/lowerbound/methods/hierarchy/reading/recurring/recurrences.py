"""Loops whose steps wait for each other, element by element of what they hand on.

Elements that a step only hands on (a season that moves one place on) are found in earlier steps.
What a step makes of its own values is computed for all times at once. What it makes of itself (a
level that adds an increment to the level before) is given a name, the levels of all times: then no
step waits for another, and what the step makes of them is their definition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.joint.rules.scans import Scan
from lowerbound.methods.hierarchy.reading.flat_program import (
    Atom,
    FlatProgram,
    Known,
    Name,
    flattened,
)
from lowerbound.methods.hierarchy.reading.recurring.element_origins import (
    Origins,
    constants,
    reached_elements,
)

MOST_ELEMENTS = 200  # that are handed on


def recurrence(scan: Scan, inputs: Sequence[Any] = ()) -> Recurrence | None:
    """A scan by its elements; None where it hands on too many, or something that is a constant.

    inputs: those of the scan; such as are known say which elements a matrix moves.
    """
    flat = flattened(scan.body)
    fixed = zip(flat.inputs[: scan.fixed], inputs, strict=False)
    known = {n: np.asarray(x) for n, x in fixed if not isinstance(x, jax.core.Tracer)}
    found = Recurrence(scan, flat, known)
    if found.size > MOST_ELEMENTS:
        return None
    if any(isinstance(found.flat.outputs[slot], Known) for slot in found.slots):
        return None
    return found


@dataclass(frozen=True, eq=False)
class Recurrence:
    """A scan whose touched slots are taken apart into elements. known: inputs with a value."""

    scan: Scan
    flat: FlatProgram
    known: Mapping[Name, np.ndarray]

    @cached_property
    def slots(self) -> list[int]:
        """What is handed on and touched by z."""
        start = self.scan.fixed
        return [slot for slot in range(self.scan.carries) if self.scan.touched[start + slot]]

    @cached_property
    def carried(self) -> list[Name]:
        """The names of these in a step."""
        return [self.flat.inputs[self.scan.fixed + slot] for slot in self.slots]

    @property
    def size(self) -> int:
        """How many elements they have."""
        return sum(name.size for name in self.carried)

    @cached_property
    def _origins(self) -> Origins:
        return Origins.of(self.flat, self._constant)

    @cached_property
    def _constant(self) -> dict[Name, np.ndarray]:
        return constants(self.flat, self.known)

    @cached_property
    def _before(self) -> np.ndarray:
        """(elements,): which other is handed on in the place of each; -1 where it is made anew."""
        found = np.full(self.size, -1)
        starts = np.cumsum([0] + [name.size for name in self.carried])
        for number, (name, place) in enumerate(self._made):
            if name in self.carried:
                found[number] = starts[self.carried.index(name)] + place
        return found

    @cached_property
    def _made(self) -> list[tuple[Name, int]]:
        """The value of a step, and the place in it, that each element comes from."""
        found = []
        for slot in self.slots:
            output = self.flat.outputs[slot]
            assert isinstance(output, Name)
            found += [self._origins.place(code) for code in self._origins.codes[output].ravel()]
        return found

    @cached_property
    def roots(self) -> list[Name]:
        """The values that some elements are made of, other than those that are handed on."""
        return list(dict.fromkeys(n for n, _ in self._made if n not in self.carried))

    @cached_property
    def _needs(self) -> dict[Name, set[Name]]:
        """The roots of earlier steps that each is computed from."""
        reached = reached_elements(self.flat, self.carried, self._constant)
        found = {}
        for root in self.roots:
            elements = np.flatnonzero(reached[root].reshape(-1, self.size).any(axis=0))
            found[root] = {name for e in elements for name in self._ultimate(int(e))}
        return found

    def _ultimate(self, element: int) -> set[Name]:
        """The root that an element comes from, through all steps that only hand it on."""
        seen: set[int] = set()
        while element not in seen:
            seen.add(element)
            if self._before[element] < 0:
                return {self._made[element][0]}
            element = int(self._before[element])
        return set()

    @cached_property
    def stages(self) -> tuple[list[list[Name]], list[Name]]:
        """Roots in the order in which they can be computed, and those that need themselves."""
        left, stages, cut = list(self.roots), list[list[Name]](), list[Name]()
        done: set[Name] = set()
        while left:
            free = [name for name in left if self._needs[name] <= done]
            if not free:
                free = [name for name in left if name in self._far(name, done)]
                cut += free
            else:
                stages.append(free)
            done |= set(free)
            left = [name for name in left if name not in free]
        return stages, cut

    def _far(self, root: Name, done: Collection[Name]) -> set[Name]:
        """What a root needs, however far back."""
        found: set[Name] = set()
        new = set(self._needs[root])
        while new:
            found |= new
            new = {n for name in new if name not in done for n in self._needs[name]} - found
        return found

    @property
    def levels(self) -> list[tuple[tuple[int, ...], Any]]:
        """Shapes and types of the levels that are to be given."""
        return [((self.scan.length, *name.shape), name.dtype) for name in self.stages[1]]

    def run(self, *inputs: Any) -> list[Any]:
        """The outputs of the scan and the definitions of its levels; these are its last inputs."""
        scan, (stages, cut) = self.scan, self.stages
        count = len(self.flat.inputs)
        fixed, first, along = scan.parts(inputs[:count])
        given: dict[Name, Any] = dict(zip(cut, inputs[count:], strict=True))
        untouched = scan._untouched(fixed, first, along)
        start = [jnp.ravel(first[slot]) for slot in self.slots]
        known = dict(given)

        def at(wanted: Sequence[Atom], known: Mapping[Name, Any], over: Sequence[Name]) -> Any:
            handed = dict(untouched)
            pool = self._pool(start, known)
            for slot, places in zip(self.slots, self._places, strict=True):
                own = pool[places].reshape((scan.length, *first[slot].shape))
                handed[slot] = own.astype(first[slot].dtype)

            def step(carried: Sequence[Any], along: Sequence[Any], over_: Sequence[Any]) -> Any:
                env = dict(zip(self.flat.inputs, [*fixed, *carried, *along], strict=True))
                env |= dict(zip(over, over_, strict=True))
                return self.flat.values(wanted, env, makers)

            carried = [handed[slot] for slot in range(scan.carries)]
            return jax.vmap(step, axis_size=scan.length)(carried, along, [given[n] for n in over])

        makers = self.flat.makers
        for stage in stages:
            known |= dict(zip(stage, at(stage, known, cut), strict=True))
        outputs = at(self.flat.outputs, known, cut)
        definitions = [at([name], known, [n for n in cut if n is not name])[0] for name in cut]
        carries = scan.carries
        last = [one[-1] for one in outputs[:carries]]
        return [*scan.whole(last, outputs[carries:]), *definitions]

    def _pool(self, start: Sequence[Any], known: Mapping[Name, Any]) -> Any:
        """All that elements come from: what the first step is handed, and the roots of all steps.

        Zeros stand for what is not known yet, which nothing that is computed then needs.
        """
        steps = self.scan.length
        parts = list(start)
        for name in self.roots:
            own = known.get(name)
            parts.append(jnp.zeros(steps * name.size) if own is None else jnp.ravel(own))
        return jnp.concatenate(parts)

    @cached_property
    def _places(self) -> list[np.ndarray]:
        """Where in the pool the elements of each slot are, (steps, elements)."""
        steps = self.scan.length
        begin, offsets = self.size, {}
        for name in self.roots:
            offsets[name] = begin
            begin += steps * name.size
        made = self._before < 0
        base = np.array(
            [offsets[n] + p if m else 0 for (n, p), m in zip(self._made, made, strict=True)]
        )
        stride = np.array([n.size if m else 0 for (n, _), m in zip(self._made, made, strict=True)])
        found = np.empty((steps, self.size), int)
        found[0] = np.arange(self.size)
        for t in range(1, steps):
            found[t] = np.where(made, base + (t - 1) * stride, found[t - 1][self._before])
        return np.split(found, np.cumsum([name.size for name in self.carried])[:-1], axis=1)
