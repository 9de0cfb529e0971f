"""What all errors and warnings are: records of what was found, which say themselves in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

_Class = TypeVar("_Class", bound=type)


@dataclass_transform(eq_default=False)
def record(cls: _Class) -> _Class:
    """An error whose arguments are its fields; `__str__` builds the text from them."""
    return dataclass(eq=False)(cls)  # type: ignore[return-value]


class _Sent:
    """Pickled by its fields, so that an error of a worker process arrives as it was raised."""

    args: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (type(self), self.args, self.__dict__)


def _received(cls: type[Any], args: tuple[Any, ...], fields: dict[str, Any]) -> Any:
    error = cls.__new__(cls, *args)
    error.__dict__.update(fields)
    return error


class LowerboundError(_Sent, ValueError):
    """Base class of all errors that the library raises on purpose."""


class ArgumentError(LowerboundError):
    """An argument, be it data of the model or a setting, cannot be used as it is."""


class LowerboundWarning(_Sent, UserWarning):
    """Base class of all warnings of the library."""
