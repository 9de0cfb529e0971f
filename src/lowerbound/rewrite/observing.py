"""A program whose observations are an argument of it: the same model for other data."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from numpyro.primitives import Messenger

OBSERVATIONS = "observations"


class Observing(Messenger):  # type: ignore[misc]
    """Gives observed sites other values than the program does."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__()
        self.values = values

    def process_message(self, msg: dict[str, Any]) -> None:
        """Replace what the site observes."""
        if msg["type"] == "sample" and msg["is_observed"] and msg["name"] in self.values:
            msg["value"] = self.values[msg["name"]]


def observing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The program with one more argument, the first: observed site -> its values.

    What else a program does with the data that it is given stays as it is.
    """

    @functools.wraps(function)
    def program(observations: Mapping[str, Any], /, *args: Any, **kwargs: Any) -> Any:
        with Observing(observations):
            return function(*args, **kwargs)

    first = inspect.Parameter(OBSERVATIONS, inspect.Parameter.POSITIONAL_ONLY)
    try:
        others = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return program
    if all(parameter.name != OBSERVATIONS for parameter in others):
        program.__signature__ = inspect.Signature([first, *others])  # type: ignore[attr-defined]
    return program
