"""Affine arrays of a program as sparse matrices: entries with a fixed place, and how to value them.

Every array that is affine in z has a row for each of its elements. Which columns of z a row meets
is known once; the values of the entries are products of what the program multiplies by, which may
depend on theta. They are recorded as steps, so that they can be computed in compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from lowerbound.errors import NoPredictorsError
from lowerbound.family.numerics.orders import order_of
from lowerbound.methods.hierarchy.reading.crowded_places import added_up
from lowerbound.methods.hierarchy.reading.element_maps import moved, moved_inputs
from lowerbound.methods.hierarchy.reading.flat_program import Atom, Name, Operation, value_of

MOST_ENTRIES = 50_000_000


def too_many() -> NoPredictorsError:
    """The matrix has too many entries to be written down."""
    return NoPredictorsError(f"the predictors have more than {MOST_ENTRIES:.0e} coefficients")


@dataclass(frozen=True)
class Factor:
    """A value that entries are multiplied by, or divided: an array of the program."""

    atom: Atom
    inverse: str = ""  # of which triangle it is inverted first: "lower", "upper unit", or not
    divide: bool = False


@dataclass(frozen=True)
class Step:
    """How the values of some entries come from those of others.

    "ones": `count` ones. "taken": those of a source at an index. "scaled": those of a source times
    a factor at an index. "summed": sums of those at the rows of an index, with zeros beyond the
    last. "negated", "joined": as they say. Indices are numbers of the tape.
    """

    kind: str
    sources: tuple[int, ...] = ()
    index: int | None = None
    factor: Factor | None = None
    count: int = 0


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of an affine array: the element and the column of each, and the step."""

    rows: np.ndarray
    columns: np.ndarray
    step: int

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(eq=False)
class Tape:
    """The steps in order, and the indices that they use."""

    steps: list[Step] = field(default_factory=list)
    indices: list[np.ndarray] = field(default_factory=list)

    def add(
        self,
        kind: str,
        sources: Sequence[int] = (),
        index: np.ndarray | None = None,
        factor: Factor | None = None,
        count: int = 0,
    ) -> int:
        """One more step; its number."""
        number = None
        if index is not None:
            self.indices.append(index.astype(np.int32))
            number = len(self.indices) - 1
        self.steps.append(Step(kind, tuple(sources), number, factor, count))
        return len(self.steps) - 1

    def run(
        self, wanted: Sequence[int], value: Callable[[Atom], Any], indices: Sequence[Any]
    ) -> list[Array]:
        """The values of some steps, where `value` gives those of the program."""
        found: list[Any] = []
        for step in self.steps:
            given = [found[number] for number in step.sources]
            index = None if step.index is None else indices[step.index]
            if step.kind == "ones":
                found.append(jnp.ones(step.count))
            elif step.kind == "taken":
                found.append(given[0][index])
            elif step.kind == "summed":
                found.append(jnp.append(given[0], 0.0)[index].sum(axis=1))
            elif step.kind == "negated":
                found.append(-given[0])
            elif step.kind == "joined":
                found.append(jnp.concatenate(given))
            else:
                assert step.factor is not None
                by = _factor(value(step.factor.atom), step.factor.inverse).ravel()
                by = by[0] if index is None else by[index]
                found.append(given[0] / by if step.factor.divide else given[0] * by)
        return [found[number] for number in wanted]

    def factors(self, wanted: Sequence[int]) -> list[Atom]:
        """The values of the program that some steps use."""
        needed, open_ = set(), list(wanted)
        while open_:
            number = open_.pop()
            if number not in needed:
                needed.add(number)
                open_ += self.steps[number].sources
        used = [self.steps[number].factor for number in needed]
        return [factor.atom for factor in used if factor is not None]


def _factor(matrix: Array, inverse: str) -> Array:
    if not inverse:
        return jnp.asarray(matrix)
    unit = jnp.broadcast_to(jnp.eye(matrix.shape[-1]), matrix.shape)
    return lax.linalg.triangular_solve(
        matrix,
        unit,
        left_side=True,
        lower=inverse.startswith("lower"),
        unit_diagonal=inverse.endswith("unit"),
    )


# --------------------------------------------------------------------------------------------------
# Rules: the entries of an output from those of the inputs


