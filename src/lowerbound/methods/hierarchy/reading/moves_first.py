"""Elements moved before functions are taken of them: f(z)[g] as f(z[g]).

A predictor that goes to several rows is then one predictor in each of them, and meets no more
others than its row has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lowerbound.methods.hierarchy.reading.cutting import Reading
from lowerbound.methods.hierarchy.reading.dependence_kinds import AFFINE, CURVED
from lowerbound.methods.hierarchy.reading.element_maps import ELEMENTWISE
from lowerbound.methods.hierarchy.reading.flat_program import Atom, FlatProgram, Name, Operation

SHAPES = ("reshape", "squeeze", "expand_dims", "transpose", "broadcast_in_dim")
MOVES = frozenset((*SHAPES, "slice", "rev", "gather", "dynamic_slice"))


def moves_first(reading: Reading) -> FlatProgram:
    """The program with moves of curved values made moves of the affine ones that these are of."""
    return _Moves(reading).program()


class _Moves:
    """What is written so far: names are those of the new program."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.kinds = dict(reading.kinds)
        self.makers: dict[Name, Operation] = {}
        self.operations: list[Operation] = []
        self.count = max(
            (name.number for one in reading.flat.operations for name in one.outputs), default=0
        )

    def program(self) -> FlatProgram:
        for one in self.reading.flat.operations:
            if self._is_move(one):
                self._moved(one, one.inputs[0], one.outputs[0])
            else:
                self._add(one)
        return replace(self.reading.flat, operations=tuple(self.operations))

    def _add(self, one: Operation) -> None:
        self.operations.append(one)
        self.makers.update(dict.fromkeys(one.outputs, one))

    def _kind(self, atom: Atom) -> int:
        return self.kinds[atom] if isinstance(atom, Name) else 0

    def _is_move(self, one: Operation) -> bool:
        return one.kind in MOVES and all(self._kind(atom) < AFFINE for atom in one.inputs[1:])

    def _moved(self, one: Operation, atom: Atom, output: Name) -> None:
        """Write the move of a value: of what it is made of, where it is made elementwise."""
        maker = self.makers.get(atom) if isinstance(atom, Name) else None
        if maker is None or not self._is_map(maker):
            self._add(replace(one, inputs=(atom, *one.inputs[1:]), outputs=(output,)))
            return
        given = []
        for part in maker.inputs:
            if part.shape == () and atom.shape != ():
                given.append(part)
                continue
            kind = self._kind(part)
            self.count += 1
            name = Name(self.count, output.shape, _dtype(part))
            self.kinds[name] = kind
            self._moved(one, part, name)
            given.append(name)
        self._add(replace(maker, inputs=tuple(given), outputs=(output,)))

    def _is_map(self, maker: Operation) -> bool:
        """Whether an operation is elementwise, curved, and of one value that z is in."""
        return (
            maker.kind in ELEMENTWISE
            and len(maker.outputs) == 1
            and self._kind(maker.outputs[0]) == CURVED
            and sum(self._kind(part) >= AFFINE for part in maker.inputs) == 1
            and all(part.shape in ((), maker.outputs[0].shape) for part in maker.inputs)
        )


def _dtype(atom: Atom) -> Any:
    return atom.dtype if isinstance(atom, Name) else np.asarray(atom.value).dtype
