"""What it takes to make a fit again: the program, the call, settings and versions."""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lowerbound.result.fitted import Fit

SHORT = 60  # letters of a value that is written out


def settings(fit: Fit) -> dict[str, str]:
    """The settings of a run, by name."""
    took = fit.plan.took
    return {
        "method": method_code(fit),
        "seed": str(fit.seed),
        "precision": fit.precision,
        "data": "; ".join(described_arguments(fit).values()),
        "rows": fit.plan.data_plate or "",
        "stopped": fit.stop_reason,
        "seconds": "" if took is None else f"{took:.3g}, compilation included",
        "notes": " ".join(fit.notes),
    }


def reproduction(fit: Fit) -> str:
    """Code that makes the fit again, given its data."""
    name, program = _program(fit.call.function)
    lines = [*_imports(fit.call.function), "import lowerbound as lb", ""]
    lines += [program or f"# {name}: the program, whose source is not at hand", ""]
    described = described_arguments(fit)
    lines += [f"# {text}" for text in described.values() if " of shape " in text]
    if not fit.has_data:
        lines.append("# The fit was read from a file, which does not hold its data.")
    if not fit.whole:
        lines.append("# The fit keeps some rows alone: it was made from all of them.")
    given = "".join(f", {text}" for text in _arguments(fit))
    single = fit.precision == "float32"
    indent = "    " if single else ""
    lines += ['with lb.computing(precision="float32"):'] if single else []
    corrected = re.fullmatch(r"correct\((.*), '([\w-]+)'\)", fit.method, re.DOTALL)
    if corrected is None:
        call = f"lb.fit({name}{given}, method={method_code(fit)}, seed={fit.seed})"
        return "\n".join([*lines, f"{indent}fit = {call}"])
    first = f"lb.fit({name}{given}, method={_prefixed(corrected[1])})"
    second = f'lb.correct(fit, "{corrected[2]}", seed={fit.seed})'
    return "\n".join([*lines, f"{indent}fit = {first}", f"{indent}fit = {second}"])


def method_code(fit: Fit) -> str:
    """The method as a user writes it."""
    value = fit.call.value
    return str(value.code) if hasattr(value, "code") else _prefixed(fit.method)


def _prefixed(text: str) -> str:
    """A printed method with the names of the library.

    >>> _prefixed("Given(('tau',), CAVI())")
    "lb.Given(('tau',), lb.CAVI())"
    """
    return re.sub(r"(?<![\w.'])(?=[A-Z]\w*\(|correct\()", "lb.", text)


def _program(function: Callable[..., Any]) -> tuple[str, str]:
    """The name of a program, and its source where there is one."""
    function = _inner(function)
    name = str(getattr(function, "__name__", type(function).__name__))
    try:
        return name, textwrap.dedent(inspect.getsource(function)).rstrip()
    except (OSError, TypeError):
        return name, ""


def _inner(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _imports(function: Callable[..., Any]) -> list[str]:
    """The modules that a program names, as they are imported; and what else it takes from its own.

    >>> _imports(_kind)
    ['import numpy as np', '# The program also uses SHORT, defined beside it.']
    """
    function = _inner(function)
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    known = {
        n: v
        for n, v in getattr(function, "__globals__", {}).items()
        if n in names and n[:2] != "__"
    }
    found, others = [], []
    for name, value in known.items():
        if inspect.ismodule(value):
            whole = value.__name__
            found.append(f"import {whole}" + ("" if whole == name else f" as {name}"))
        else:
            others.append(name)
    more = [f"# The program also uses {', '.join(others)}, defined beside it."] if others else []
    return [*sorted(line for line in found if line != "import lowerbound as lb"), *more]


def described_arguments(fit: Fit) -> dict[str, str]:
    """What the program was called with, in words: arrays by their shapes."""
    if fit.call.args is None:
        return {}
    try:
        bound = inspect.signature(fit.call.function).bind(*fit.call.args, **fit.call.kwargs)
        given: Mapping[str, Any] = bound.arguments
    except (TypeError, ValueError):
        given = {f"argument {i}": value for i, value in enumerate(fit.call.args)}
        given = {**given, **fit.call.kwargs}
    return {name: f"{name}: {_kind(value)}" for name, value in given.items()}


def _kind(value: Any) -> str:
    if not hasattr(value, "shape") or not np.shape(value):
        text = repr(value)
        return text if len(text) <= SHORT else f"{type(value).__name__}"
    shape = " x ".join(f"{size:,}" for size in value.shape)
    return f"{getattr(value, 'dtype', 'array')} of shape {shape}"


def _arguments(fit: Fit) -> list[str]:
    """The arguments of the call as code: numbers and texts as they are, others by name."""
    if fit.call.args is None:
        return ["..."]
    try:
        names = list(inspect.signature(fit.call.function).parameters)
    except (TypeError, ValueError):
        names = []
    found = []
    for place, value in enumerate(fit.call.args):
        found.append(_literal(value, names[place] if place < len(names) else f"argument_{place}"))
    return found + [f"{name}={_literal(value, name)}" for name, value in fit.call.kwargs.items()]


def _literal(value: Any, name: str) -> str:
    plain = value is None or isinstance(value, bool | int | float | str)
    return repr(value) if plain and len(repr(value)) <= SHORT else name
