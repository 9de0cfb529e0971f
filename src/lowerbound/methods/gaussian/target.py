"""log p on the unconstrained space with its gradient, compiled for batches of points."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from lowerbound.compiled import (
    Kept,
    abreast,
    differentiable,
    equations,
    jit,
    quickly,
    settled,
    traced,
)
from lowerbound.compiled.host import Hosted, hosted
from lowerbound.compiled.rewriting import inlined
from lowerbound.compute.bounded_loops import bounded, has_open_loops
from lowerbound.compute.engine import in_background
from lowerbound.cost import (
    Stopwatch,
    affordable_count,
    allowance,
    machine,
    numbers_computed,
    products_computed,
)
from lowerbound.errors import TooLongToCompileError, TooSlowError
from lowerbound.model import Model
from lowerbound.model.dependence import digest
from lowerbound.rewrite.coordinates import Coordinates

BATCH = 64  # points that are evaluated together
MANY = 200  # dimensions
MOST_NUMBERS = 20_000_000  # that one batch may hold
ROUGHLY = 5_000_000  # numbers that a batch may compute before its memory is looked at closely
LONG = 5.0  # seconds after which the pace of some points tells that of all
POINT = "the log density with its gradient at one point"
QUICK_BELOW = 15_000  # numbers computed for one point; programs of more are optimised
QUICK_PER_EQUATION = 10  # numbers an operation; the same holds of longer programs of small steps
UNROLLED = 10_000  # operations whose compilation is foreseen
POINT_SECONDS = 2e-6  # on an ordinary core: of a point in a batch, and more of each part of it:
PART_SECONDS = (20e-9, 2e-9, 0.2e-9)  # an operation, a number, a product of two
FEWEST_BATCHES = 48  # of points that a verdict takes: of draws, and of climbs
_programs: Kept[dict[object, Any]] = Kept(32)


@dataclass(frozen=True, eq=False)
class Target:
    """f(u) = log p(x, z(u)) + log |dz/du| of one model with its data.

    `closed` is the traced f(u, data) in the precision `dtype`, and `arguments` the data in that;
    `counts` is what one point costs, and `compiled` holds what equal programs share.
    """

    coordinates: Coordinates
    data: dict[str, Any]
    arguments: dict[str, Any]
    closed: ClosedJaxpr
    dtype: np.dtype[Any]
    batch: int
    counts: Counts
    compiled: dict[object, Any]

    @property
    def size(self) -> int:
        """The dimension of u."""
        return self.coordinates.size

    def __call__(self, vectors: np.ndarray, few: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Values and gradients at the rows of `vectors`, in double precision.

        Where there are `few`, NumPy runs a program that is yet to be compiled, as long as that is
        sooner done; else it is not optimised.
        """
        hosted = self._hosted(len(vectors)) if few else None
        program: Any = None if hosted else self.prepare(few).result()
        values, gradients, watch = [], [], Stopwatch()
        for begin in range(0, len(vectors), self.batch):
            _check_pace(watch, begin, len(vectors))
            some = vectors[begin : begin + self.batch]
            whole = np.broadcast_to(some[:1], (self.batch, self.size)).astype(self.dtype)
            whole[: len(some)] = some
            if hosted is not None:
                value, gradient = hosted(whole)
            else:
                with in_precision(self.dtype):
                    value, gradient = settled(program(whole, self.arguments))
            values.append(np.asarray(value, float)[: len(some)])
            gradients.append(np.asarray(gradient, float)[: len(some)])
        pace = watch.own_seconds / (len(values) * self.batch)
        # Of the last calls: a machine that others use gets slower, and the first call is slow.
        before = self.compiled.get("pace", pace)
        self.compiled["pace"] = pace if pace < before else 0.5 * (before + pace)
        return np.concatenate(values), np.concatenate(gradients)

    @property
    def ordinary(self) -> float:
        """Seconds of a value with its gradient on an ordinary core."""
        return self.counts.ordinary

    @property
    def everywhere(self) -> bool:
        """Whether it is log p at any point, not near some alone."""
        return True

    def seconds(self, points: float) -> float:
        """What values and gradients at so many points take, by those that have been evaluated."""
        return points * float(self.compiled.get("pace", 0.0))

    def check_affords(self, points: int) -> None:
        """Raise TooSlowError where a step of so many points takes longer than the fit may."""
        if self.seconds(points) > allowance().seconds:
            raise TooSlowError(points, self.seconds(points), allowance().seconds)

    def prepare(self, few: bool = False) -> Future[Any]:
        """The program, compiled in the background; not optimised for `few` points."""
        key = "few" if few and "batch" not in self.compiled else "batch"
        if key not in self.compiled:
            _check_compilation(equations(self.closed.jaxpr))
            quick = few or is_quick(self.closed.jaxpr)
            jitted = quickly(self._batch) if quick else jit(self._batch)
            with jax.default_matmul_precision("highest"), in_precision(self.dtype):
                lowered = jitted.lower(self._shape, self.arguments)
            self.compiled[key] = in_background(lowered.compile)
        future: Future[Any] = self.compiled[key]
        return future

    def _batch(self, vectors: Array, data: dict[str, Array]) -> tuple[Array, Array]:
        if "traced" in self.compiled:  # once is enough
            value, gradient = jaxpr_as_fun(self.compiled["traced"])(vectors, *jax.tree.leaves(data))
            return value, gradient
        both: tuple[Array, Array] = jax.vmap(value_and_gradient(self.closed, data))(vectors)
        return both

    def _mapped(self, vectors: Array, data: dict[str, Array]) -> tuple[Array, Array]:
        leaves, (jaxpr, consts) = jax.tree.leaves(data), (self.closed.jaxpr, self.closed.consts)
        both = jax.value_and_grad(lambda vector: inlined(jaxpr, consts, [vector, *leaves])[0])
        found: tuple[Array, Array] = jax.vmap(both)(vectors)
        return found

    @property
    def _shape(self) -> np.ndarray:
        return np.zeros((self.batch, self.size), self.dtype)

    def afresh(self) -> Target:
        """Itself, with no points counted: what NumPy takes for one verdict is none of another's."""
        self.compiled["batches"] = 0
        return self

    def _hosted(self, points: int) -> Hosted | None:
        """The program as calls of NumPy, for so many points more.

        None where it is compiled already, and where that takes less time: as long as it does not,
        what NumPy has taken is at most what a compilation would have.
        """
        if {"batch", "few"} & set(self.compiled) or self.host is None:
            return None
        batches = self.compiled.get("batches", 0) + math.ceil(points / self.batch)
        if max(batches, FEWEST_BATCHES) * self.host.seconds > self.host.compilation:
            return None
        self.compiled["batches"] = batches
        return self.host

    @cached_property
    def host(self) -> Hosted | None:
        """Values and gradients of a batch by NumPy; None where it lacks an operation."""
        if self.dtype != np.float64 or has_open_loops(self.closed):
            return None
        if "traced" not in self.compiled:
            with in_precision(self.dtype):
                self.compiled["traced"] = traced(self._mapped)(self._shape, self.arguments)
        data = enumerate(jax.tree.leaves(self.arguments), start=1)
        return hosted(self.compiled["traced"], dict(data))


