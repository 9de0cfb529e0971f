"""A density as a sum of functions of linear predictors: log p = sum over e of g_e(eta_e; theta).

The program is read once. What is affine in z up to the first curved operation is a predictor; what
follows must treat every element of a predictor alone, up to the sums that end in log p, or with a
few others, where so many may meet. A site that meets the elements of more there (the log of a
scale, say) is no part of z.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jax.extend.core import ClosedJaxpr
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from lowerbound.errors import CodeRangeError, NoPredictorsError
from lowerbound.family.numerics.orders import order_of
from lowerbound.methods.hierarchy.reading.affine_maps import Maps
from lowerbound.methods.hierarchy.reading.cutting import Reading
from lowerbound.methods.hierarchy.reading.dependence_kinds import AFFINE, CURVED, DATA, kinds_of
from lowerbound.methods.hierarchy.reading.element_maps import (
    ELEMENTWISE,
    MOVED,
    moved,
    placed_inputs,
)
from lowerbound.methods.hierarchy.reading.flat_program import (
    Atom,
    FlatProgram,
    Name,
    Operation,
    flattened,
    held,
    value_of,
)
from lowerbound.methods.hierarchy.reading.moves_first import MOVES, moves_first
from lowerbound.methods.hierarchy.reading.summed_products import (
    as_squares,
    elementwise,
    summed_products,
)
from lowerbound.model.checks.reads import FILLED

NONE = -1  # of the elements of predictors that an element depends on

REDUCTIONS = frozenset(
    {
        "reduce_sum",
        "reduce_max",
        "reduce_min",
        "reduce_prod",
        "reduce_and",
        "reduce_or",
        "argmax",
        "argmin",
    }
)
ADDING = frozenset(["add", "sub", "add_any", "reduce_sum", "scatter-add"])
CLOSED = frozenset({"custom_jvp_call", "custom_vjp_call"})


@dataclass(frozen=True, eq=False)
class Split:
    """The predictors of a program: the names at which it is cut, and the maps up to there.

    clusters: (c, m), the numbers of predictors that meet in one term; -1 where they are fewer.
    """

    flat: FlatProgram
    makers: dict[Name, Operation]
    cut: tuple[Name, ...]
    kinds: Mapping[Name, int]
    maps: Maps
    clusters: np.ndarray

    @property
    def count(self) -> int:
        """How many predictors there are, in all arrays."""
        return sum(name.size for name in self.cut)


def split(
    flat: FlatProgram,
    theta: Sequence[Name],
    z: Mapping[str, Name],
    known: Callable[[FlatProgram, Sequence[Name]], Sequence[np.ndarray]],
    together: int = 1,
) -> Split:
    """Cut a program of one output, given which of its inputs are theta and z.

    `known` evaluates values of a program that depend on data alone. So many predictors may meet
    `together` in one term. Raises NoPredictorsError.
    """
    own = tuple(z.values())

    def read(flat: FlatProgram) -> Reading:
        return Reading(flat, kinds_of(flat, theta, own))

    reading = read(flat)
    products = summed_products(reading)
    if products:
        flat = elementwise(flat, products)
        reading = read(flat)
        products = [one for one in summed_products(reading) if one.kind == "mul"]
        maps, _ = _maps(reading, own, known)
        flat = as_squares(flat, products, maps, own)
        reading = read(flat)
    if together > 1:
        flat = moves_first(reading)
        reading = read(flat)
        reading = replace(reading, copies=_copies(reading, known))
    maps, places = _maps(reading, own, known)
    for one in flat.operations:
        if one.kind == "gather" and maps.is_affine(one.inputs[0]) and one.inputs[1] in places:
            _check_codes(one, places[one.inputs[1]], maps, z)
    cut = reading.cut()
    found = _Owners(reading, places, cut).meeting(together)
    if not isinstance(found, np.ndarray):
        raise _meeting(found, cut, maps, z)
    return Split(flat, reading.makers, cut, reading.kinds, maps, found)


def _maps(
    reading: Reading,
    z: Sequence[Name],
    known: Callable[[FlatProgram, Sequence[Name]], Sequence[np.ndarray]],
) -> tuple[Maps, dict[Name, np.ndarray]]:
    """The maps of the affine values, and the values that say where elements go."""
    wanted = reading.places()
    places = dict(zip(wanted, known(reading.flat, wanted), strict=True))
    maps = Maps(reading.makers, lambda atom: reading.kind(atom) == AFFINE, places)
    first = 0
    for name in z:
        maps.start(name, first)
        first += name.size
    return maps, places


def _copies(
    reading: Reading, known: Callable[[FlatProgram, Sequence[Name]], Sequence[np.ndarray]]
) -> set[Operation]:
    """The moves of affine values that take some element to several places."""
    wanted = reading.places()
    places = dict(zip(wanted, known(reading.flat, wanted), strict=True))
    found = set()
    for one in reading.flat.operations:
        if one.kind not in MOVES or reading.kinds[one.outputs[0]] != AFFINE:
            continue
        arrays = [np.arange(one.inputs[0].size).reshape(one.inputs[0].shape)]
        for atom in one.inputs[1:]:
            arrays.append(places[atom] if isinstance(atom, Name) else np.asarray(atom.value))
        taken = moved(one, arrays)[0]
        taken = taken[taken != NONE]
        if np.bincount(taken, minlength=1).max() > 1:
            found.add(one)
    return found


def _check_codes(one: Operation, codes: np.ndarray, maps: Maps, z: Mapping[str, Name]) -> None:
    """Raise where a gather reaches beyond its array."""
    array, sizes = one.inputs[0], one.params["slice_sizes"]
    assert isinstance(array, Name)
    for place, axis in enumerate(one.params["dimension_numbers"].start_index_map):
        found = codes[..., place]
        beyond = found[(found < 0) | (found > array.shape[axis] - sizes[axis])]
        if len(beyond) and one.params["mode"] == FILLED:
            raise NoPredictorsError("a fill value for positions out of range has no predictor")
        if len(beyond):
            names = _sites(np.unique(maps.of(array).columns), z)
            raise CodeRangeError(names, array.shape[axis], int(beyond.flat[0]))


@dataclass(eq=False)
class _Owners:
    """The element of a predictor that each element of a curved value depends on.

    Where several meet, one of them stands for all; pairs: (2, n) each, of those that do.
    """

    reading: Reading
    places: Mapping[Name, np.ndarray]
    cut: Sequence[Name]
    found: dict[Name, np.ndarray] = field(default_factory=dict)
    pairs: list[np.ndarray] = field(default_factory=list)
    mixed: str = ""

    def meeting(self, together: int) -> np.ndarray | tuple[int, int] | str:
        """The clusters of elements that meet; two elements, or an operation, where too many do."""
        first = 0
        for name in self.cut:
            self.found[name] = first + np.arange(name.size).reshape(name.shape)
            first += name.size
        for one in self.reading.flat.operations:
            kind = max((self.reading.kinds[name] for name in one.outputs), default=DATA)
            before = self.reading.chained(one) if kind == AFFINE else None
            if kind == CURVED or (before in self.found and one.outputs[0] not in self.found):
                given = [self._owner(atom) for atom in one.inputs]
                self.found.update(zip(one.outputs, self._through(one, given), strict=True))
                if self.mixed:
                    return self.mixed
                if self.pairs and together == 1:
                    return int(self.pairs[0][0, 0]), int(self.pairs[0][1, 0])
        return clusters(self.pairs, first, together)

    def _owner(self, atom: Atom) -> np.ndarray:
        if isinstance(atom, Name) and atom in self.found:
            return self.found[atom]
        return np.full(atom.shape, NONE)

    def _through(self, one: Operation, given: Sequence[np.ndarray]) -> list[np.ndarray]:
        shape = one.outputs[0].shape
        if one.kind in CLOSED:
            return self._inside(one, given)
        if one.kind in ADDING and self.reading.summed(one):
            return [np.full(shape, NONE)]
        if one.kind in ELEMENTWISE and not self._moves(one):
            owners = np.full(shape, NONE)
            for other in given:
                owners = self._merged(owners, np.broadcast_to(other, shape))
            return [owners] * len(one.outputs)
        if one.kind in MOVED:
            arrays = list(given)
            for number in placed_inputs(one):
                place = value_of(one.inputs[number], self.places, None)
                if place is None:
                    return self._all(one, given)
                arrays[number] = np.asarray(place)
            return moved(one, arrays)
        if one.kind in REDUCTIONS:
            axes = tuple(one.params["axes"])
            top = given[0].max(axis=axes, initial=NONE)
            every = np.where(given[0] == NONE, np.expand_dims(top, axes), given[0])
            self._note(every, np.expand_dims(top, axes), every != np.expand_dims(top, axes))
            return [np.asarray(top).reshape(shape)] * len(one.outputs)
        return self._all(one, given)

    def _moves(self, one: Operation) -> bool:
        """Whether the cases of a choice are known: then each element has one owner."""
        return (
            one.kind == "select_n"
            and self.reading.kind(one.inputs[0]) == DATA
            and value_of(one.inputs[0], self.places, None) is not None
        )

    def _merged(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        both = (one != NONE) & (other != NONE) & (one != other)
        self._note(one, other, both)
        merged: np.ndarray = np.maximum(one, other)
        return merged

    def _note(self, one: np.ndarray, other: np.ndarray, both: np.ndarray) -> None:
        if np.any(both):
            one, other = (np.broadcast_to(array, both.shape)[both] for array in (one, other))
            self.pairs.append(np.unique(np.stack([one, other]), axis=1))

    def _all(self, one: Operation, given: Sequence[np.ndarray]) -> list[np.ndarray]:
        """An operation that may mix all of its inputs."""
        owners = [np.unique(array[array != NONE]) for array in given]
        owners = [array for array in owners if len(array)]
        every = np.unique(np.concatenate(owners)) if owners else np.zeros(0, int)
        if len(owners) > 1:  # as a matrix times a state: the elements of one meet those of others
            for array, first in zip(
                owners, (owners[1][0], *[owners[0][0]] * len(owners)), strict=False
            ):
                self._note(array, np.full(len(array), first), array != first)
        elif len(every) > 1 and not self.mixed:
            self.mixed = one.kind
        top = every[0] if len(every) else NONE
        return [np.full(name.shape, top) for name in one.outputs]

    def _inside(self, one: Operation, given: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Through an operation with a derivative of its own."""
        inner = held(one.params, len(one.inputs))
        if inner is None:
            return self._all(one, given)
        flat = flattened(ClosedJaxpr(*inner))
        kinds = kinds_of(flat, (), flat.inputs)
        kinds = {name: CURVED if kind else DATA for name, kind in kinds.items()}
        inside = _Owners(Reading(flat, kinds), {}, ())
        inside.found.update(zip(flat.inputs, given, strict=True))
        for step in flat.operations:
            own = [inside._owner(atom) for atom in step.inputs]
            inside.found.update(zip(step.outputs, inside._through(step, own), strict=True))
        self.pairs += inside.pairs
        self.mixed = self.mixed or inside.mixed
        return [inside._owner(atom) for atom in flat.outputs]


