"""Where the elements of a rearranged array come from.

Operations that only move elements (reshape, gather, concatenate, ...) are run on the numbers of
the elements of their inputs. The inputs of which nothing is asked count as -1, and so does what an
operation fills in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from lowerbound.compiled.host.gathers import gathered
from lowerbound.compiled.interpreting import bind
from lowerbound.methods.hierarchy.reading.flat_program import Operation

# The inputs of each that are moved; the others say where to, and must be known.
MOVED: dict[str, slice] = {
    "reshape": slice(0, 1),
    "squeeze": slice(0, 1),
    "expand_dims": slice(0, 1),
    "transpose": slice(0, 1),
    "broadcast_in_dim": slice(0, 1),
    "slice": slice(0, 1),
    "rev": slice(0, 1),
    "copy": slice(0, 1),
    "gather": slice(0, 1),
    "dynamic_slice": slice(0, 1),
    "split": slice(0, 1),
    "unstack": slice(0, 1),
    "concatenate": slice(0, None),
    "stack": slice(0, None),
    "pad": slice(0, 2),
    "select_n": slice(1, None),
    "dynamic_update_slice": slice(0, 2),
    "scatter": slice(0, 3, 2),
}

# Operations each of whose elements is a function of the elements at its place.
ELEMENTWISE = frozenset(
    """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil
    clamp convert_element_type copy cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor
    ge gt igamma igamma_grad_a igammac integer_pow is_finite le lgamma log log1p log2 logistic lt
    max min mul ne neg nextafter not or polygamma pow real reduce_precision
    one_minus_square polynomial regularized_incomplete_beta rem round rsqrt select_n sign sin sinh
    sqrt square stop_gradient sub tan tanh xor
    """.split()  # noqa: SIM905
)


def moved_inputs(one: Operation) -> list[int]:
    """The positions of the inputs whose elements are moved."""
    return list(range(len(one.inputs))[MOVED[one.kind]])


def placed_inputs(one: Operation) -> list[int]:
    """The positions of the inputs that say where to."""
    moved = set(moved_inputs(one))
    return [number for number in range(len(one.inputs)) if number not in moved]


def moved(one: Operation, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of an operation on numbers of elements; -1 where it fills something in."""
    plain = _PLAIN.get(one.kind)
    if plain is not None:
        outputs: list[np.ndarray] = plain(one, [np.asarray(array) for array in inputs])
        return outputs
    own = set(moved_inputs(one))
    arrays = [
        np.asarray(array, np.int64) if number in own else array
        for number, array in enumerate(inputs)
    ]
    # What is filled in may be no number; and it may be asked for while something is traced.
    with np.errstate(invalid="ignore"), jax.ensure_compile_time_eval():
        found = bind(one.primitive, arrays, one.params)
        return [np.maximum(np.asarray(array), -1) for array in found]


def _reshape(one: Operation, inputs: list[np.ndarray]) -> list[np.ndarray]:
    if one.kind == "reshape" and one.params.get("dimensions") is not None:
        inputs = [inputs[0].transpose(one.params["dimensions"])]
    return [inputs[0].reshape(one.outputs[0].shape)]


def _transpose(one: Operation, inputs: list[np.ndarray]) -> list[np.ndarray]:
    return [inputs[0].transpose(one.params["permutation"])]


def _broadcast(one: Operation, inputs: list[np.ndarray]) -> list[np.ndarray]:
    shape = [1] * len(one.params["shape"])
    for axis, size in zip(one.params["broadcast_dimensions"], inputs[0].shape, strict=True):
        shape[axis] = size
    return [np.broadcast_to(inputs[0].reshape(shape), one.params["shape"])]


def _slice(one: Operation, inputs: list[np.ndarray]) -> list[np.ndarray]:
    strides = one.params["strides"] or (1,) * inputs[0].ndim
    limits = zip(one.params["start_indices"], one.params["limit_indices"], strides, strict=True)
    return [inputs[0][tuple(slice(*limit) for limit in limits)]]


def _concatenate(one: Operation, inputs: list[np.ndarray]) -> list[np.ndarray]:
    return [np.concatenate(inputs, axis=one.params["dimension"])]


def _select(one: Operation, inputs: list[np.ndarray]) -> list[np.ndarray]:
    which, cases = inputs[0].astype(int), inputs[1:]
    which = np.broadcast_to(which, cases[0].shape)
    return [np.choose(which, cases) if len(cases) < 32 else np.stack(cases)[which]]


def _gather(one: Operation, inputs: list[np.ndarray]) -> list[np.ndarray]:
    run = gathered(one.params, one.outputs[0].shape)
    numbers, places = inputs
    return [np.maximum(run(numbers.astype(np.int64), places), -1)]


_PLAIN: dict[str, Any] = {
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "copy": _reshape,
    "transpose": _transpose,
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "concatenate": _concatenate,
    "select_n": _select,
    "gather": _gather,
}
