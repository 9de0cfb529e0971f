"""Convolutions of doubles that are not run beside other operations.

On CPU, XLA hands a convolution of doubles to its pool of threads, and schedules it beside what does
not need it. A program that has one next to loops (a delay after a scan, then draws from a Gamma
law) ended in a segmentation fault of jaxlib 0.10.2; without that schedule it did not. So a
convolution is compiled as what it means: a sum over the entries of its kernel, each times what lies
under it. In single precision it is another function of XLA's, and stays, as it does elsewhere than
on CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import Array

from lowerbound.compiled.interpreting import bind
from lowerbound.compiled.rewriting import Values

_DOUBLES: Final = ("float64", "complex128")


def is_double_convolution(equation: Any) -> bool:
    """Whether an operation is a convolution of doubles."""
    if equation.primitive.name != "conv_general_dilated":
        return False
    return str(equation.outvars[0].aval.dtype) in _DOUBLES


def by_sums(equation: Any, inputs: Sequence[Any]) -> Values:
    """The operation on CPU as a sum over the entries of its kernel; as it is elsewhere."""
    whole = partial(bind, equation.primitive, params=equation.params)

    def summed(data: Array, kernel: Array) -> Array:
        return _summed(data, kernel, equation.params, equation.outvars[0].aval)

    return [jax.lax.platform_dependent(*inputs, cpu=summed, default=lambda *both: whole(both)[0])]


def _summed(data: Array, kernel: Array, params: dict[str, Any], aval: Any) -> Array:
    numbers = params["dimension_numbers"]
    # Rows, channels and space; outputs, channels and space.
    data = jnp.transpose(data, numbers.lhs_spec).astype(aval.dtype)
    kernel = jnp.transpose(kernel, numbers.rhs_spec).astype(aval.dtype)
    edges = zip(params["padding"], params["lhs_dilation"], strict=True)
    wider = [(0, 0, 0), (0, 0, 0), *((low, high, step - 1) for (low, high), step in edges)]
    data = jax.lax.pad(data, jnp.zeros((), aval.dtype), wider)
    rows, channels, outputs = *data.shape[:2], kernel.shape[0]
    of_rows, of_channels = params["batch_group_count"], params["feature_group_count"]
    window, apart = kernel.shape[2:], params["rhs_dilation"]
    space = [aval.shape[axis] for axis in numbers.out_spec[2:]]
    strides = params["window_strides"]
    far = [(size - 1) * step + 1 for size, step in zip(space, strides, strict=True)]
    total = jnp.zeros((rows // of_rows, outputs, *space), aval.dtype)
    if total.size and math.prod(window):
        # Groups of rows, or of channels, go with groups of outputs.
        groups = of_rows * of_channels
        weights = kernel.reshape(groups, outputs // groups, channels // of_channels, -1)

        def with_entry(entry: Array, total: Array) -> Array:
            place = jnp.unravel_index(entry, window)
            starts = [at * step for at, step in zip(place, apart, strict=True)]
            zero = jnp.zeros_like(entry)
            seen = jax.lax.dynamic_slice(data, [zero, zero, *starts], [rows, channels, *far])
            seen = jax.lax.slice(seen, [0] * seen.ndim, seen.shape, (1, 1, *strides))
            own = seen.reshape(
                of_rows, rows // of_rows, of_channels, channels // of_channels, *space
            )
            own = own.swapaxes(1, 2).reshape(groups, rows // of_rows, -1, *space)
            added = jnp.einsum("gnc...,goc->ngo...", own, weights[..., entry])
            return total + added.reshape(total.shape)

        # Several entries a turn take longer, to compile and to run.
        total = jax.lax.fori_loop(0, math.prod(window), with_entry, total)
    back = sorted(range(total.ndim), key=numbers.out_spec.__getitem__)
    return jnp.transpose(total, back)
