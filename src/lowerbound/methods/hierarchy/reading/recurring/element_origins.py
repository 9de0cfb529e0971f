"""Where the elements of a step's values come from: moved from others, or made of some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from lowerbound.methods.hierarchy.reading.element_maps import (
    ELEMENTWISE,
    MOVED,
    moved,
    moved_inputs,
    placed_inputs,
)
from lowerbound.methods.hierarchy.reading.flat_program import (
    Atom,
    FlatProgram,
    Known,
    Name,
    Operation,
    value_of,
)

ALONG_AXES = frozenset({"reduce_sum", "reduce_max", "reduce_min", "reduce_prod"})


@dataclass(frozen=True, eq=False)
class Origins:
    """Where the elements of every value come from, as far as they are only moved."""

    codes: dict[Name, np.ndarray]
    names: list[Name]
    starts: np.ndarray

    @classmethod
    def of(cls, flat: FlatProgram, constant: Mapping[Name, np.ndarray]) -> Origins:
        """Those of all values of a step."""
        codes: dict[Name, np.ndarray] = {}
        names: list[Name] = []
        starts: list[int] = []
        count = 0

        def anew(name: Name) -> np.ndarray:
            nonlocal count
            names.append(name)
            starts.append(count)
            count += name.size
            return np.arange(count - name.size, count).reshape(name.shape)

        for name in flat.inputs:
            codes[name] = anew(name)
        for one in flat.operations:
            found = _taken(one, codes, constant)
            for number, name in enumerate(one.outputs):
                own = anew(name)
                codes[name] = (
                    own if found is None else np.where(found[number] < 0, own, found[number])
                )
        return cls(codes, names, np.array(starts))

    def place(self, code: int) -> tuple[Name, int]:
        """The value that an element comes from, and the place in it."""
        number = int(np.searchsorted(self.starts, code, side="right")) - 1
        return self.names[number], int(code - self.starts[number])


def _taken(
    one: Operation, codes: Mapping[Name, np.ndarray], constant: Mapping[Name, np.ndarray]
) -> list[np.ndarray] | None:
    """The elements that an operation moves; None where it does more."""
    if one.kind == "convert_element_type" and isinstance(one.inputs[0], Name):
        same = one.inputs[0].dtype == one.outputs[0].dtype
        return [codes[one.inputs[0]]] if same else None
    if one.kind == "dot_general" and (product := _product(one, constant)) is not None:
        number, out, source, values = product
        atom = one.inputs[number]
        assert isinstance(atom, Name)
        alone = (np.bincount(out, minlength=one.outputs[0].size)[out] == 1) & (values == 1.0)
        whole = np.full(one.outputs[0].size, -1)
        whole[out[alone]] = codes[atom].ravel()[source[alone]]
        return [whole.reshape(one.outputs[0].shape)]
    if one.kind not in MOVED:
        return None
    arrays: list[Any] = []
    own = set(moved_inputs(one))
    for number, atom in enumerate(one.inputs):
        if number in own:
            arrays.append(np.full(atom.shape, -1) if isinstance(atom, Known) else codes[atom])
        elif (place := value_of(atom, constant, None)) is not None:
            arrays.append(place)
        else:
            return None
    return moved(one, arrays)


def _product(
    one: Operation, constant: Mapping[Name, np.ndarray]
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray] | None:
    """The entries of a product with a constant matrix, other than zeros; None where it is none.

    Which input it is of, and element of the output, element of the input and value of each.
    """
    contracted, batch = one.params["dimension_numbers"]
    for number, atom in enumerate(one.inputs):
        other = one.inputs[1 - number]
        matrix = value_of(other, constant, None)
        if matrix is None or isinstance(atom, Known) or batch[0]:
            continue
        size = atom.size
        unit = np.eye(size).reshape(size, *atom.shape)
        axes = (np.array(contracted[number]) + 1).tolist(), list(contracted[1 - number])
        found = np.tensordot(unit, np.asarray(matrix, float), axes)  # of the input's axes first
        if number == 1:
            free = len(atom.shape) - len(contracted[number])
            found = np.moveaxis(found, range(1, 1 + free), range(found.ndim - free, found.ndim))
        source, out = np.nonzero(found.reshape(size, -1))
        return number, out, source, found.reshape(size, -1)[source, out]
    return None


def constants(flat: FlatProgram, known: Mapping[Name, np.ndarray]) -> dict[Name, np.ndarray]:
    """Places of moves, and factors of products, that no input is in but those that are known."""
    makers, fixed, wanted = flat.makers, set(known), list[Name]()
    for one in flat.operations:
        if all(isinstance(atom, Known) or atom in fixed for atom in one.inputs):
            fixed.update(one.outputs)
        placed = placed_inputs(one) if one.kind in MOVED else []
        numbers = range(2) if one.kind == "dot_general" else placed
        wanted += [a for n in numbers if isinstance(a := one.inputs[n], Name)]
    wanted = [name for name in dict.fromkeys(wanted) if name in fixed]
    with jax.ensure_compile_time_eval():
        values = flat.values(wanted, known, makers)
        return dict(zip(wanted, map(np.asarray, values), strict=True))


def reached_elements(
    flat: FlatProgram, carried: Sequence[Name], constant: Mapping[Name, np.ndarray]
) -> dict[Name, np.ndarray]:
    """The elements of what is carried that each element of a value may depend on: (..., e)."""
    size = sum(name.size for name in carried)
    found = {name: np.zeros((*name.shape, size), bool) for name in flat.inputs}
    begin = 0
    for name in carried:
        own = np.zeros((name.size, size), bool)
        own[np.arange(name.size), begin + np.arange(name.size)] = True
        found[name] = own.reshape((*name.shape, size))
        begin += name.size

    def of(atom: Atom) -> np.ndarray:
        return found[atom] if isinstance(atom, Name) else np.zeros((*atom.shape, size), bool)

    for one in flat.operations:
        given = [of(atom) for atom in one.inputs]
        shape = one.outputs[0].shape
        numbers, starts = {}, np.cumsum([0] + [atom.size for atom in one.inputs])
        for atom, start in zip(one.inputs, starts, strict=False):
            if isinstance(atom, Name):
                numbers[atom] = start + np.arange(atom.size).reshape(atom.shape)
        product = _product(one, constant) if one.kind == "dot_general" else None
        taken = None if product else _taken(one, numbers, constant)
        if product is not None:
            number, out, source, _ = product
            whole = np.zeros((one.outputs[0].size, size), bool)
            np.logical_or.at(whole, out, given[number].reshape(-1, size)[source])
            found[one.outputs[0]] = whole.reshape((*shape, size))
        elif taken is not None:
            rows = np.concatenate([array.reshape(-1, size) for array in given])
            for name, own in zip(one.outputs, taken, strict=True):
                found[name] = rows[np.maximum(own, 0)] & (own >= 0)[..., None]
        elif one.kind in ELEMENTWISE:
            whole = np.zeros((*shape, size), bool)
            for array in given:
                whole = whole | array
            found |= dict.fromkeys(one.outputs, whole)
        elif one.kind in ALONG_AXES:
            found[one.outputs[0]] = np.asarray(given[0].any(axis=tuple(one.params["axes"])))
        else:
            every = np.zeros(size, bool)
            for array in given:
                every |= array.reshape(-1, size).any(axis=0)
            found |= {n: np.broadcast_to(every, (*n.shape, size)) for n in one.outputs}
    return found
