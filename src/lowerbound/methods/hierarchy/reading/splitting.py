"""A density as a sum of functions of linear predictors: log p = sum over e of g_e(eta_e; theta).

The program is read once. What is affine in z up to the first curved operation is a predictor; what
follows must treat every element of a predictor alone, up to the sums that end in log p. A site
that meets the elements of others there (the log of a scale, say) is no part of z.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jax.extend.core import ClosedJaxpr

from lowerbound.errors import CodeRangeError, NoPredictorsError
from lowerbound.methods.hierarchy.reading.affine_maps import Maps
from lowerbound.methods.hierarchy.reading.cutting import Reading
from lowerbound.methods.hierarchy.reading.dependence_kinds import (
    AFFINE,
    CURVED,
    DATA,
    kinds_of,
)
from lowerbound.methods.hierarchy.reading.element_maps import MOVED, moved, placed_inputs
from lowerbound.methods.hierarchy.reading.flat_program import (
    Atom,
    FlatProgram,
    Known,
    Name,
    Operation,
    flattened,
    held,
)
from lowerbound.methods.hierarchy.reading.summed_products import (
    as_squares,
    elementwise,
    summed_products,
)

NONE, SEVERAL = -1, -2  # of the elements of predictors that an element depends on

ELEMENTWISE = frozenset(
    """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil
    clamp convert_element_type copy cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor
    ge gt igamma igamma_grad_a igammac integer_pow is_finite le lgamma log log1p logistic lt max
    min mul ne neg nextafter not or polygamma pow real reduce_precision
    regularized_incomplete_beta rem round rsqrt select_n sign sin sinh sqrt square stop_gradient
    sub tan tanh xor
    """.split()  # noqa: SIM905
)
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
    """The predictors of a program: the names at which it is cut, and the maps up to there."""

    flat: FlatProgram
    makers: dict[Name, Operation]
    cut: tuple[Name, ...]
    kinds: Mapping[Name, int]
    maps: Maps

    @property
    def count(self) -> int:
        """How many predictors there are, in all arrays."""
        return sum(name.size for name in self.cut)


def split(
    flat: FlatProgram,
    theta: Sequence[Name],
    z: Mapping[str, Name],
    known: Callable[[FlatProgram, Sequence[Name]], Sequence[np.ndarray]],
) -> Split:
    """Cut a program of one output, given which of its inputs are theta and z.

    `known` evaluates values of a program that depend on data alone. Raises NoPredictorsError.
    """
    own = tuple(z.values())
    reading = Reading(flat, kinds_of(flat, theta, own))
    products = summed_products(reading)
    if products:
        flat = elementwise(flat, products)
        reading = Reading(flat, kinds_of(flat, theta, own))
        products = [one for one in summed_products(reading) if one.kind == "mul"]
        maps, _ = _maps(reading, own, known)
        flat = as_squares(flat, products, maps, own)
        reading = Reading(flat, kinds_of(flat, theta, own))
    maps, places = _maps(reading, own, known)
    for one in flat.operations:
        if one.kind == "gather" and maps.is_affine(one.inputs[0]) and one.inputs[1] in places:
            _check_codes(one, places[one.inputs[1]], maps, z)
    cut = reading.cut()
    meeting = _Owners(reading, places, cut).meeting()
    if meeting is not None:
        raise _meeting(meeting, cut, maps, z)
    return Split(flat, reading.makers, cut, reading.kinds, maps)


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


def _check_codes(one: Operation, codes: np.ndarray, maps: Maps, z: Mapping[str, Name]) -> None:
    """Raise where a gather reaches beyond its array."""
    array, sizes = one.inputs[0], one.params["slice_sizes"]
    assert isinstance(array, Name)
    for place, axis in enumerate(one.params["dimension_numbers"].start_index_map):
        found = codes[..., place]
        beyond = found[(found < 0) | (found > array.shape[axis] - sizes[axis])]
        if len(beyond):
            names = _sites(np.unique(maps.of(array).columns), z)
            raise CodeRangeError(names, array.shape[axis], int(beyond.flat[0]))


@dataclass(eq=False)
class _Owners:
    """The element of a predictor that each element of a curved value depends on."""

    reading: Reading
    places: Mapping[Name, np.ndarray]
    cut: Sequence[Name]
    found: dict[Name, np.ndarray] = field(default_factory=dict)
    met: tuple[int, int] | str | None = None

    def meeting(self) -> tuple[int, int] | str | None:
        """Two elements that meet, or the operation in which they do; None where none do."""
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
                if self.met is not None:
                    return self.met
        return None

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
                atom = one.inputs[number]
                if isinstance(atom, Name) and atom not in self.places:
                    return self._all(one, given)
                arrays[number] = (
                    np.asarray(atom.value) if isinstance(atom, Known) else self.places[atom]
                )
            return moved(one, arrays)
        if one.kind in REDUCTIONS:
            axes = tuple(one.params["axes"])
            top = given[0].max(axis=axes, initial=NONE)
            every = np.where(given[0] == NONE, np.expand_dims(top, axes), given[0])
            low = every.min(axis=axes, initial=np.iinfo(int).max)
            self._note(low, top, low < top)
            return [np.asarray(top).reshape(shape)] * len(one.outputs)
        return self._all(one, given)

    def _moves(self, one: Operation) -> bool:
        """Whether the cases of a choice are known: then each element has one owner."""
        return (
            one.kind == "select_n"
            and self.reading.kind(one.inputs[0]) == DATA
            and (isinstance(one.inputs[0], Known) or one.inputs[0] in self.places)
        )

    def _merged(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        both = (one != NONE) & (other != NONE) & (one != other)
        self._note(one, other, both)
        merged: np.ndarray = np.maximum(one, other)
        return merged

    def _note(self, one: np.ndarray, other: np.ndarray, both: np.ndarray) -> None:
        if self.met is None and np.any(both):
            where = np.flatnonzero(np.ravel(both))[0]
            self.met = int(np.ravel(one)[where]), int(np.ravel(other)[where])

    def _all(self, one: Operation, given: Sequence[np.ndarray]) -> list[np.ndarray]:
        """An operation that may mix all of its inputs."""
        owners = np.unique(np.concatenate([array.ravel() for array in given]))
        owners = owners[owners != NONE]
        if len(owners) > 1 and self.met is None:
            self.met = one.kind
        top = owners[0] if len(owners) else NONE
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
        if inside.met is not None and self.met is None:
            self.met = inside.met
        return [inside._owner(atom) for atom in flat.outputs]


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
