"""What all errors and warnings are: what was found, and how to say it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper, wraps
from string import Formatter
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from lowerbound.errors.wording import WRITTEN

Words = dict[str, Any]
_P = ParamSpec("_P")
_E = TypeVar("_E", bound=BaseException)


class _Found:
    """The arguments of the constructor are fields; they are kept when it is pickled.

    So an error of a worker process arrives as it was raised.
    """

    args: tuple[Any, ...]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        error = super().__new__(cls, *args)
        if inspect.isfunction(cls.__init__):  # else the only argument is the text
            error.__dict__.update(_fields(cls.__init__, error, *args, **kwargs))
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (type(self), self.args, self.__dict__)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def _fields(function: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The arguments of a call by name, without the first."""
    given = inspect.signature(function).bind(*args, **kwargs)
    given.apply_defaults()
    return dict(list(given.arguments.items())[1:])


def _received(cls: type[Any], args: tuple[Any, ...], fields: dict[str, Any]) -> Any:
    error = BaseException.__new__(cls, *args)
    error.__dict__.update(fields)
    return error


class case(Generic[_P]):  # noqa: N801
    """One case of an error: a function of its fields that gives the text, called on the class."""

    def __init__(self, text: Callable[Concatenate[Any, _P], str]) -> None:
        self.text = text
        self.__doc__ = text.__doc__

    def __get__(self, instance: None, owner: type[_E]) -> Callable[_P, _E]:
        @wraps(self.text)
        def error_of(*args: _P.args, **kwargs: _P.kwargs) -> _E:
            error = owner(self.text(owner, *args, **kwargs))
            error.__dict__.update(_fields(self.text, owner, *args, **kwargs))
            return error

        return error_of


class told(case[_P]):  # noqa: N801
    """One case of an error whose text is its docstring: fields in braces, a line a paragraph.

    What it returns are words of the text that are no fields. `{known:quoted}` is written as the
    function `quoted` of `wording` writes it.
    """

    def __init__(self, fields: Callable[Concatenate[Any, _P], Words | None]) -> None:
        def text(owner: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> str:
            given = _fields(fields, owner, *args, **kwargs)
            if fields.__doc__ is None:  # as Python leaves it with -OO
                return f"{fields.__name__}: {given}"
            paragraphs = inspect.cleandoc(fields.__doc__).split("\n\n")
            lines = "\n".join(" ".join(one.splitlines()) for one in paragraphs)
            words = fields(owner, *args, **kwargs) or {}
            return _Written().vformat(lines, (), {**given, **words})

        super().__init__(update_wrapper(text, fields))


class _Written(Formatter):
    """Fields as `str.format` writes them, and as the functions of `wording` do."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        how = WRITTEN.get(format_spec)
        return how(value) if how else super().format_field(value, format_spec)


class LowerboundError(_Found, ValueError):
    """Base class of all errors that the library raises on purpose."""


class ArgumentError(LowerboundError):
    """An argument, be it data of the model or a setting, cannot be used as it is."""


class LowerboundWarning(_Found, UserWarning):
    """Base class of all warnings of the library."""
