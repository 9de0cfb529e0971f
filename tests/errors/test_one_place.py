"""Every error and warning of the library is defined in `lowerbound.errors`, and documented."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path

import pytest

from lowerbound import errors

FOLDER = Path(errors.__file__).parent
CLASSES = sorted(set(errors.__all__) - {"Residual"})
EXCEPTIONS = {
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
} | set(CLASSES)
# Signals, which the module that raises them, or its only caller, catches.
SIGNALS = {"NoCurvatureError", "NoLevelsError", "UnreadableError", "_Reached", "_UnknownError"}
PAGE = (FOLDER.parents[2] / "docs" / "errors.md").read_text("utf-8")


def _exceptions_in(path: Path) -> set[str]:
    classes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ClassDef)]
    return {
        node.name
        for node in classes
        if {ast.unparse(base).split(".")[-1] for base in node.bases} & EXCEPTIONS
    }


def test_no_error_is_defined_elsewhere():
    modules = [path for path in FOLDER.parent.rglob("*.py") if FOLDER not in path.parents]
    assert len(modules) > 100
    assert {name for path in modules for name in _exceptions_in(path)} == SIGNALS


def test_every_error_is_exported_once():
    defined = {name for path in FOLDER.rglob("*.py") for name in _exceptions_in(path)}
    assert defined == set(CLASSES)
    assert len(errors.__all__) == len(set(errors.__all__))


@pytest.mark.parametrize("name", CLASSES)
def test_an_error_can_be_caught_and_a_warning_filtered_by_one_class(name):
    base = errors.LowerboundWarning if name.endswith("Warning") else errors.LowerboundError
    assert issubclass(getattr(errors, name), base)
    assert issubclass(base, UserWarning if name.endswith("Warning") else ValueError)


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_is_documented(name):
    assert getattr(errors, name).__doc__
    assert re.search(rf"^\|.*`{name}`.*\|.*\|$", PAGE, re.MULTILINE)


def test_the_page_names_no_other():
    named = re.findall(r"`(\w+(?:Error|Warning))`", PAGE)
    assert set(named) - EXCEPTIONS == set()


def test_the_example_of_the_page_prints_what_it_says(capsys):
    code, said = re.findall(r"^```(?:python)?\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    exec(compile(code, "errors.md", "exec"), {})
    assert capsys.readouterr().out == said


def test_errors_stand_below_everything():
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lowerbound"):
                assert node.module.startswith("lowerbound.errors."), (path.name, node.module)
