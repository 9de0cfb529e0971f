"""What all errors and warnings are: what was found, and how to say it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Self


class _Found:
    """The arguments of the constructor are fields; they are kept when it is pickled.

    So an error of a worker process arrives as it was raised.
    """

    args: tuple[Any, ...]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        error = super().__new__(cls, *args)
        if inspect.isfunction(cls.__init__):  # else the only argument is the text
            given = inspect.signature(cls).bind(*args, **kwargs)
            given.apply_defaults()
            error.__dict__.update(given.arguments)
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (type(self), self.args, self.__dict__)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def _received(cls: type[Any], args: tuple[Any, ...], fields: dict[str, Any]) -> Any:
    error = BaseException.__new__(cls, *args)
    error.__dict__.update(fields)
    return error


class LowerboundError(_Found, ValueError):
    """Base class of all errors that the library raises on purpose."""


class ArgumentError(LowerboundError):
    """An argument, be it data of the model or a setting, cannot be used as it is."""


class LowerboundWarning(_Found, UserWarning):
    """Base class of all warnings of the library."""
