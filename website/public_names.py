"""The public names of the library, page by page, and which of them say nothing of themselves.

In: the `__all__` of the public modules. Out: the names of every page of the reference, and a line
for each that has no docstring, or has a setting or a method that none of its text mentions.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import lowerbound as lb
import lowerbound.data
import lowerbound.estimators
from lowerbound.run.method import Method

MODULES: tuple[ModuleType, ...] = (
    lb,
    lb.plot,
    lb.errors,
    lowerbound.estimators,
    lowerbound.data,
)
FIRST = ("Fit", "Plan", "Verdict")  # of the results
UNTOLD = ("__version__", "COLOURS")  # plain values


@dataclass(frozen=True)
class Page:
    """A page of the reference: what it opens with, and the names that it shows.

    members: whether the methods and properties of its classes are shown. inherited: those of their
    bases too. made: whether users make such objects, and see what they are made of.
    """

    path: str
    title: str
    opening: str
    names: tuple[str, ...]
    members: bool = False
    inherited: bool = False
    made: bool = True


def names_of(module: ModuleType) -> dict[str, Any]:
    """The public names of a module, in the order of its `__all__`."""
    listed = [name for name in module.__all__ if name not in UNTOLD]
    return {f"{module.__name__}.{name}": getattr(module, name) for name in listed}


def pages() -> tuple[Page, ...]:
    """The pages of the reference, which together show every public name once."""
    top = {name: thing for name, thing in names_of(lb).items() if not isinstance(thing, ModuleType)}
    methods = [name for name, thing in top.items() if _is_method(thing) or name.endswith("Details")]
    results = [name for name in top if inspect.isclass(top[name]) and name not in methods]
    calls = [name for name in top if name not in {*methods, *results}]
    return (
        Page(
            "index",
            "Functions",
            "What `import lowerbound as lb` offers to be called. In the examples `coin` is the "
            "program and `y` the data of the example of [`lb.fit`][lowerbound.fit].",
            tuple(calls),
        ),
        Page(
            "methods",
            "Methods",
            "Values for `lb.fit(..., method=)`. Each is frozen, and has at most seven settings.",
            tuple(methods),
        ),
        Page(
            "results",
            "Results",
            "What the functions return, and the values that they take.",
            tuple(sorted(results, key=lambda name: name.rpartition(".")[2] not in FIRST)),
            members=True,
            made=False,
        ),
        Page("plot", "Pictures", _opening(lb.plot), tuple(names_of(lb.plot))),
        Page(
            "estimators",
            "Estimators",
            _opening(lowerbound.estimators),
            tuple(names_of(lowerbound.estimators)),
            members=True,
            inherited=True,
        ),
        Page("data", "Data", _opening(lowerbound.data), tuple(names_of(lowerbound.data))),
        Page(
            "errors",
            "Errors and warnings",
            "Each says what was expected, what was found, where, and what to do. "
            "[The page of errors](../errors.md) says what each has found.",
            tuple(names_of(lb.errors)),
        ),
    )


def text_of(page: Page) -> str:
    """A page as Markdown, for mkdocstrings to fill."""
    options = [
        f"members: {'null' if page.members else 'false'}",
        f"inherited_members: {str(page.inherited).lower()}",
        f"merge_init_into_class: {str(page.made).lower()}",
    ]
    indented = "".join(f"        {line}\n" for line in options)
    blocks = [f"::: {name}\n    options:\n{indented}" for name in page.names]
    return "\n".join([f"# {page.title}\n", f"{page.opening}\n", *blocks])


def untold(things: dict[str, Any]) -> list[str]:
    """A line for every name without a docstring, and every setting or method that has no words."""
    found: list[str] = []
    for name, thing in things.items():
        text = _own_docstring(thing)
        if not text:
            found.append(f"{name} has no docstring")
            continue
        found += [
            f"{name}: its docstring does not mention {setting!r}"
            for setting in _settings(thing)
            if not re.search(rf"\b{setting}\b", _words(thing))
        ]
        found += [f"{name}.{member} has no docstring" for member in _silent_members(thing)]
    return found


def all_names() -> dict[str, Any]:
    """Every public name of the library, by its full name."""
    return {name: thing for module in MODULES for name, thing in names_of(module).items()}


def _opening(module: ModuleType) -> str:
    """The docstring of a module up to its examples."""
    return inspect.cleandoc(module.__doc__ or "").split("\n\n`coin`")[0].split("\n>>>")[0]


def _is_method(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Method)


def _own_docstring(thing: Any) -> str:
    """Its docstring, unless it is that of its class, or the one that `dataclass` makes."""
    text = inspect.cleandoc(thing.__doc__ or "")
    if inspect.isclass(thing):
        return "" if text.startswith(f"{thing.__name__}(") else text
    return "" if thing.__doc__ == type(thing).__doc__ else text


def _words(thing: Any) -> str:
    """What is said of the settings of a class: by it, where it points, and for all estimators."""
    text = _own_docstring(thing)
    named = re.findall(r"those\s+of\s+`(?:lb\.)?(\w+)`", text)
    pointed = [_words(getattr(lb, name)) for name in named if hasattr(lb, name)]
    return "\n".join([text, *pointed, lowerbound.estimators.__doc__ or ""])


def _settings(thing: Any) -> list[str]:
    """What is set when a method or an estimator is made."""
    if _is_method(thing):
        return [field.name for field in dataclasses.fields(thing) if field.init]
    if inspect.isclass(thing) and hasattr(thing, "get_params"):
        return [name for name in inspect.signature(thing).parameters if name != "self"]
    return []


def _silent_members(thing: Any) -> list[str]:
    """Public methods and properties without words, of the class or inherited in the library."""
    if not inspect.isclass(thing):
        return []
    silent = []
    for name, member in inspect.getmembers(thing):
        called = member.fget if isinstance(member, property) else member
        ours = (getattr(called, "__module__", "") or "").startswith("lowerbound")
        if name.startswith("_") or not ours or not inspect.isroutine(called):
            continue
        if not inspect.getdoc(member):
            silent.append(name)
    return silent
