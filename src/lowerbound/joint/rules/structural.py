"""Rules for structural primitives: they only relabel, sum over labels, or add indicators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np

from lowerbound.joint.terms import value as values
from lowerbound.joint.terms.indicators import close, expose
from lowerbound.joint.terms.indices import (
    Array,
    Gather,
    Index,
    Label,
    gathered,
    is_static,
    position,
)
from lowerbound.joint.terms.labelled import substitute
from lowerbound.joint.terms.value import Operand, Outcome, Poison, Value, lift


def reindexed(
    value: Value,
    index: Sequence[Index | None],
    shape: tuple[int, ...],
    axes: Sequence[Label | None],
) -> Value:
    """Read the value at `index` (one expression per old axis) as a value with new axes."""
    mapping = {
        label: i
        for label, i in zip(value.axes, index, strict=True)
        if label is not None and i is not None and i is not label
    }
    terms = tuple(substitute(term, mapping) for term in value.terms)
    return Value(shape, tuple(axes), terms)


def broadcast_in_dim(
    operand: Operand, *, aval: Any, broadcast_dimensions: tuple[int, ...], **_: Any
) -> Value:
    """Place the axes among the new ones, along which nothing varies."""
    value = lift(operand)
    axes: list[Label | None] = [None] * len(aval.shape)
    for label, d in zip(value.axes, broadcast_dimensions, strict=True):
        axes[d] = label
    return Value(tuple(aval.shape), tuple(axes), value.terms)


def reshape(operand: Operand, *, aval: Any, **_: Any) -> Value:
    """Regroup axes; where axes merge or split, old positions are functions of the new labels."""
    value = lift(operand)
    new_shape = tuple(aval.shape)
    index: list[Index | None] = [None] * len(value.shape)
    axes: list[Label | None] = [None] * len(new_shape)
    for old, new in _matching_groups(value.shape, new_shape):
        if all(value.axes[d] is None for d in old):
            continue
        if len(old) == 1 and len(new) == 1:
            axes[new[0]] = value.axes[old[0]]
            continue
        labels = {d: Label(new_shape[d]) for d in new}
        sizes = [new_shape[d] for d in new]
        flat = np.arange(math.prod(sizes)).reshape(sizes)
        for d, label in labels.items():
            axes[d] = label
        stride = math.prod(value.shape[d] for d in old)
        for d in old:
            stride //= value.shape[d]
            where = (flat // stride) % value.shape[d]
            index[d] = _reduced(where, tuple(labels.values()), value.shape[d])
    return reindexed(value, index, new_shape, axes)


def _reduced(array: np.ndarray, labels: tuple[Label, ...], size: int) -> Index:
    """`array[labels]` without the labels it does not vary along."""
    keep = []
    for d in range(array.ndim):
        if (array == np.take(array, [0], axis=d)).all():
            array = np.take(array, [0], axis=d)
        else:
            keep.append(d)
    return gathered(
        array.reshape([array.shape[d] for d in keep]), tuple(labels[d] for d in keep), size
    )


def _matching_groups(
    old: tuple[int, ...], new: tuple[int, ...]
) -> list[tuple[list[int], list[int]]]:
    """Runs of old and new axes (ones left out) that hold the same elements."""
    a = [d for d, n in enumerate(old) if n != 1]
    b = [d for d, n in enumerate(new) if n != 1]
    groups = []
    while a or b:
        first, second = [a.pop(0)], [b.pop(0)]
        m, n = old[first[0]], new[second[0]]
        while m != n:
            if m < n:
                first.append(a.pop(0))
                m *= old[first[-1]]
            else:
                second.append(b.pop(0))
                n *= new[second[-1]]
        groups.append((first, second))
    return groups


def transpose(operand: Operand, *, permutation: tuple[int, ...], **_: Any) -> Value:
    """Reorder the axes; the terms stay as they are."""
    value = lift(operand)
    return Value(
        tuple(value.shape[d] for d in permutation),
        tuple(value.axes[d] for d in permutation),
        value.terms,
    )


def slice_axis(value: Value, axis: int, positions: Array) -> Value:
    """Read fixed positions along one axis."""
    size = len(positions)
    shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
    if value.axes[axis] is None:
        return replace(value, shape=shape)
    new = Label(size) if size > 1 else None
    where: Index = (
        gathered(positions, (new,), value.shape[axis])
        if new
        else (position(int(positions[0])) if is_static(positions) else Gather(positions[0], ()))
        if size
        else position(0)  # of nothing: never read
    )
    index: list[Index | None] = list(value.axes)
    index[axis] = where
    axes = (*value.axes[:axis], new, *value.axes[axis + 1 :])
    return reindexed(value, index, shape, axes)


def _slice(
    operand: Operand, *, start_indices: Any, limit_indices: Any, strides: Any, **_: Any
) -> Value:
    value = lift(operand)
    steps = strides or (1,) * len(start_indices)
    for axis, (start, limit, step) in enumerate(
        zip(start_indices, limit_indices, steps, strict=True)
    ):
        positions = np.arange(start, limit, step)
        if len(positions) != value.shape[axis] or step != 1:
            value = slice_axis(value, axis, positions)
    return value


def _rev(operand: Operand, *, dimensions: tuple[int, ...], **_: Any) -> Value:
    value = lift(operand)
    for axis in dimensions:
        value = slice_axis(value, axis, np.arange(value.shape[axis])[::-1])
    return value


def _split(operand: Operand, *, sizes: tuple[int, ...], axis: int, **_: Any) -> list[Value]:
    value = lift(operand)
    ends = np.cumsum(sizes)
    return [
        slice_axis(value, axis, np.arange(end - n, end)) for n, end in zip(sizes, ends, strict=True)
    ]


def _unstack(operand: Operand, *, axis: int, **_: Any) -> list[Value]:
    """`a, b = x`, from JAX 0.11 on."""
    value = lift(operand)
    left = SimpleNamespace(shape=value.shape[:axis] + value.shape[axis + 1 :])
    places = range(value.shape[axis])
    return [reshape(slice_axis(value, axis, np.array([n])), aval=left) for n in places]


def concatenate(*operands: Operand, dimension: int, aval: Any, **_: Any) -> Outcome:
    """Each piece, read at its own positions and masked to its own stretch."""
    pieces: list[Operand] = []
    start = 0
    length = aval.shape[dimension]
    for operand in operands:
        value = lift(operand)
        size = value.shape[dimension]
        where = np.arange(length)
        stretched = slice_axis(value, dimension, np.clip(where - start, 0, size - 1))
        mask = ((where >= start) & (where < start + size)).astype(float)
        shape = [length if d == dimension else 1 for d in range(len(aval.shape))]
        pieces.append(values.times(mask.reshape(shape), stretched))
        start += size
    return values.add(*pieces)


def _stack(*operands: Operand, axis: int, aval: Any, **_: Any) -> Outcome:
    pieces = [
        _spread(v, [d for d in range(len(aval.shape)) if d != axis], len(aval.shape))
        for v in map(lift, operands)
    ]
    return concatenate(*pieces, dimension=axis, aval=aval)


def _tile(operand: Operand, *, reps: tuple[int, ...], **_: Any) -> Value:
    value = lift(operand)
    for axis, count in enumerate(reps):
        if count != 1:
            value = slice_axis(value, axis, np.tile(np.arange(value.shape[axis]), count))
    return value


def _pad(operand: Operand, fill: Operand, *, padding_config: Any, **_: Any) -> Outcome:
    value: Outcome = lift(operand)
    for axis, (low, high, interior) in enumerate(padding_config):
        if interior or low < 0 or high < 0:
            return values.poisoned("pad", "only plain padding has a rule", value)
        shape = list(value.shape)
        sides = []
        for count in (low, high):
            shape[axis] = count
            sides.append(Value(tuple(shape), (None,) * len(shape), lift(fill).terms))
        shape[axis] = value.shape[axis] + low + high
        parts = [p for p in (sides[0], value, sides[1]) if p.shape[axis]]
        value = concatenate(*parts, dimension=axis, aval=_Shape(tuple(shape)))
        if isinstance(value, Poison):
            return value
    return value


class _Shape:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


def dot_general(a: Operand, b: Operand, *, dimension_numbers: Any, **_: Any) -> Outcome:
    """A product with shared labels, then a sum over the contracted ones."""
    (contract_a, contract_b), (batch_a, batch_b) = dimension_numbers
    left, right = lift(a), lift(b)
    free_a = [d for d in range(len(left.shape)) if d not in (*contract_a, *batch_a)]
    free_b = [d for d in range(len(right.shape)) if d not in (*contract_b, *batch_b)]
    left = transpose(left, permutation=(*batch_a, *free_a, *contract_a))
    right = transpose(right, permutation=(*batch_b, *free_b, *contract_b))
    nb, na, nf, nc = len(batch_a), len(free_a), len(free_b), len(contract_a)
    wide = [*range(nb), *range(nb, nb + na), *range(nb + na + nf, nb + na + nf + nc)]
    tall = [*range(nb), *range(nb + na, nb + na + nf + nc)]
    rank = nb + na + nf + nc
    product = values.times(_spread(left, wide, rank), _spread(right, tall, rank))
    return values.total(product, range(rank - nc, rank))


def _spread(value: Value, dims: Sequence[int], rank: int) -> Value:
    shape = [1] * rank
    axes: list[Label | None] = [None] * rank
    for d, n, label in zip(dims, value.shape, value.axes, strict=True):
        shape[d], axes[d] = n, label
    return Value(tuple(shape), tuple(axes), value.terms)


def _cumsum(operand: Operand, *, axis: int, reverse: bool, **_: Any) -> Outcome:
    value = lift(operand)
    n = value.shape[axis]
    triangle = np.triu(np.ones((n, n))) if reverse else np.tril(np.ones((n, n)))
    rank = len(value.shape)
    moved = dot_general(value, triangle, dimension_numbers=(((axis,), (1,)), ((), ())))
    if isinstance(moved, Poison):
        return moved
    order = [*range(axis), rank - 1, *range(axis, rank - 1)]
    return transpose(moved, permutation=tuple(order))


def _reduce_sum(operand: Operand, *, axes: tuple[int, ...], **_: Any) -> Outcome:
    return values.total(operand, axes)


def _constant_only(name: str, function: Callable[..., Any]) -> Callable[..., Outcome]:
    """A reduction that is defined on constants (and inside indicators), axis by axis."""

    def rule(operand: Operand, *, axes: tuple[int, ...], aval: Any, **_: Any) -> Outcome:
        value = lift(operand)
        exposed = expose([value])
        if exposed is None or not exposed[1][0].is_constant:
            return poisoned_shape(name, aval.shape, value)
        indicators, (opened,) = exposed
        kept = [d for d in range(len(opened.shape)) if d not in axes]
        array, labels = values.dense(opened)
        reduce = tuple(
            i for i, label in enumerate(labels) if label in [opened.axes[d] for d in axes]
        )
        used = {label for f in indicators for i in f.index[:-1] for label in _labels(i)}
        if any(labels[i] in used for i in reduce):
            return poisoned_shape(name, aval.shape, value)
        result = function(array, axis=reduce)
        left = tuple(label for i, label in enumerate(labels) if i not in reduce)
        like = Value(tuple(opened.shape[d] for d in kept), tuple(opened.axes[d] for d in kept), ())
        return close(indicators, values.constant(result, left, like))

    return rule


def _labels(index: Index) -> tuple[Label, ...]:
    return (index,) if isinstance(index, Label) else index.labels


def _first(function: Callable[..., Array], array: Array, axis: tuple[int, ...]) -> Array:
    """The position of an extreme: the first, where nothing varies along the axis."""
    return function(array, axis=axis[0]) if axis else jnp.zeros(array.shape, int)


def poisoned_shape(name: str, shape: tuple[int, ...], value: Value) -> Poison:
    """The poison of a reduction, whose result has another shape than its operand."""
    return replace(
        values.poisoned(name, f"{name} of a latent value has no closed form here", value),
        shape=shape,
    )


RULES: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": broadcast_in_dim,
    "reshape": reshape,
    "squeeze": reshape,
    "expand_dims": reshape,
    "transpose": transpose,
    "slice": _slice,
    "rev": _rev,
    "split": _split,
    "unstack": _unstack,
    "concatenate": concatenate,
    "stack": _stack,
    "tile": _tile,
    "pad": _pad,
    "dot_general": dot_general,
    "cumsum": _cumsum,
    "reduce_sum": _reduce_sum,
    "reduce_max": _constant_only("max", jnp.max),
    "reduce_min": _constant_only("min", jnp.min),
    "argmax": _constant_only("argmax", lambda a, axis: _first(jnp.argmax, a, axis)),
    "argmin": _constant_only("argmin", lambda a, axis: _first(jnp.argmin, a, axis)),
    "reduce_and": _constant_only("all", jnp.all),
    "reduce_or": _constant_only("any", jnp.any),
}
