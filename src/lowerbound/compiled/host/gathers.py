"""Gathers and scatters as NumPy's indexing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode


def gathered(params: Any, shape: tuple[int, ...]) -> Callable[..., Any]:
    """Slices of an array that begin at given indices."""
    numbers, sizes = params["dimension_numbers"], tuple(params["slice_sizes"])
    drops = params["mode"] == GatherScatterMode.FILL_OR_DROP
    offset = tuple(numbers.offset_dims)
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    fill = params.get("fill_value")

    def gather(operand: Any, indices: Any) -> Any:
        places, inside = _places(
            operand.shape,
            indices,
            sizes,
            numbers.start_index_map,
            numbers.operand_batching_dims,
            numbers.start_indices_batching_dims,
            gone,
        )
        found = operand[places]
        batch = indices.ndim - 1
        if drops and not inside.all():
            if operand.dtype.kind == "f":
                other = np.nan if fill is None else fill
            elif operand.dtype.kind == "b":
                other = True if fill is None else fill
            else:
                other = np.iinfo(operand.dtype).min if fill is None else fill
            inside = inside.reshape(inside.shape + (1,) * (found.ndim - batch))
            found = np.where(inside, found, np.asarray(other, operand.dtype))
        others = [n for n in range(len(shape)) if n not in offset]
        order = np.argsort([*others, *offset])
        return np.transpose(found, order)

    return gather


def scattered(params: Any, adds: Callable[..., Any]) -> Callable[..., Any]:
    """An array with updates in slices that begin at given indices; `adds(total, places, some)`."""
    numbers = params["dimension_numbers"]
    window = tuple(numbers.update_window_dims)
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    drops = params["mode"] != GatherScatterMode.CLIP

    def scatter(operand: Any, indices: Any, updates: Any) -> Any:
        kept = [n for n in range(operand.ndim) if n not in gone]
        sizes = [1] * operand.ndim
        for n, axis in zip(kept, window, strict=True):
            sizes[n] = updates.shape[axis]
        places, inside = _places(
            operand.shape,
            indices,
            tuple(sizes),
            numbers.scatter_dims_to_operand_dims,
            numbers.operand_batching_dims,
            numbers.scatter_indices_batching_dims,
            gone,
        )
        others = [n for n in range(updates.ndim) if n not in window]
        ordered = np.transpose(updates, (*others, *window))
        if drops and not inside.all():
            ordered = ordered[inside]
            places = tuple(place[inside] for place in places)
        total = np.array(operand)
        adds(total, places, ordered)
        return total

    return scatter


def put(total: np.ndarray, places: Any, some: Any) -> None:
    """Updates in the place of what there was."""
    total[places] = some


def _places(
    shape: tuple[int, ...],
    indices: Any,
    sizes: tuple[int, ...],
    mapped: Any,
    batching: Any,
    index_batching: Any,
    gone: set[int],
) -> tuple[tuple[Any, ...], np.ndarray]:
    """For every axis of an operand its indices, over the axes of `indices` and then of a slice.

    Beside them, which of the slices lie within the operand; the others are moved there.
    """
    batch = indices.ndim - 1
    kept = [n for n in range(len(shape)) if n not in gone]
    inside = np.ones(indices.shape[:-1], bool)
    starts: dict[int, Any] = {}
    for number, axis in enumerate(mapped):
        start, most = indices[..., number], shape[axis] - sizes[axis]
        inside &= (start >= 0) & (start <= most)
        starts[axis] = np.clip(start, 0, most)
    for axis, own in zip(batching, index_batching, strict=True):
        along = [1] * batch
        along[own] = indices.shape[own]
        starts[axis] = np.arange(indices.shape[own]).reshape(along)
    found = []
    for axis in range(len(shape)):
        start = np.asarray(starts.get(axis, 0))
        start = start.reshape((1,) * (batch - start.ndim) + start.shape + (1,) * len(kept))
        if axis in kept:
            along = [1] * len(kept)
            along[kept.index(axis)] = sizes[axis]
            start = start + np.arange(sizes[axis]).reshape(along)
        found.append(start)
    return tuple(np.broadcast_arrays(*found)) if found else (), inside
