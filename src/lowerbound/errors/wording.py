"""How names, counts and places are written in a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def quoted(names: Sequence[str]) -> str:
    """'a', 'b'; "none" where there are none."""
    return ", ".join(f"'{name}'" for name in names) if names else "none"


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number and its noun."""
    return f"{count} {one if count == 1 or many is None else many}"


def bare(index: tuple[int, ...]) -> str:
    """An index without its brackets where it is one number."""
    return str(index[0]) if len(index) == 1 else str(tuple(index))


def entry_of(name: str, index: tuple[int, ...]) -> str:
    """The expression that selects an entry: x[2, 0]."""
    return f"{name}[{', '.join(str(i) for i in index)}]" if index else name


def listed(words: Sequence[str]) -> str:
    """The first five of some words."""
    shown = ", ".join(short(str(word)) for word in words[:5])
    return f"{shown}, ..." if len(words) > 5 else shown


def short(value: Any) -> str:
    """What a value prints as, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
