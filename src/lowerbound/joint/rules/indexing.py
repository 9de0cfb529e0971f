"""Rules for indexing: a gather by data reads positions, a gather by a latent adds indicators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

from lowerbound.joint.rules.structural import reindexed, slice_axis
from lowerbound.joint.terms.indicators import close, expose
from lowerbound.joint.terms.indices import Gather, Index, Label, gathered, is_static, position
from lowerbound.joint.terms.labelled import Atom, Factor, substitute
from lowerbound.joint.terms.value import Operand, Outcome, Value, dense, lift, poisoned


def gather(
    operand: Operand, indices: Operand, *, dimension_numbers: Any, slice_sizes: Any, aval: Any,
    mode: Any = None, fill_value: Any = None, **_: Any,
) -> Outcome:  # fmt: skip
    """Indexing. A latent index z reads sum_k 1[z=k] operand[k]."""
    value = lift(operand)
    where = lift(indices)
    if _fills(mode, fill_value, aval):
        reason = "a fill value for positions out of range has no rule"
        return poisoned("gather", reason, value, where)
    exposed = expose([where])
    if exposed is None:
        return poisoned("gather", "its index is a sum over assignments", value, where)
    indicators, (opened,) = exposed
    if not opened.is_constant:
        return poisoned("gather", "its index depends on a continuous latent site", value, where)
    numbers = dimension_numbers
    rank = len(where.shape) - 1  # the last axis of the indices holds the components
    batch_dims = [d for d in range(len(aval.shape)) if d not in numbers.offset_dims]
    offset_of = _offset_axes(len(value.shape), numbers)
    axes: list[Label | None] = [None] * len(aval.shape)
    index: list[Index | None] = []
    for d, out in enumerate(batch_dims):  # the axes of the indices become axes of the output
        axes[out] = opened.axes[d]
    for d, size in enumerate(value.shape):
        offset = offset_of.get(d)
        span = Label(slice_sizes[d]) if offset is not None and slice_sizes[d] > 1 else None
        if offset is not None:
            axes[offset] = span
        if d in numbers.operand_batching_dims:
            along = numbers.start_indices_batching_dims[numbers.operand_batching_dims.index(d)]
            out = batch_dims[along]
            if axes[out] is None and size > 1:
                axes[out] = Label(size)
            index.append(axes[out] if size > 1 else position(0))
        elif d in numbers.start_index_map:
            component = slice_axis(opened, rank, np.array([numbers.start_index_map.index(d)]))
            index.append(_start(component, size, slice_sizes[d], span))
        else:
            index.append(span if span is not None else position(0))
            if span is not None and span.size != size:
                index[-1] = Gather(np.arange(span.size), (span,))
    # A batch axis of the indices may meet the operand's own labels: rename the operand's first.
    renamed = _renamed(value)
    result = reindexed(renamed, index, tuple(aval.shape), axes)
    return _with_categories(result, indicators)


def _fills(mode: Any, fill_value: Any, aval: Any) -> bool:
    """Whether positions out of range read a number that the program gives (NaN is none)."""
    if mode != GatherScatterMode.FILL_OR_DROP or fill_value is None:
        return False
    return bool(np.issubdtype(aval.dtype, np.floating) and not np.isnan(fill_value))


def dynamic_slice(
    operand: Operand, *starts: Operand, slice_sizes: Any, aval: Any, **_: Any
) -> Outcome:
    """A window at a position that data or a discrete latent give (x[z] for a scalar z)."""
    value = lift(operand)
    exposed = expose([lift(start) for start in starts])
    if exposed is None or not all(v.is_constant for v in exposed[1]):
        reason = "its start depends on a continuous latent site"
        return poisoned("dynamic_slice", reason, value, *starts)
    indicators, opened = exposed
    axes: list[Label | None] = []
    index: list[Index | None] = []
    for start, size, window in zip(opened, value.shape, slice_sizes, strict=True):
        axes.append(Label(window) if window > 1 else None)
        index.append(_start(start, size, window, axes[-1]))
    result = reindexed(_renamed(value), index, tuple(aval.shape), axes)
    return _with_categories(result, indicators)


def _with_categories(result: Value, indicators: list[Factor[Atom]]) -> Value:
    """The sum over categories of the indicators times what was read for each."""
    if not indicators:
        return result
    labels = [f.index[-1] for f in indicators]
    sizes = [int(f.atom.parameter) for f in indicators]
    return close(
        indicators,
        Value((*result.shape, *sizes), (*result.axes, *labels), result.terms),  # type: ignore[arg-type]
    )


def _renamed(value: Value) -> Value:
    fresh = {label: label.fresh() for label in value.labels}
    return Value(
        value.shape,
        tuple(fresh[label] if label is not None else None for label in value.axes),
        tuple(substitute(term, fresh) for term in value.terms),
    )


def _offset_axes(rank: int, numbers: Any) -> dict[int, int]:
    """Operand axis -> output axis, for the axes of which a window is read."""
    skipped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    windows = [d for d in range(rank) if d not in skipped]
    return dict(zip(windows, numbers.offset_dims, strict=True))


def _start(component: Value, size: int, window: int, span: Label | None) -> Index:
    """The index expression start + offset along one axis."""
    array, labels = dense(component)
    array = array.astype(int)
    if is_static(array):
        array = np.clip(array, 0, size - window)
    else:
        array = jnp.clip(array, 0, size - window)
    if span is not None:
        array = array[..., None] + np.arange(window)
        labels = (*labels, span)
    if is_static(array) and array.ndim == 0:
        return position(int(array))
    return gathered(array, labels, size)


RULES: dict[str, Callable[..., Any]] = {"gather": gather, "dynamic_slice": dynamic_slice}
