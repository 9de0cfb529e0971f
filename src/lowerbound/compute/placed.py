"""Functions of minibatches, compiled for one device or for rows spread over many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from lowerbound.compiled import interruptibly, jit, settled
from lowerbound.compute.devices import Placement
from lowerbound.compute.engine import Engine
from lowerbound.joint.traced_program import abstract


def compiled(
    engine: Engine,
    where: Placement | None,
    key: tuple[object, ...],
    function: Callable[..., Any],
    axis: int,
    inputs: Mapping[str, Any],
    *rest: Any,
) -> Callable[..., Any]:
    """`function(inputs, *rest)`, compiled once for such arguments.

    The arrays of `inputs` hold rows along `axis`: on many devices each holds its part of them, and
    everything else, the results too, is whole on every device. Each process gives its own rows.
    """
    key = (*key, *(np.dtype(a.dtype) for a in inputs.values()))  # rows may be in single precision
    if where is None:
        if key not in engine.compiled:
            engine.compiled[key] = engine.compile(function, dict(inputs), *rest)
        single: Callable[..., Any] = engine.compiled[key]
        return single
    placed = (*key, where.key)
    if placed not in engine.compiled:
        engine.compiled[placed] = _on_devices(where, function, axis, inputs, rest)
    many: Callable[..., Any] = engine.compiled[placed]
    return many


def _on_devices(
    where: Placement,
    function: Callable[..., Any],
    axis: int,
    inputs: Mapping[str, Any],
    rest: tuple[Any, ...],
) -> Callable[..., Any]:
    rows = jax.tree.map(lambda _: where.rows_sharding(axis), dict(inputs))
    others = jax.tree.map(lambda _: where.replicated, rest)
    jitted = jit(function, in_shardings=(rows, *others), out_shardings=where.replicated)

    def whole(array: np.ndarray) -> Any:
        shape = list(array.shape)
        shape[axis] *= where.processes
        return abstract(tuple(shape), array.dtype)

    shapes = {n: whole(np.asarray(a)) for n, a in inputs.items()}
    with jax.default_matmul_precision("highest"):
        executable = interruptibly(jitted.lower(shapes, *rest).compile)

    def call(inputs: Mapping[str, Any], *rest: Any) -> Any:
        spread = {n: where.shard_local(np.asarray(a), axis) for n, a in inputs.items()}
        return settled(executable(spread, *jax.tree.map(_everywhere(where), rest)))

    return call


def _everywhere(where: Placement) -> Callable[[Any], Any]:
    def place(array: Any) -> Any:
        if isinstance(array, jax.Array) and array.sharding == where.replicated:
            return array
        return where.replicate(np.asarray(array))

    return place


def gathered(rows: Mapping[str, Any], where: Placement | None, axis: int) -> dict[str, Any]:
    """The rows of all processes along an axis, in their order; all must call it together."""
    if where is None or where.processes == 1:
        return dict(rows)

    def whole(own: np.ndarray) -> np.ndarray:
        parts = np.asarray(multihost_utils.process_allgather(own))
        return np.concatenate(list(parts), axis=axis)

    found: dict[str, Any] = {}
    for name, own in rows.items():
        found[name] = whole(np.ma.getdata(own))
        if isinstance(own, np.ma.MaskedArray):
            found[name] = np.ma.array(found[name], mask=whole(np.ma.getmaskarray(own)))
    return found