def _check_pace(watch: Stopwatch, done: int, total: int) -> None:
    """Raise TooSlowError where some points have shown that all of them cannot be afforded."""
    spent, most = watch.own_seconds, allowance().seconds
    if done and spent > LONG and spent * total / done > most:
        raise TooSlowError(total, spent * total / done, most)


def _check_compilation(operations: int) -> None:
    """Raise TooLongToCompileError where XLA would take longer than the fit may: it cannot stop."""
    most = allowance().seconds
    if operations < UNROLLED or most == math.inf:
        return
    seconds = operations * machine().equation
    if seconds > most:
        raise TooLongToCompileError(operations, seconds, most)


def is_quick(jaxpr: Any) -> bool:
    """Whether a density is compiled quickly: it is small, or many small operations (a loop that
    the program has unrolled), on which the compiler's optimisation takes longer than it saves.
    """
    return _quick(equations(jaxpr), numbers_computed(jaxpr))


def _quick(operations: int, numbers: int) -> bool:
    return numbers <= max(QUICK_BELOW, QUICK_PER_EQUATION * operations)


def value_and_gradient(closed: ClosedJaxpr, data: dict[str, Any]) -> Any:
    """Log p and its gradient as a function of one vector u."""
    leaves = jax.tree.leaves(data)
    both = jax.value_and_grad(lambda vector: jaxpr_as_fun(closed)(vector, *leaves)[0])
    return bounded(both, closed.in_avals[0]) if has_open_loops(closed) else both


