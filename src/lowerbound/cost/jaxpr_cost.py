"""What one run of a program computes and holds at once, read off its jaxpr."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from jax.extend.core import Literal, jaxprs_in_params

UNKNOWN_LENGTH: Final = 10  # of a loop that ends by a condition, such as a solver's

# Operations whose result XLA computes where it is used, unless several others use it.
_NAMES: Final = """
abs acos acosh add add_any and asin asinh atan atan2 atanh broadcast_in_dim cbrt ceil clamp
convert_element_type copy copy_p cos cosh digamma div eq erf erf_inv erfc exp exp2 expand_dims
expm1 floor ge gt imag integer_pow iota is_finite le lgamma log log1p logistic lt max min mul ne
neg nextafter not or pow real reduce_and reduce_max reduce_min reduce_or reduce_precision
reduce_prod reduce_sum rem reshape rev round rsqrt select_n sign sin sinh slice sqrt square
squeeze stop_gradient sub tan tanh transpose xor
"""
_FUSED: Final = frozenset(_NAMES.split())
_CHEAP: Final = frozenset({"broadcast_in_dim", "iota", "reshape", "expand_dims", "squeeze"})
_CALLS: Final = frozenset({"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call",
                           "remat", "checkpoint", "custom_vjp_call_jaxpr"})  # fmt: skip


def numbers_computed(jaxpr: Any) -> int:
    """How many numbers one run of a program computes, loops of known length included."""
    return _summed(jaxpr, lambda equation: sum(math.prod(v.aval.shape) for v in equation.outvars))


def products_computed(jaxpr: Any) -> int:
    """How many products of two numbers are in the linear algebra of one run of a program."""
    return _summed(jaxpr, _products)


def _summed(jaxpr: Any, of: Callable[[Any], int]) -> int:
    """The sum over all operations that one run carries out."""
    total = 0
    for equation in jaxpr.eqns:
        inner = sum(_summed(part, of) for part in jaxprs_in_params(equation.params))
        if inner:
            unknown = UNKNOWN_LENGTH if equation.primitive.name == "while" else 1
            total += inner * int(equation.params.get("length", unknown) or 1)
        else:
            total += of(equation)
    return total


def _products(equation: Any) -> int:
    """Those of one operation: each number of the result is a sum over an axis, or over half."""
    shape: tuple[int, ...] = (
        getattr(equation.invars[0].aval, "shape", ()) if equation.invars else ()
    )
    computed = sum(math.prod(v.aval.shape) for v in equation.outvars)
    name = equation.primitive.name
    if name == "dot_general":
        (axes, _), _ = equation.params["dimension_numbers"]
        return int(computed * math.prod(shape[axis] for axis in axes))
    return int(computed * shape[-1]) // 2 if name in _FACTORS else 0


_FACTORS: Final = frozenset({"cholesky", "triangular_solve", "lu", "eigh", "svd"})


def peak_bytes(jaxpr: Any) -> int:
    """The bytes of intermediate and final values that one run of a program holds at once.

    Values live from their equation to the last that reads them, in the order of the program; those
    that XLA fuses into the one operation that reads them are never made.
    """
    steps: list[_Step] = []
    results = _flattened(jaxpr, {}, steps)
    read: dict[_Value, list[int]] = {}
    for number, step in enumerate(steps):
        for value in step.inputs:
            read.setdefault(value, []).append(number)
    for value in results:
        read.setdefault(value, []).append(len(steps))
    held = peak = 0
    freed = [0] * (len(steps) + 1)
    for number, step in enumerate(steps):
        for value in step.outputs:
            readers = read.get(value, [])
            if readers and not _is_fused(step, readers, steps):
                held += value.bytes
                freed[readers[-1]] += value.bytes
        peak = max(peak, held + step.inside)
        held -= freed[number]
    return peak


def _is_fused(step: _Step, readers: list[int], steps: list[_Step]) -> bool:
    """Whether a result of a step is computed where it is read, and nowhere kept."""
    if step.name not in _FUSED or (len(readers) > 1 and step.name not in _CHEAP):
        return False
    return all(number < len(steps) and steps[number].name in _FUSED for number in readers)


@dataclass(frozen=True, eq=False)
class _Value:
    """A value of one run: a program that is called twice makes two of each of its own."""

    bytes: int


@dataclass(frozen=True, eq=False)
class _Step:
    """An operation with calls inlined; `inside` are the bytes that a loop or a branch holds."""

    name: str
    inputs: list[_Value]
    outputs: list[_Value]
    inside: int


def _flattened(jaxpr: Any, known: dict[Any, _Value], steps: list[_Step]) -> list[_Value]:
    """Append the operations of a program whose inputs are `known`; its results, less constants."""

    def of(atoms: Any) -> list[_Value]:
        return [known[a] for a in atoms if not isinstance(a, Literal) and a in known]

    for equation in jaxpr.eqns:
        inner = list(jaxprs_in_params(equation.params))
        called = inner[0] if inner and equation.primitive.name in _CALLS else None
        if called is not None and len(called.invars) == len(equation.invars):
            pairs = zip(called.invars, equation.invars, strict=True)
            own = {ours: known[a] for ours, a in pairs if not isinstance(a, Literal) and a in known}
            _flattened(called, own, steps)
            for ours, theirs in zip(equation.outvars, called.outvars, strict=True):
                if not isinstance(theirs, Literal) and theirs in own:
                    known[ours] = own[theirs]
            continue
        outputs = [_Value(_bytes(v.aval)) for v in equation.outvars]
        inside = max((peak_bytes(part) for part in inner), default=0)
        steps.append(_Step(equation.primitive.name, of(equation.invars), outputs, inside))
        known.update(zip(equation.outvars, outputs, strict=True))
    return of(jaxpr.outvars)


def _bytes(aval: Any) -> int:
    dtype = getattr(aval, "dtype", None)
    width = dtype.itemsize if isinstance(dtype, np.dtype) else 8  # keys of random numbers
    return math.prod(getattr(aval, "shape", ())) * int(width)
