"""What NumPy calls the operations of a traced program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as sp

from lowerbound.compiled.host.gathers import gathered, put, scattered

Call = Callable[..., Any]
NUMBERS = ("f", "i", "u", "b")  # the kinds that are computed with


def _divided(a: Any, b: Any) -> Any:
    if np.result_type(a, b).kind in "iu":  # towards zero
        return np.trunc(np.divide(a, b)).astype(np.result_type(a, b))
    return np.divide(a, b)


def _fraction_removed(a: Any, b: Any) -> Any:
    return np.fmod(a, b)


def _ranked(compare: Call) -> Call:
    """A comparison in which any two numbers have an order: -0 before 0, what is no number last."""

    def ranks(x: Any) -> Any:
        x = np.asarray(x)
        if x.dtype.kind != "f":
            return x
        bits = x.view(np.dtype(f"i{x.dtype.itemsize}"))
        return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)

    return lambda a, b: compare(ranks(a), ranks(b))


def _horner(x: np.ndarray, *coefficients: np.ndarray) -> np.ndarray:
    """A polynomial whose constant comes first."""
    total = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


# Arrays in, one out, element by element. The names are JAX's.
PLAIN: dict[str, Call] = {
    "neg": np.negative, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "abs": np.abs,
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "expm1": np.expm1, "log1p": np.log1p,
    "log2": np.log2, "one_minus_square": lambda x: (1.0 - x) * (1.0 + x), "polynomial": _horner,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1.0 / np.sqrt(x), "cbrt": np.cbrt, "square": np.square,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "logistic": sp.expit, "erf": sp.erf, "erfc": sp.erfc,
    "erf_inv": sp.erfinv, "lgamma": sp.gammaln, "digamma": sp.digamma,
    "igamma": sp.gammainc, "igammac": sp.gammaincc, "bessel_i0e": sp.i0e, "bessel_i1e": sp.i1e,
    "is_finite": np.isfinite, "not": np.invert, "stop_gradient": np.asarray, "copy": np.asarray,
    "copy_p": np.asarray,
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divided,
    "rem": _fraction_removed, "max": np.maximum, "min": np.minimum, "pow": np.power,
    "atan2": np.arctan2, "nextafter": np.nextafter, "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lt_to": _ranked(np.less), "le_to": _ranked(np.less_equal),
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "regularized_incomplete_beta": sp.betainc,
}  # fmt: skip
REDUCED: dict[str, Call] = {
    "reduce_sum": np.add.reduce, "reduce_max": np.maximum.reduce, "reduce_min": np.minimum.reduce,
    "reduce_prod": np.multiply.reduce, "reduce_and": np.logical_and.reduce,
    "reduce_or": np.logical_or.reduce,
}  # fmt: skip
SUMMED: dict[str, Call] = {
    "cumsum": np.add.accumulate, "cumprod": np.multiply.accumulate,
    "cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate,
    "cumlogsumexp": np.logaddexp.accumulate,
}  # fmt: skip


def kind(aval: Any) -> str:
    """The kind of numbers of an array, as NumPy calls it."""
    return str(getattr(getattr(aval, "dtype", None), "kind", "V"))


def operation(equation: Any) -> Call | None:
    """The call of NumPy that an operation is; None where there is none."""
    name, params = equation.primitive.name, equation.params
    if any(kind(variable.aval) not in NUMBERS for variable in equation.outvars):
        return None
    if name in PLAIN:
        return PLAIN[name]
    if name in REDUCED:
        reduce, axes = REDUCED[name], tuple(params["axes"])
        return lambda x: reduce(x, axis=axes)
    if name in SUMMED:
        return _accumulated(SUMMED[name], params["axis"], params["reverse"])
    made = MADE.get(name)
    try:
        return None if made is None else made(equation, params)
    except KeyError:  # another version of JAX has other names for what an operation is given
        return None


def _accumulated(accumulate: Call, axis: int, reverse: bool) -> Call:
    if not reverse:
        return lambda x: accumulate(x, axis=axis)
    return lambda x: np.flip(accumulate(np.flip(x, axis), axis=axis), axis)


def _power(equation: Any, params: Any) -> Call:
    y = params["y"]
    if y == 2:
        return np.square
    if y == -1:
        return lambda x: 1.0 / x
    return lambda x: np.power(x, float(y)) if y < 0 else np.power(x, y)


def _broadcast(equation: Any, params: Any) -> Call:
    shape, dimensions = tuple(params["shape"]), params["broadcast_dimensions"]

    def spread(x: Any) -> Any:
        sizes = [1] * len(shape)
        for size, dimension in zip(np.shape(x), dimensions, strict=True):
            sizes[dimension] = size
        return np.broadcast_to(np.reshape(x, sizes), shape)

    return spread


def _reshape(equation: Any, params: Any) -> Call | None:
    shape = tuple(equation.outvars[0].aval.shape)
    return None if params.get("dimensions") is not None else lambda x: np.reshape(x, shape)


def _squeeze(equation: Any, params: Any) -> Call:
    shape = tuple(equation.outvars[0].aval.shape)
    return lambda x: np.reshape(x, shape)


def _transpose(equation: Any, params: Any) -> Call:
    order = tuple(params["permutation"])
    return lambda x: np.transpose(x, order)


def _slice(equation: Any, params: Any) -> Call:
    ends = params["start_indices"], params["limit_indices"]
    strides = params["strides"] or (1,) * len(ends[0])
    chosen = tuple(slice(*one) for one in zip(*ends, strides, strict=True))
    return lambda x: x[chosen]


def _concatenate(equation: Any, params: Any) -> Call:
    axis = params["dimension"]
    return lambda *arrays: np.concatenate(arrays, axis=axis)


def _stack(equation: Any, params: Any) -> Call:
    axis = params["axis"]
    return lambda *arrays: np.stack(arrays, axis=axis)


def _unstack(equation: Any, params: Any) -> Call:
    axis = params["axis"]
    return lambda x: [np.take(x, n, axis=axis) for n in range(x.shape[axis])]


def _split(equation: Any, params: Any) -> Call:
    ends, axis = np.cumsum(params["sizes"])[:-1], params["axis"]
    return lambda x: np.split(x, ends, axis=axis)


def _pad(equation: Any, params: Any) -> Call:
    """An array within a larger one; padding below zero cuts it."""
    config, shape = params["padding_config"], equation.invars[0].aval.shape
    inner, outer, own = [], [], []
    for (low, high, step), size in zip(config, shape, strict=True):
        length = size + step * max(size - 1, 0)
        outer.append(max(low, 0) + length + max(high, 0))
        own.append(slice(max(low, 0), max(low, 0) + length, step + 1))
        inner.append(slice(max(-low, 0), outer[-1] - max(-high, 0)))

    def padded(x: Any, value: Any) -> Any:
        whole = np.full(outer, value, np.asarray(x).dtype)
        whole[tuple(own)] = x
        return whole[tuple(inner)]

    return padded


def _reversed(equation: Any, params: Any) -> Call:
    axes = tuple(params["dimensions"])
    return lambda x: np.flip(x, axes)


def _chosen(equation: Any, params: Any) -> Call:
    def choose(which: Any, *cases: Any) -> Any:
        if len(cases) == 2 and np.asarray(which).dtype == bool:
            return np.where(which, cases[1], cases[0])
        return np.choose(which, cases)

    return choose


def _counted(equation: Any, params: Any) -> Call:
    shape, axis = tuple(params["shape"]), params["dimension"]
    sizes = [shape[axis] if n == axis else 1 for n in range(len(shape))]
    numbers = np.arange(shape[axis], dtype=params["dtype"]).reshape(sizes)
    return lambda: np.broadcast_to(numbers, shape)


def _empty(equation: Any, params: Any) -> Call:
    """What a branch that is not taken would have handed on."""
    aval = equation.outvars[0].aval
    return lambda *shape: np.zeros(aval.shape, aval.dtype)


def _converted(equation: Any, params: Any) -> Call:
    dtype = np.dtype(params["new_dtype"])
    return lambda x: np.asarray(x).astype(dtype, copy=False)


def _largest(find: Call) -> Callable[[Any, Any], Call]:
    def made(equation: Any, params: Any) -> Call:
        (axis,), dtype = params["axes"], params["index_dtype"]
        return lambda x: find(x, axis=axis).astype(dtype)

    return made


def _product(equation: Any, params: Any) -> Call:
    """The product of arrays over some axes, as one of matrices."""
    (left, right), (left_batch, right_batch) = params["dimension_numbers"]
    a, b = (v.aval for v in equation.invars)
    free = [
        [n for n in range(v.ndim) if n not in (*over, *batch)]
        for v, over, batch in ((a, left, left_batch), (b, right, right_batch))
    ]
    orders = (*left_batch, *free[0], *left), (*right_batch, *right, *free[1])
    batch = tuple(a.shape[n] for n in left_batch)
    outer = [tuple(v.shape[n] for n in axes) for v, axes in zip((a, b), free, strict=True)]
    within = int(np.prod([a.shape[n] for n in left], dtype=int))
    shapes = (*batch, int(np.prod(outer[0], dtype=int)), within), (
        *batch, within, int(np.prod(outer[1], dtype=int)),
    )  # fmt: skip
    shape, dtype = (*batch, *outer[0], *outer[1]), equation.outvars[0].aval.dtype

    def multiplied(x: Any, y: Any) -> Any:
        first = np.transpose(x, orders[0]).reshape(shapes[0])
        second = np.transpose(y, orders[1]).reshape(shapes[1])
        return np.matmul(first, second).reshape(shape).astype(dtype, copy=False)

    return multiplied


def _gather(equation: Any, params: Any) -> Call:
    return gathered(params, tuple(equation.outvars[0].aval.shape))


def _scatter_add(equation: Any, params: Any) -> Call:
    return scattered(params, np.add.at)


def _scatter(equation: Any, params: Any) -> Call:
    return scattered(params, put)


def _cholesky(equation: Any, params: Any) -> Call:
    def factored(x: Any) -> Any:
        try:
            return np.linalg.cholesky(x)
        except np.linalg.LinAlgError:  # of each by itself: those that have none are no numbers
            rows = x.reshape(-1, *x.shape[-2:])
            return np.stack([_root(row) for row in rows]).reshape(x.shape)

    return factored


def _root(matrix: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return np.full_like(matrix, np.nan)


def _triangular(equation: Any, params: Any) -> Call | None:
    if params["conjugate_a"]:
        return None
    left, lower, turned = params["left_side"], params["lower"], params["transpose_a"]
    unit = params["unit_diagonal"]

    def solved(a: Any, b: Any) -> Any:
        kept = np.tril(a) if lower else np.triu(a)
        if unit:
            rows = np.arange(a.shape[-1])
            kept[..., rows, rows] = 1.0
        kept = np.swapaxes(kept, -1, -2) if turned else kept
        try:
            if left:
                return np.linalg.solve(kept, b)
            return np.swapaxes(
                np.linalg.solve(np.swapaxes(kept, -1, -2), np.swapaxes(b, -1, -2)), -1, -2
            )
        except np.linalg.LinAlgError:
            return np.full_like(b, np.nan)

    return solved


def _sliced_at(equation: Any, params: Any) -> Call:
    sizes = tuple(params["slice_sizes"])

    def sliced(x: Any, *starts: Any) -> Any:
        places = [
            min(max(int(start), 0), length - size)
            for start, length, size in zip(starts, x.shape, sizes, strict=True)
        ]
        return x[tuple(slice(p, p + size) for p, size in zip(places, sizes, strict=True))]

    return sliced


MADE: dict[str, Callable[[Any, Any], Call | None]] = {
    "integer_pow": _power, "broadcast_in_dim": _broadcast, "reshape": _reshape,
    "squeeze": _squeeze, "transpose": _transpose, "slice": _slice, "concatenate": _concatenate,
    "split": _split, "stack": _stack, "unstack": _unstack, "pad": _pad, "rev": _reversed,
    "select_n": _chosen, "iota": _counted, "convert_element_type": _converted,
    "argmax": _largest(np.argmax),
    "argmin": _largest(np.argmin), "dot_general": _product, "gather": _gather,
    "scatter-add": _scatter_add, "scatter": _scatter,
    "cholesky": _cholesky, "triangular_solve": _triangular,
    "dynamic_slice": _sliced_at, "empty": _empty, "empty2": _empty,
}  # fmt: skip
