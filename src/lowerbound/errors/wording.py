"""How names, counts, places and advice are written in a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final


def quoted(names: Iterable[str]) -> str:
    """'a', 'b'; "none" where there are none."""
    return ", ".join(f"'{name}'" for name in names) or "none"


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


def rounded(number: int) -> str:
    """A count, as a power of ten from a million on."""
    return str(number) if number < 10**6 else f"about 10^{math.log10(number):.0f}"


def short(value: Any) -> str:
    """What a value prints as, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def first_line(error: Exception) -> str:
    """What another library said, cut to its first line."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def prior_or_fixed(names: Sequence[str], subject: str = "it") -> str:
    """What to do with parameters where a latent variable or a number is needed."""
    values = ", ".join(f"'{name}': value" for name in names)
    it = "it" if len(names) == 1 else "each"
    return (
        f"Give {subject if len(names) == 1 else it} a prior with numpyro.sample, or fix {it}: "
        f"numpyro.handlers.substitute(model, data={{{values}}})."
    )


# What may follow a field in the text of an error: {known:quoted}.
WRITTEN: Final[Mapping[str, Callable[[Any], str]]] = {
    "joined": ", ".join,
    "quoted": quoted,
    "listed": listed,
    "short": short,
    "bare": bare,
}