def target_for(
    model: Model,
    dtype: np.dtype[Any] | None = None,
    noncentred: Collection[str] = (),
    numbers: Mapping[str, np.ndarray] = MappingProxyType({}),
    warped: Collection[str] = (),
) -> Target:
    """The target of a model, traced once; equal programs share what is compiled, whatever the data.

    `numbers` join the data: how far the sites that are not centred are so, and the tables of those
    that are warped.
    """
    dtype = np.dtype(float) if dtype is None else dtype
    data = {**model.arguments.data, **numbers}
    arguments = {name: _in_dtype(array, dtype) for name, array in data.items()}
    shapes = tuple(sorted((name, np.shape(array)) for name, array in numbers.items()))
    known: dict[object, Target] = model.findings.setdefault("targets", {})
    own = dtype, frozenset(noncentred), frozenset(warped), shapes
    found = known.get(own)
    if found is None:
        found = _target(Coordinates.of(model, noncentred, warped=warped), dtype, arguments)
    if found.counts.batch * found.counts.numbers <= ROUGHLY:  # whatever memory there is
        known[own] = found
    return replace(found, data=data, arguments=arguments)


def _target(coordinates: Coordinates, dtype: np.dtype[Any], arguments: dict[str, Any]) -> Target:
    """The target of a model, traced for data of such shapes."""
    model, noncentred = coordinates.program(), coordinates.noncentred
    vector = np.zeros(coordinates.size, dtype)
    with in_precision(dtype):
        log_density = traced(coordinates.log_density)(vector, arguments)
        closed = abreast(differentiable(log_density))
    sites = sorted(coordinates.shapes.items())
    key = digest(closed, *sorted(arguments)) + str(sites) + str(sorted(noncentred))
    key += str(sorted(coordinates.warped))
    compiled = _programs.of(key, dict)
    largest = max((int(np.size(a)) for a in arguments.values()), default=1)
    operations, computed = equations(closed.jaxpr), numbers_computed(closed.jaxpr)
    products = products_computed(closed.jaxpr)
    found = Counts(operations, computed, coordinates.size, largest, products)
    _counts.setdefault(model, found)
    batch = found.batch
    if batch * found.numbers > ROUGHLY:
        with in_precision(dtype):
            both = traced(value_and_gradient(closed, arguments))(vector)
        batch = affordable_count(both.jaxpr, batch, POINT)
    return Target(coordinates, arguments, arguments, closed, dtype, batch, found, compiled)


@dataclass(frozen=True)
class Counts:
    """What a log density costs: its operations and the numbers that it computes.

    `size` is that of its vector, `data` that of its largest array of data; `products` are those of
    its linear algebra.
    """

    operations: int
    numbers: int
    size: int
    data: int
    products: int = 0

    @property
    def ordinary(self) -> float:
        """Seconds of a value with its gradient on an ordinary core: the same on every machine."""
        return POINT_SECONDS + float(
            np.dot((self.operations, self.numbers, self.products), PART_SECONDS)
        )

    @property
    def is_quick(self) -> bool:
        """Whether it is compiled quickly, without the optimisation that makes runs faster."""
        return _quick(self.operations, self.numbers)

    @property
    def batch(self) -> int:
        """How many points are evaluated together, as far as memory allows."""
        largest = self.data + self.size
        if self.size > MANY:  # fewer draws than that are wanted at a time
            largest = max(largest, self.numbers)
        return int(max(1, min(BATCH, MOST_NUMBERS // max(largest, 1))))


_counts: WeakKeyDictionary[Model, Counts] = WeakKeyDictionary()


def counts_of(model: Model) -> Counts:
    """The counts of the log density of a model, which is traced where that is yet to be done."""
    if model not in _counts:
        target_for(model)
    return _counts[model]


def in_precision(dtype: np.dtype[Any]) -> AbstractContextManager[Any]:
    """The types of a program: those of its author's own runs in single precision, or double.

    A program's loops carry numbers of the default type beside those of its arguments: with
    arguments in single precision and doubles as the default, they would not agree.
    """
    context: AbstractContextManager[Any] = jax.enable_x64(dtype == np.float64)
    return context


def _in_dtype(array: Any, dtype: np.dtype[Any]) -> Any:
    """Data in the precision of the program."""
    if array.dtype.kind == "f":
        return array.astype(dtype)
    if array.dtype.kind in "iu" and dtype != np.float64 and array.dtype.itemsize == 8:
        return array.astype(f"{array.dtype.kind}4")
    return array