def clusters(
    pairs: Sequence[np.ndarray], count: int, together: int
) -> np.ndarray | tuple[int, int]:
    """Which of `count` elements meet, (c, m) with -1 where there are fewer; two of too many.

    >>> clusters([np.array([[0, 4], [2, 3]])], 5, 2)
    array([[0, 2],
           [3, 4]])
    >>> clusters([np.array([[0, 0, 0], [1, 2, 3]])], 5, 2)
    (0, 1)
    """
    if not pairs:
        return np.zeros((0, 1), int)
    one, other = np.concatenate(pairs, axis=1)
    graph = coo_array((np.ones(len(one)), (one, other)), (count, count))
    _, label = connected_components(graph, directed=False)
    sizes = np.bincount(label)
    if sizes.max() > together:
        degrees = np.bincount(np.concatenate([one, other]), minlength=count)
        within = np.flatnonzero(label == sizes.argmax())
        most = within[degrees[within].argmax()]
        met = np.concatenate([other[one == most], one[other == most]])
        return int(most), int(met[0])
    order = order_of(label)
    starts = np.cumsum(sizes) - sizes
    within = np.arange(count) - starts[label[order]]
    table = np.full((len(sizes), int(sizes.max())), NONE)
    table[label[order], within] = order
    found: np.ndarray = table[sizes > 1]
    return found


