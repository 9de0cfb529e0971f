"""What a rewritten program is called, and which arguments it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def takes_first(
    name: str, program: Callable[..., Any], function: Callable[..., Any]
) -> Callable[..., Any]:
    """The program under the name of `function`, whose arguments it takes after one of its own."""
    program.__name__ = getattr(function, "__name__", type(function).__name__)
    first = inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY)
    try:
        own = inspect.signature(function)
        extended = own.replace(parameters=[first, *own.parameters.values()])
    except (TypeError, ValueError):  # it has no signature, or an argument of that name itself
        return program  # arguments are named by position
    program.__signature__ = extended  # type: ignore[attr-defined]
    return program
