"""Products of two linear predictors, where they are summed: differences of squares.

A quadratic form z'Qz is no function of single predictors as it is written; u v is, as a quarter of
(u + v)^2 - (u - v)^2. Of a long row v, every coefficient is taken with u by itself, so that the
precision of z has entries where Q has, and no others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from lowerbound.compiled import traced
from lowerbound.family.numerics.orders import order_of
from lowerbound.methods.hierarchy.reading.affine_maps import Entries, Maps
from lowerbound.methods.hierarchy.reading.cutting import Reading
from lowerbound.methods.hierarchy.reading.dependence_kinds import AFFINE, CURVED
from lowerbound.methods.hierarchy.reading.flat_program import (
    Atom,
    FlatProgram,
    Known,
    Name,
    Operation,
    flattened,
    value_of,
)

SHORT = 3  # coefficients of a row that is taken as a whole
MOST_PAIRS = 2_000_000


def summed_products(reading: Reading) -> list[Operation]:
    """The products that are to be written otherwise."""
    found = []
    for one in reading.flat.operations:
        if one.kind not in ("mul", "dot_general"):
            continue
        kinds = sorted(reading.kind(atom) for atom in one.inputs)
        both = kinds == [AFFINE, AFFINE]
        weighted = one.kind == "dot_general" and kinds[1] == CURVED and kinds[0] < AFFINE
        apart = weighted and not one.params["dimension_numbers"][0][0]  # nothing is summed within
        if apart or ((both or weighted) and reading.summed(one)):
            found.append(one)
    return found


def elementwise(flat: FlatProgram, products: Sequence[Operation]) -> FlatProgram:
    """The program with its scalar products as sums of elementwise ones."""
    chosen = [one for one in products if one.kind == "dot_general"]
    return _replaced(flat, {one: (_sum_of_products(one), one.inputs) for one in chosen})


def as_squares(
    flat: FlatProgram, products: Sequence[Operation], maps: Maps, z: Sequence[Name]
) -> FlatProgram:
    """The program with elementwise products of affine values as differences of squares."""
    found: dict[Operation, tuple[Callable[..., Any], tuple[Atom, ...]]] = {}
    decided = hashlib.sha256(flat.decided.encode())
    for one in products:
        first, second = one.inputs
        if first is second:
            found[one] = lambda u, _: jnp.square(u), one.inputs
            continue
        lengths = [_longest(maps.of(atom), atom) for atom in one.inputs if isinstance(atom, Name)]
        if max(lengths) <= SHORT:
            found[one] = _polarised, one.inputs
            continue
        whole, long = (second, first) if lengths[0] > lengths[1] else (first, second)
        assert isinstance(long, Name)
        table = _table(maps.of(long), long.size, max(lengths))
        decided.update(table.tobytes())
        decided.update(maps.of(long).columns.tobytes())
        found[one] = _by_coefficients(flat, whole, long, maps, table, z)
    return replace(_replaced(flat, found), decided=decided.hexdigest())


def _polarised(u: Any, v: Any) -> Any:
    return 0.25 * (jnp.square(u + v) - jnp.square(u - v))


def _longest(entries: Entries, atom: Atom) -> int:
    return int(np.bincount(entries.rows, minlength=max(atom.size, 1)).max(initial=0))


def _table(entries: Entries, size: int, longest: int) -> np.ndarray:
    """The numbers of the entries of each row, in columns; -1 where there are no more."""
    order = order_of(entries.rows)
    rows = entries.rows[order]
    within = np.arange(len(rows)) - np.searchsorted(rows, rows)
    table = np.full((size, longest), -1)
    table[rows, within] = order
    return table


def _by_coefficients(
    flat: FlatProgram,
    whole: Atom,
    long: Name,
    maps: Maps,
    table: np.ndarray,
    z: Sequence[Name],
) -> tuple[Callable[..., Any], tuple[Atom, ...]]:
    """The product of a predictor with each coefficient of another's rows, and with its offset."""
    entries, tape, makers = maps.of(long), maps.tape, flat.makers
    atoms = tape.factors([entries.step])
    names = list(dict.fromkeys(atom for atom in atoms if isinstance(atom, Name)))
    others = [name for name in flat.inputs if name not in z]
    filled = np.where(table >= 0, table, table[:, :1])  # no column that the row does not have
    columns = np.where(filled >= 0, entries.columns[filled], 0)
    indices = list(tape.indices)

    def product(u: Any, *given: Any) -> Any:
        own = dict(zip(names, given, strict=False))
        places, rest = given[len(names) :][: len(z)], given[len(names) + len(z) :]
        values = tape.run([entries.step], lambda a: value_of(a, own, 0.0), indices)[0]
        values = jnp.where(table >= 0, values[table], 0.0)
        vector = jnp.concatenate([jnp.ravel(part) for part in places])
        pairs = _polarised(jnp.ravel(u)[:, None], vector[columns])
        known = dict(zip(others, rest, strict=True))
        known |= {name: jnp.zeros(name.shape) for name in z}
        offset = flat.values([long], known, makers)[0]
        found = jnp.sum(values * pairs, axis=1).reshape(np.shape(u))
        return found + u * offset

    return product, (whole, *names, *z, *others)


def _sum_of_products(one: Operation) -> Callable[..., Any]:
    """A scalar product, elementwise and then summed."""
    contracted, batch = one.params["dimension_numbers"]

    def product(*inputs: Any) -> Any:
        parts = []
        for which, array in enumerate(inputs):
            axes, common = list(contracted[which]), list(batch[which])
            free = [a for a in range(np.ndim(array)) if a not in axes and a not in common]
            other = np.ndim(inputs[1 - which]) - len(axes) - len(common)
            shape = [np.shape(array)[a] for a in common]
            sizes = [np.shape(array)[a] for a in free]
            last = [np.shape(array)[a] for a in axes]
            shape += sizes + [1] * other if which == 0 else [1] * other + sizes
            parts.append(jnp.transpose(array, common + free + axes).reshape(shape + last))
        count = len(contracted[0])
        whole = parts[0] * parts[1]
        return jnp.sum(whole, axis=tuple(range(whole.ndim - count, whole.ndim)))

    return product


def _replaced(
    flat: FlatProgram,
    chosen: dict[Operation, tuple[Callable[..., Any], tuple[Atom, ...]]],
) -> FlatProgram:
    """The program with some operations replaced by functions of other values."""
    if not chosen:
        return flat
    count = max(n.number for one in flat.operations for n in one.outputs)
    operations: list[Operation] = []
    for one in flat.operations:
        if one not in chosen:
            operations.append(one)
            continue
        function, inputs = chosen[one]
        shapes = [_like(atom) for atom in inputs]
        inner = flattened(traced(function)(*shapes))
        named: dict[Name, Atom] = dict(zip(inner.inputs, inputs, strict=True))
        for step in inner.operations:
            new = []
            for name in step.outputs:
                count += 1
                last = name is inner.outputs[0]
                new.append(one.outputs[0] if last else Name(count, name.shape, name.dtype))
            named.update(zip(step.outputs, new, strict=True))
            given = tuple(named[a] if isinstance(a, Name) else a for a in step.inputs)
            operations.append(replace(step, inputs=given, outputs=tuple(new)))
    return replace(flat, operations=tuple(operations))


def _like(atom: Atom) -> Any:
    if isinstance(atom, Known):
        return np.asarray(atom.value)
    return np.zeros(atom.shape, atom.dtype)
