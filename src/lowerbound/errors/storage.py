"""Errors of files that the library writes and reads back."""

from __future__ import annotations

from lowerbound.errors.roots import LowerboundError


class StorageError(LowerboundError):
    """A file cannot be written, or is damaged, or belongs to another model."""


class NotPlainError(TypeError):
    """A value is neither an array nor JSON."""


class ResumeWarning(UserWarning):
    """A run goes on, but not bit for bit as it would have."""
