"""Arrays that a program closes over, where JAX knows them in another precision.

JAX keeps one form of a NumPy array for as long as some program holds it. Where that program is the
user's own, in single precision, a run in double precision meets the array in single precision under
the name of double, and fails. Such an array is replaced by a copy, which JAX has not met yet.

A seed that the user has put around the program is left out: its draws would all be the same, and it
keeps keys of a trace that has ended.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np
from numpyro.handlers import seed

from lowerbound.compiled.tracing import met_as
from lowerbound.model.user_lines import is_internal

Value = TypeVar("Value")


def in_any_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """The program, which runs with copies of the arrays that have another type to JAX just then."""
    if getattr(function, "in_any_precision", False):
        return function

    @functools.wraps(function)
    def program(*args: Any, **kwargs: Any) -> Any:
        return _Copying()(function)(*args, **kwargs)

    program.in_any_precision = True  # type: ignore[attr-defined]
    return program


class _Copying:
    """Copies of what holds such an array; everything else stays the same object."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}  # by identity: an object, and what it became

    def __call__(self, value: Value) -> Value:
        """The value, with other arrays where it has to be."""
        if id(value) not in self._known:
            self._known[id(value)] = (value, value)  # while it is looked at: it may hold itself
            self._known[id(value)] = (value, self._new(value))
        found: Value = self._known[id(value)][1]
        return found

    def _new(self, value: Any) -> Any:
        if isinstance(value, seed) and value.fn is not None:
            return self(value.fn)
        if isinstance(value, np.ndarray):
            return value if _is_fine(value) else value.copy()
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            owner, function = self(value.__self__), self(value.__func__)
            same = owner is value.__self__ and function is value.__func__
            return value if same else types.MethodType(function, owner)
        if isinstance(value, functools.partial):
            function, args = self(value.func), self(value.args)
            keywords = self(value.keywords)
            same = _all_same((function, args, keywords), (value.func, value.args, value.keywords))
            return value if same else functools.partial(function, *args, **keywords)
        if type(value) in (list, tuple):
            items = [self(one) for one in value]
            return (
                value
                if _all_same(items, value)
                else tuple(items)
                if type(value) is tuple
                else items
            )
        if type(value) is dict:
            held = {name: self(one) for name, one in value.items()}
            return value if _all_same(held.values(), value.values()) else held
        if callable(value) and isinstance(getattr(value, "__dict__", None), dict):
            return self._object(value)
        return value

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        cells = [cell.cell_contents if _is_filled(cell) else cell for cell in _cells(function)]
        inside = [one if isinstance(one, types.CellType) else self(one) for one in cells]
        named = {} if is_internal(function.__code__.co_filename) else self._globals(function)
        defaults, keywords = self(function.__defaults__), self(function.__kwdefaults__)
        same = _all_same(inside, cells) and not named
        if same and defaults is function.__defaults__ and keywords is function.__kwdefaults__:
            return function
        new = types.FunctionType(
            function.__code__,
            {**function.__globals__, **named},
            function.__name__,
            defaults,
            tuple(
                old if one is held else types.CellType(one)
                for old, held, one in zip(_cells(function), cells, inside, strict=True)
            ),
        )
        new.__kwdefaults__ = keywords
        return functools.update_wrapper(new, function)  # type: ignore[return-value]

    def _globals(self, function: types.FunctionType) -> dict[str, Any]:
        """What the names of a function's module become, of those that it mentions."""
        found = {}
        for name in dict.fromkeys(_names(function.__code__)):
            value = function.__globals__.get(name)
            foreign = getattr(value, "__globals__", function.__globals__)
            if foreign is function.__globals__ and not isinstance(value, type):
                new = self(value)
                if new is not value:
                    found[name] = new
        return found

    def _object(self, value: Any) -> Any:
        held = {name: self(one) for name, one in vars(value).items()}
        if _all_same(held.values(), vars(value).values()):
            return value
        new = copy.copy(value)
        vars(new).update(held)
        return new


def _is_fine(array: np.ndarray) -> bool:
    """Whether a trace that begins now meets the array in the type that JAX gives such arrays."""
    if array.dtype.kind not in "fiuc" or array.dtype.itemsize < 8:
        return True
    return bool(met_as(array) == jax.dtypes.canonicalize_dtype(array.dtype))


def _cells(function: types.FunctionType) -> tuple[types.CellType, ...]:
    return function.__closure__ or ()


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _names(code: types.CodeType) -> Iterator[str]:
    """The names that a function and those defined in it look up."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _names(const)


def _all_same(new: Any, old: Any) -> bool:
    return all(one is other for one, other in zip(new, old, strict=True))
