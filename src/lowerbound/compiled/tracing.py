"""Traced programs that share no array with the user's own JAX code.

JAX keeps, for every NumPy array that a trace has met, the form it gave it: in double precision
where the library traces, which is of another type than what the user's code expects of the same
array afterwards, and fails there ("expected parameter of size ..."). It forgets that form when
nothing holds it any more. So a program that is kept holds copies of what a function closes over.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Final

import jax
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr

_COPIES: Final[dict[int, tuple[Any, Any]]] = {}  # by the identity of an array: it, and its copy


def traced(function: Callable[..., Any], return_shape: bool = False) -> Callable[..., Any]:
    """As `jax.make_jaxpr`, for a program that is kept.

    >>> import jax.numpy as jnp
    >>> weights = np.array([1.0, 2.0])
    >>> with jax.enable_x64(True):
    ...     closed = traced(lambda x: jnp.dot(weights, x))(jnp.ones(2))
    >>> closed.consts[0], float(jnp.dot(weights, jnp.ones(2)))
    (TypedNdArray([1., 2.], dtype=float64), 3.0)
    """

    def run(*args: Any) -> Any:
        # A function that lives on would keep what JAX has traced of it, with the user's arrays.
        anew = update_wrapper(lambda *args: function(*args), function, updated=())
        closed, shapes = jax.make_jaxpr(anew, return_shape=True)(*args)
        closed = apart(closed)
        return (closed, shapes) if return_shape else closed

    return run


def met_as(array: np.ndarray) -> Any:
    """The type in which a trace that begins now meets an array."""
    (const,) = jax.make_jaxpr(lambda: lax.neg(array))().consts or (array,)
    return const.dtype


def apart(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with copies of the arrays in it; itself where there are none."""
    equations = [_with_own(equation) for equation in closed.jaxpr.eqns]
    inside = any(new is not old for new, old in zip(equations, closed.jaxpr.eqns, strict=True))
    if not inside and not any(isinstance(value, np.ndarray) for value in closed.consts):
        return closed
    jaxpr = closed.jaxpr.replace(eqns=equations) if inside else closed.jaxpr
    return ClosedJaxpr(jaxpr, [_own(value) for value in closed.consts])


def _with_own(equation: Any) -> Any:
    """An equation whose inner programs (of a `jax.jit` within) hold copies."""
    found = {name: _param(value) for name, value in equation.params.items()}
    if all(found[name] is value for name, value in equation.params.items()):
        return equation
    return equation.replace(params=found)


def _param(value: Any) -> Any:
    if isinstance(value, ClosedJaxpr):
        return apart(value)
    if isinstance(value, tuple) and any(isinstance(one, ClosedJaxpr) for one in value):
        found = tuple(_param(one) for one in value)
        return value if all(map(operator.is_, found, value)) else found
    return value


def _own(value: Any) -> Any:
    """A copy of an array, the same for all programs that hold it at one time."""
    if not isinstance(value, np.ndarray):
        return value
    known = value if value.base is None else value.base
    array, copy = (one() for one in _COPIES.get(id(known), (_nothing, _nothing)))
    if array is known and copy is not None and _is_equal(copy, value):
        return copy
    copy = value.copy()
    if isinstance(known, np.ndarray) and known.shape == value.shape:
        number = id(known)
        gone = weakref.ref(known, lambda _: _COPIES.pop(number, None))
        _COPIES[number] = (gone, weakref.ref(copy))
    return copy


def _is_equal(copy: np.ndarray, value: np.ndarray) -> bool:
    """Whether an array is as it was when it was copied: its owner may write into it."""
    return copy.dtype == value.dtype and np.array_equal(copy, value)


def _nothing() -> None:
    return None
