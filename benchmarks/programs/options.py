"""A script's own options: as they are by default, loops shortened, and which variants there are."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from typing import Any

LOOPS = re.compile(r"epoch|step|iter|warmup")  # options that only say how long to go on
FEW = 10
SWITCHES = re.compile(r"enum|unroll|chol|center|reparam|marginal")  # flags that change the model


def shorten(emit: Callable[..., None]) -> None:
    """Let `parse_args` cut what counts loops, and tell the variants of the model."""
    whole = argparse.ArgumentParser.parse_args

    def parse_args(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        emit(variants=list(variants(self)))
        found = whole(self, *args, **kwargs)
        for name, value in vars(found).items():
            if type(value) is int and value > FEW and LOOPS.search(name) and "time" not in name:
                setattr(found, name, FEW)
        return found

    argparse.ArgumentParser.parse_args = parse_args  # type: ignore[method-assign,assignment]


def variants(parser: argparse.ArgumentParser) -> Iterator[list[str]]:
    """Arguments that choose another model: each value of `--model`, each flag that changes it."""
    for action in parser._actions:
        if not action.option_strings:
            continue
        flag = action.option_strings[-1]
        if action.nargs == 0 and SWITCHES.search(flag):
            yield [flag]
        elif action.dest == "model":
            for name in action.choices or named(str(action.help)):
                if name != action.default:
                    yield [flag, str(name)]


def named(text: str) -> list[str]:
    """The values that a help text names.

    >>> named('one of "mn" (multinomial), "ds" or "mace"')
    ['mn', 'ds', 'mace']
    >>> named("one of: 1, 2, 5")
    ['1', '2', '5']
    """
    quoted = re.findall(r"[\"'](\w+)[\"']", text)
    after = re.search(r"one of:?\s*(.*)", text)
    return quoted or (re.findall(r"\w+", after[1]) if after else [])
