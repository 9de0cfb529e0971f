"""The classes to catch: of all errors, and of those about an argument."""

from __future__ import annotations


class LowerboundError(ValueError):
    """Base class of all errors that the library raises on purpose."""


class ArgumentError(LowerboundError):
    """An argument, be it data of the model or a setting, cannot be used as it is."""
