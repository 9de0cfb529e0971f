"""Errors of files that the library writes and reads back, and of packages that reading needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lowerbound.errors.roots import ArgumentError, LowerboundError, LowerboundWarning, told


class StorageError(LowerboundError):
    """A file cannot be written, or is damaged, or belongs to another model."""


class NotPlainError(LowerboundError, TypeError):
    """A value is neither an array nor JSON."""


class UnkeptError(ArgumentError):
    """A setting of a run that a checkpoint cannot hold."""

    @told
    def devices(cls, given: Any) -> None:
        """computing got devices={given!r}, which a checkpoint cannot hold.

        Expected a number of devices or "all", when checkpoint=... is given.
        """

    @told
    def setting(cls, method: str, name: str, value: Any) -> None:
        """{method} got {name}={value!r}, which a checkpoint cannot hold.

        Expected settings that are numbers, texts, arrays, or lists and dicts of them, when
        checkpoint=... is given.
        """


class ResumeWarning(LowerboundWarning):
    """A run goes on, but not bit for bit as it would have."""


class MissingPackageError(LowerboundError, ImportError):
    """A package that only some tasks need is not installed; `extra` installs it."""

    def __init__(self, needs: str, extra: str) -> None:
        super().__init__(f'{needs}.\nInstall it: pip install "lowerbound[{extra}]".')


@contextmanager
def needed(needs: str, extra: str) -> Iterator[None]:
    """Imports of a package that only some tasks need."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(needs, extra) from error
