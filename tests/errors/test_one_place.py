"""Every error and every warning of the library is defined in `lowerbound.errors`, and exported."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

from lowerbound import errors

SOURCE = Path(errors.__file__).parents[1]
EXCEPTIONS = {
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
} | set(errors.__all__)
# Signals that never leave their module: an interpreter stops at what it was looking for.
SIGNALS = {"UnreadableError", "_Reached"}


def _name(base: ast.expr) -> str:
    return base.attr if isinstance(base, ast.Attribute) else ast.unparse(base)


def _exceptions_in(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and {_name(base) for base in node.bases} & EXCEPTIONS
    }


def test_no_error_is_defined_elsewhere():
    folder = Path(errors.__file__).parent
    modules = [path for path in SOURCE.rglob("*.py") if path.parent != folder]
    assert len(modules) > 100
    assert {name for path in modules for name in _exceptions_in(path)} == SIGNALS


def test_every_error_is_exported():
    folder = Path(errors.__file__).parent
    defined = {name for path in folder.glob("*.py") for name in _exceptions_in(path)}
    assert defined == set(errors.__all__) - {"Residual"}
    assert len(errors.__all__) == len(set(errors.__all__))


def test_every_error_is_a_lowerbound_error_or_a_user_warning():
    for name in set(errors.__all__) - {"Residual", "NotPlainError"}:
        base = UserWarning if name.endswith("Warning") else errors.LowerboundError
        assert issubclass(getattr(errors, name), base), name


def test_errors_stand_below_everything():
    for path in Path(errors.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                inside = node.module.startswith("lowerbound.errors.")
                assert inside or not node.module.startswith("lowerbound"), (path.name, node.module)
