"""Constant equations evaluated in NumPy while deriving, so that index arithmetic stays visible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

NDArray = Any


def _cast(array: NDArray, *, aval: Any, **_: Any) -> NDArray:
    return np.asarray(array).astype(aval.dtype)


def _broadcast_in_dim(
    array: NDArray, *, aval: Any, broadcast_dimensions: tuple[int, ...], **_: Any
) -> NDArray:
    shape = [1] * len(aval.shape)
    for size, d in zip(np.shape(array), broadcast_dimensions, strict=True):
        shape[d] = size
    return np.broadcast_to(np.reshape(array, shape), aval.shape)


def _iota(*, aval: Any, dimension: int, **_: Any) -> NDArray:
    shape = [-1 if d == dimension else 1 for d in range(len(aval.shape))]
    return np.broadcast_to(np.arange(aval.shape[dimension]).reshape(shape), aval.shape)


def _slice(
    array: NDArray, *, start_indices: Any, limit_indices: Any, strides: Any, **_: Any
) -> Any:
    steps = strides or (1,) * len(start_indices)
    return array[tuple(map(slice, start_indices, limit_indices, steps))]


def _select_n(which: NDArray, *cases: NDArray, **_: Any) -> NDArray:
    return np.choose(which.astype(int), np.broadcast_arrays(*cases))


def _ufunc(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*arrays: NDArray, aval: Any, **_: Any) -> NDArray:
        with np.errstate(all="ignore"):
            return function(*arrays)

    return apply


def _divide(a: NDArray, b: NDArray, *, aval: Any, **_: Any) -> NDArray:
    if np.issubdtype(aval.dtype, np.integer):
        return np.trunc(np.true_divide(a, b))
    with np.errstate(all="ignore"):
        return np.divide(a, b)


NUMPY: dict[str, Callable[..., Any]] = {
    "add": _ufunc(np.add),
    "add_any": _ufunc(np.add),
    "sub": _ufunc(np.subtract),
    "mul": _ufunc(np.multiply),
    "div": _divide,
    "rem": _ufunc(np.fmod),
    "neg": _ufunc(np.negative),
    "sign": _ufunc(np.sign),
    "abs": _ufunc(np.abs),
    "max": _ufunc(np.maximum),
    "min": _ufunc(np.minimum),
    "lt": _ufunc(np.less),
    "le": _ufunc(np.less_equal),
    "gt": _ufunc(np.greater),
    "ge": _ufunc(np.greater_equal),
    "eq": _ufunc(np.equal),
    "ne": _ufunc(np.not_equal),
    "and": _ufunc(np.bitwise_and),
    "or": _ufunc(np.bitwise_or),
    "not": _ufunc(np.bitwise_not),
    "sqrt": _ufunc(np.sqrt),
    "rsqrt": _ufunc(lambda a: 1.0 / np.sqrt(a)),
    "square": _ufunc(np.square),
    "exp": _ufunc(np.exp),
    "log": _ufunc(np.log),
    "log1p": _ufunc(np.log1p),
    "log2": _ufunc(np.log2),
    "expm1": _ufunc(np.expm1),
    "floor": _ufunc(np.floor),
    "ceil": _ufunc(np.ceil),
    "is_finite": _ufunc(np.isfinite),
    "pow": _ufunc(np.power),
    "copy": _ufunc(np.asarray),
    "clamp": lambda low, a, high, **_: np.minimum(np.maximum(a, low), high),
    "integer_pow": lambda a, *, y, **_: np.asarray(a) ** float(y),
    "select_n": _select_n,
    "convert_element_type": _cast,
    "broadcast_in_dim": _broadcast_in_dim,
    "iota": _iota,
    # Branches for other platforms compute the same; None stands for the default.
    "platform_index": lambda *, platforms, **_: platforms.index(None),
    "reshape": lambda a, *, aval, **_: np.reshape(a, aval.shape),
    "squeeze": lambda a, *, aval, **_: np.reshape(a, aval.shape),
    "transpose": lambda a, *, permutation, **_: np.transpose(a, permutation),
    "rev": lambda a, *, dimensions, **_: np.flip(a, dimensions),
    "concatenate": lambda *a, dimension, **_: np.concatenate(a, dimension),
    "slice": _slice,
    "reduce_sum": lambda a, *, axes, **_: np.sum(a, axis=tuple(axes)),
    "reduce_max": lambda a, *, axes, **_: np.max(a, axis=tuple(axes)),
    "reduce_and": lambda a, *, axes, **_: np.all(a, axis=tuple(axes)),
    "reduce_or": lambda a, *, axes, **_: np.any(a, axis=tuple(axes)),
}

# Equations on traced integers that recur whenever an array is indexed; shared by content.
SHARED = {
    "lt", "ge", "add", "sub", "mul", "select_n", "broadcast_in_dim", "convert_element_type",
    "reshape", "squeeze", "concatenate", "slice", "transpose", "clamp", "max", "min",
}  # fmt: skip
