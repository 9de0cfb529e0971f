"""What the values of a program depend on: data alone, theta, or z, and on z how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lowerbound.methods.hierarchy.reading.element_maps import MOVED, placed_inputs
from lowerbound.methods.hierarchy.reading.flat_program import (
    Atom,
    FlatProgram,
    Known,
    Name,
    Operation,
)

DATA, THETA, AFFINE, CURVED = range(4)  # z is in the last two


def kind_of(kinds: Mapping[Name, int], atom: Atom) -> int:
    """What a value depends on."""
    return DATA if isinstance(atom, Known) else kinds[atom]


def kinds_of(flat: FlatProgram, theta: Sequence[Name], z: Sequence[Name]) -> dict[Name, int]:
    """What every value depends on."""
    kinds = dict.fromkeys(flat.inputs, DATA)
    kinds |= dict.fromkeys(theta, THETA) | dict.fromkeys(z, AFFINE)
    for one in flat.operations:
        given = [kind_of(kinds, atom) for atom in one.inputs]
        worst = max(given, default=DATA)
        if worst == AFFINE and not stays_affine(one, given):
            worst = CURVED
        kinds |= dict.fromkeys(one.outputs, worst)
    return kinds


def stays_affine(one: Operation, given: Sequence[int]) -> bool:
    """Whether an operation on affine inputs has affine outputs."""
    if not all(np.issubdtype(name.dtype, np.floating) for name in one.outputs):
        return False
    if one.kind in ("add", "sub", "add_any", "neg", "reduce_sum", "cumsum"):
        return True
    if one.kind in ("convert_element_type", "copy"):
        return True
    if one.kind == "mul" or one.kind == "dot_general":
        return min(given) < AFFINE
    if one.kind == "div":
        return given[1] < AFFINE
    if one.kind == "triangular_solve":
        return given[0] < AFFINE
    if one.kind in MOVED:
        return all(given[number] == DATA for number in placed_inputs(one))
    return False
