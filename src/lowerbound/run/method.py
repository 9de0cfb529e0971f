"""Methods are values: settings that are checked, printed and compared, and a plan for a problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, ClassVar

import numpy as np

from lowerbound.bound.divergences import KL, Divergence
from lowerbound.errors import SettingError
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem

Rule = tuple[str, bool, str]  # a setting, whether it is valid, and what is expected
CHECKPOINTS, DEVICES, STREAMS, SINGLE = "checkpoints", "devices", "streams", "float32"


class Settings:
    """Settings that are checked, printed and compared. Subclasses are frozen dataclasses."""

    @property
    def name(self) -> str:
        """The name of the kind."""
        return type(self).__name__

    def check(self, *rules: Rule) -> None:
        """Raise for the first setting that is not valid."""
        for name, valid, expected in rules:
            if not valid:
                raise SettingError(self.name, name, getattr(self, name), expected)

    def settings(self) -> dict[str, Any]:
        """The settings by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def __repr__(self) -> str:
        """The settings that are not the default ones, data in short."""
        return self._text("")

    @property
    def code(self) -> str:
        """The same as a user writes it."""
        return self._text("lb.")

    def _text(self, prefix: str) -> str:
        parts = []
        for one in fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            needed = one.default is MISSING and one.default_factory is MISSING
            text = value._text(prefix) if isinstance(value, Settings) else _short(one.name, value)
            if needed:
                parts.append(text)
            elif not is_same(value, _default(one)):
                parts.append(f"{one.name}={text}")
        return f"{prefix}{self.name}({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and is_same(self.settings(), other.settings())

    def __hash__(self) -> int:
        return hash((type(self), *self.settings()))


class Method(Settings, ABC):
    """A way to fit, of at most seven settings.

    can: what the method has beyond the ordinary: "checkpoints", many "devices", data that are
    "streams", "float32". Asking for what it has not is an error before any work.
    """

    can: ClassVar[frozenset[str]] = frozenset()
    limited: ClassVar[bool] = False  # whether the ladder bounds its time: it ends nowhere by itself
    divergence: ClassVar[Divergence] = KL()

    @abstractmethod
    def plan(self, problem: Problem) -> Planned[Any]:
        """The plan for a problem; raises what is wrong with the call, and fits nothing."""

    @property
    def abilities(self) -> frozenset[str]:
        """What it can do; of a method around another one, what that can."""
        return self.can

    def abilities_for(self, problem: Problem) -> frozenset[str]:
        """What of that it can do for a problem, which may have to be traced to know."""
        return self.abilities


def is_count(value: Any) -> bool:
    """Whether a setting is an integer of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def is_size(value: Any) -> bool:
    """Whether a setting is a number of at least 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


COUNT = "an integer of at least 1"


def one_of(name: str, value: Any, choices: Iterable[str]) -> Rule:
    """The rule of a setting that is one of a few words."""
    return name, value in choices, f"one of {', '.join(map(repr, choices))}"


def _default(one: Field[Any]) -> Any:
    return one.default if one.default_factory is MISSING else one.default_factory()


def _short(name: str, value: Any) -> str:
    if name == "init" and isinstance(value, Mapping):
        return f"<values of {', '.join(value)}>"
    if name == "monitor" and not isinstance(value, int | str | None):
        return "<held-out data>"
    return repr(value)


def is_same(one: Any, other: Any) -> bool:
    """Whether two settings are equal, arrays included."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if hasattr(one, "shape") or hasattr(other, "shape"):
        return np.shape(one) == np.shape(other) and bool(np.array_equal(one, other))
    return type(one) is type(other) and bool(one == other)