def _meeting(
    meeting: tuple[int, int] | str, cut: Sequence[Name], maps: Maps, z: Mapping[str, Name]
) -> NoPredictorsError:
    """Say which sites meet; those of the smaller predictor had better be given."""
    if isinstance(meeting, str):
        return NoPredictorsError(f"all elements of a predictor meet in {meeting}")
    starts = np.cumsum([0] + [name.size for name in cut])
    names = [cut[int(np.searchsorted(starts, one, side="right")) - 1] for one in meeting]
    first, second = (_sites(np.unique(maps.of(name).columns), z) for name in names)
    what = f"predictors of {', '.join(first)} and of {', '.join(second)} meet in one term"
    sizes = [
        (sum(z[site].size for site in sites), name.size)
        for name, sites in zip(names, (first, second), strict=True)
    ]
    every = (*first, *second)
    if sizes[0] == sizes[1] or set(first) & set(second):
        return NoPredictorsError(what, meeting=every)
    return NoPredictorsError(what, first if sizes[0] < sizes[1] else second, every)


def _sites(columns: np.ndarray, z: Mapping[str, Name]) -> tuple[str, ...]:
    """The sites that some columns belong to."""
    starts = np.cumsum([0] + [one.size for one in z.values()])
    numbers = np.unique(np.searchsorted(starts, columns, side="right") - 1)
    return tuple(list(z)[int(number)] for number in numbers)
