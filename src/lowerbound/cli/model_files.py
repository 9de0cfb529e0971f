"""Models and methods that the command line names. A model file is code that the user named."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lowerbound.errors import CommandError
from lowerbound.errors.wording import first_line
from lowerbound.methods.values import METHODS, SHORTHAND


def load_model(name: str) -> Callable[..., Any]:
    """The function that "model.py:model" names; without a name, the only one or that of `model`."""
    path, _, function = name.partition(":")
    file = Path(path)
    if not file.is_file():
        raise CommandError.no_file(path, "Python that defines the model, as model.py:model")
    own = _functions(_imported(file), file)
    known = tuple(own)
    if not function:
        function = "model" if "model" in own else (known[0] if len(known) == 1 else "")
    if function not in own:
        raise CommandError.no_function(path, function, known)
    return own[function]


def _imported(file: Path) -> dict[str, Any]:
    """The names that a file defines, run as a module of its own beside its neighbours."""
    name = f"_model_file_{abs(hash(file.resolve()))}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise CommandError.no_import(str(file), "it is no Python file", "")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.resolve().parent))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        where = _line(error, file)
        said = f"{type(error).__name__}: {first_line(error)}"  # type: ignore[arg-type]
        raise CommandError.no_import(str(file), said, where) from error
    finally:
        sys.path.remove(str(file.resolve().parent))
    return vars(module)


def _line(error: BaseException, file: Path) -> str:
    """Where in the file the error arose."""
    if isinstance(error, SyntaxError):  # its text says where
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).resolve() == file.resolve()]
    return f" (line {own[-1].lineno})" if own else ""


def _functions(names: dict[str, Any], file: Path) -> dict[str, Callable[..., Any]]:
    """The functions that the file itself defines."""
    return {
        name: value
        for name, value in names.items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and value.__module__ == names["__name__"]
    }


def method_named(text: str) -> Any:
    """A method from "auto", "cavi", or "CAVI(restarts=10)"."""
    if text.lower() == "auto" or text.lower() in SHORTHAND:
        return text.lower()
    kinds = {kind.__name__: kind for kind in METHODS}
    expected = f"auto, {', '.join(SHORTHAND)}, or one with settings such as 'CAVI(restarts=10)'"
    try:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        assert not call.args
        kind = kinds[ast.unparse(call.func).removeprefix("lb.")]
        settings = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    except (SyntaxError, AssertionError, KeyError, ValueError):
        raise CommandError.option("--method", text, expected) from None
    try:
        return kind(**settings)
    except TypeError as error:
        raise CommandError.option("--method", text, f"settings of it: {error}") from error


def value_of(text: str) -> Any:
    """The value of an option: a number, a list, true or false; else text."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