@dataclass(eq=False)
class Maps:
    """The entries of the affine arrays of a program, found as they are asked for."""

    makers: dict[Name, Operation]
    is_affine: Callable[[Atom], bool]
    known: dict[Name, np.ndarray]  # values that depend on neither z nor theta, where needed
    tape: Tape = field(default_factory=Tape)
    found: dict[Name, Entries] = field(default_factory=dict)

    def start(self, name: Name, first: int) -> None:
        """An array of z itself: its elements are columns, from `first` on."""
        count = np.arange(name.size)
        self.found[name] = Entries(count, first + count, self.tape.add("ones", count=name.size))

    def of(self, name: Name) -> Entries:
        """The entries of an affine array."""
        pending = [name]
        while pending:  # no recursion: programs may be thousands of operations long
            top = pending[-1]
            if top in self.found:
                pending.pop()
                continue
            one = self.makers[top]
            open_ = [a for a in one.inputs if self.is_affine(a) and a not in self.found]
            if open_:
                pending += [atom for atom in open_ if isinstance(atom, Name)]
                continue
            for output, entries in zip(one.outputs, self._outputs(one), strict=True):
                self.found[output] = entries = self._together(entries)
                if len(entries) > MOST_ENTRIES:
                    raise too_many()
        return self.found[name]

    def _outputs(self, one: Operation) -> list[Entries]:
        if one.kind in ("add", "sub", "add_any"):
            return [self._sum(one)]
        if one.kind in ("mul", "div"):
            return [self._scaled(one)]
        if one.kind == "neg":
            own = self._input(one.inputs[0])
            return [Entries(own.rows, own.columns, self.tape.add("negated", [own.step]))]
        if one.kind in ("convert_element_type", "copy"):
            return [self._input(one.inputs[0])]
        if one.kind == "reduce_sum":
            return [self._reduced(one)]
        if one.kind == "cumsum":
            return [self._running(one)]
        if one.kind == "dot_general":
            return [self._product(one)]
        if one.kind == "triangular_solve":
            return [self._solved(one)]
        return self._moved(one)

    def _together(self, own: Entries) -> Entries:
        """The entries, those at one place added up where these are many."""
        found = added_up(own.rows, own.columns)
        if found is None:
            return own
        rows, columns, index = found
        return Entries(rows, columns, self.tape.add("summed", [own.step], index))

    def _input(self, atom: Atom) -> Entries:
        assert isinstance(atom, Name)
        return self.found[atom]

    def _spread(self, atom: Atom, shape: tuple[int, ...]) -> Entries:
        """The entries of an input, repeated to the shape of the output."""
        own = self._input(atom)
        return own if atom.shape == shape else self._taken(own, atom.size, _repeated(atom, shape))

    def _taken(self, own: Entries, size: int, sources: np.ndarray) -> Entries:
        """Rows that are those of an array at `sources`; none where a source is negative."""
        rows, index = expanded(own.rows, size, sources)
        return Entries(rows, own.columns[index], self.tape.add("taken", [own.step], index))

    def _sum(self, one: Operation) -> Entries:
        parts = []
        for number, atom in enumerate(one.inputs):
            if not self.is_affine(atom):
                continue
            own = self._spread(atom, one.outputs[0].shape)
            step = own.step
            if one.kind == "sub" and number == 1:
                step = self.tape.add("negated", [step])
            parts.append(Entries(own.rows, own.columns, step))
        return self._joined(parts)

    def _joined(self, parts: Sequence[Entries]) -> Entries:
        if len(parts) == 1:
            return parts[0]
        step = self.tape.add("joined", [part.step for part in parts])
        rows = np.concatenate([part.rows for part in parts])
        return Entries(rows, np.concatenate([part.columns for part in parts]), step)

    def _scaled(self, one: Operation) -> Entries:
        number = 0 if self.is_affine(one.inputs[0]) else 1
        other = one.inputs[1 - number]
        own = self._spread(one.inputs[number], one.outputs[0].shape)
        index = None if other.size == 1 else _repeated(other, one.outputs[0].shape)[own.rows]
        factor = Factor(other, divide=one.kind == "div")
        return Entries(own.rows, own.columns, self.tape.add("scaled", [own.step], index, factor))

    def _reduced(self, one: Operation) -> Entries:
        own, shape = self._input(one.inputs[0]), one.inputs[0].shape
        axes = one.params["axes"]
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        places = np.broadcast_to(np.arange(one.outputs[0].size).reshape(kept), shape).ravel()
        return Entries(places[own.rows], own.columns, own.step)

    def _running(self, one: Operation) -> Entries:
        own, shape = self._input(one.inputs[0]), one.inputs[0].shape
        axis, count = one.params["axis"], one.inputs[0].shape[one.params["axis"]]
        first, second = np.tril_indices(count)
        if one.params["reverse"]:
            first, second = count - 1 - first, count - 1 - second
        if len(first) * one.inputs[0].size // max(count, 1) > MOST_ENTRIES:
            raise too_many()
        places = np.moveaxis(np.arange(one.inputs[0].size).reshape(shape), axis, 0)
        out, source = places[first].ravel(), places[second].ravel()
        return self._weighted(own, one.inputs[0].size, out, source)

    def _weighted(
        self,
        own: Entries,
        size: int,
        out: np.ndarray,
        source: np.ndarray,
        factor: Factor | None = None,
        by: np.ndarray | None = None,
    ) -> Entries:
        """Rows `out` that have those at `source` added, each times an element of a factor."""
        pairs, index = expanded(own.rows, size, source)
        if len(index) > MOST_ENTRIES:
            raise too_many()
        step = self.tape.add("taken", [own.step], index)
        if factor is not None:
            assert by is not None
            step = self.tape.add("scaled", [step], by[pairs], factor)
        return Entries(out[pairs], own.columns[index], step)

    def _product(self, one: Operation) -> Entries:
        number = 0 if self.is_affine(one.inputs[0]) else 1
        contracted, batch = one.params["dimension_numbers"]
        parts = []
        for which, atom in enumerate(one.inputs):
            axes, common = list(contracted[which]), list(batch[which])
            free = [a for a in range(len(atom.shape)) if a not in axes and a not in common]
            places = np.arange(atom.size).reshape(atom.shape).transpose(common + free + axes)
            sizes = (_count(atom, common), _count(atom, free), _count(atom, axes))
            parts.append(places.reshape(sizes))
        left, right = parts[0][:, :, None, :], parts[1][:, None, :, :]
        shape = np.broadcast_shapes(left.shape, right.shape)
        if int(np.prod(shape)) > MOST_ENTRIES:
            raise too_many()
        both = [np.broadcast_to(part, shape).ravel() for part in (left, right)]
        out = np.repeat(np.arange(one.outputs[0].size), shape[-1])
        return self._times(one.inputs[number], one.inputs[1 - number], out, both, number, "")

    def _times(
        self,
        atom: Atom,
        other: Atom,
        out: np.ndarray,
        both: Sequence[np.ndarray],
        number: int,
        inverse: str,
    ) -> Entries:
        source, by = both[number], both[1 - number]
        value = value_of(other, self.known, None)
        if value is not None and not inverse:  # zeros of a design are no entries
            some = np.asarray(value).ravel()[by] != 0
            out, source, by = out[some], source[some], by[some]
        factor = Factor(other, inverse)
        return self._weighted(self._input(atom), atom.size, out, source, factor, by)

    def _solved(self, one: Operation) -> Entries:
        """The solution of op(a) x = b, or x op(a) = b, as a product with the inverse."""
        matrix, other = one.inputs
        lower, transposed = one.params["lower"], one.params["transpose_a"]
        size = matrix.shape[-1]
        places = np.arange(matrix.size).reshape(-1, size, size)
        if transposed:
            places = places.transpose(0, 2, 1)
        rows, columns = np.tril_indices(size)
        if bool(lower) == bool(transposed):  # the inverse, transposed or not, is upper triangular
            rows, columns = columns, rows
        inside = np.arange(other.size).reshape(-1, *other.shape[-2:])
        if one.params["left_side"]:
            by, source, out = places[:, rows, columns], inside[:, columns], inside[:, rows]
        else:
            turned = inside.transpose(0, 2, 1)
            by, source, out = places[:, rows, columns], turned[:, rows], turned[:, columns]
        by = np.broadcast_to(by[:, :, None], source.shape).ravel()
        kind = ("lower" if lower else "upper") + " unit" * one.params["unit_diagonal"]
        both = (source.ravel(), by)
        return self._times(other, matrix, out.ravel(), both, 0, kind)

    def _moved(self, one: Operation) -> list[Entries]:
        first, offsets, parts = 0, {}, []
        for number in moved_inputs(one):
            atom = one.inputs[number]
            if self.is_affine(atom):
                offsets[number] = first
                own = self._input(atom)
                parts.append(Entries(own.rows + first, own.columns, own.step))
                first += atom.size
        arrays: list[Any] = []
        for number, atom in enumerate(one.inputs):
            if number in offsets:
                arrays.append(offsets[number] + np.arange(atom.size).reshape(atom.shape))
            elif number in moved_inputs(one):
                arrays.append(np.full(atom.shape, -1))
            else:
                arrays.append(value_of(atom, self.known))
        whole = self._joined(parts)
        return [self._taken(whole, first, array.ravel()) for array in moved(one, arrays)]


def _repeated(atom: Atom, shape: tuple[int, ...]) -> np.ndarray:
    """The element of an input that each element of an elementwise output takes."""
    return np.broadcast_to(np.arange(atom.size).reshape(atom.shape), shape).ravel()


def _count(atom: Atom, axes: Sequence[int]) -> int:
    return int(np.prod([atom.shape[axis] for axis in axes], dtype=int))


def expanded(rows: np.ndarray, size: int, sources: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each of `sources` (rows of an array of `size`), the entries that its row has.

    Returns the number of the source and the number of the entry, pair by pair.
    """
    order = order_of(rows)
    begin = np.searchsorted(rows[order], np.arange(size + 1))
    counts = np.where(sources >= 0, np.diff(begin)[np.maximum(sources, 0)], 0)
    pairs = np.repeat(np.arange(len(sources)), counts)
    before = np.cumsum(counts) - counts
    within = np.arange(len(pairs)) - before[pairs]
    return pairs, order[begin[:-1][sources[pairs]] + within]
