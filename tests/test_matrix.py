"""The rows of `make test-matrix` are what the package promises, and interpreters are tried."""

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import matrix

HERE = "{}.{}".format(*sys.version_info[:2])
PROJECT = tomllib.loads((matrix.ROOT / "pyproject.toml").read_text())["project"]


def promised(package: str) -> set[str]:
    """The minor versions within the bounds of a dependency, as in "jax>=0.10,<0.13"."""
    [bounds] = [d for d in PROJECT["dependencies"] if re.match(rf"{package}\W", d)]
    lower, upper = map(int, re.fullmatch(rf"{package}>=0\.(\d+),<0\.(\d+)", bounds).groups())
    return {f"0.{minor}" for minor in range(lower, upper)}


@pytest.mark.parametrize("package", ["jax", "numpyro"])
def test_every_version_within_the_bounds_has_a_row(package: str) -> None:
    assert {getattr(row, package) for row in matrix.ROWS} == promised(package)


def test_every_python_of_the_classifiers_has_a_row() -> None:
    named = [re.search(r"Python :: (3\.\d+)$", c) for c in PROJECT["classifiers"]]
    pythons = {found[1] for found in named if found}
    assert {row.python for row in matrix.ROWS} == pythons
    oldest = min(int(python.removeprefix("3.")) for python in pythons)
    assert PROJECT["requires-python"] == f">=3.{oldest}"


def test_a_jax_that_is_asked_for_gives_other_combinations() -> None:
    assert matrix.chosen(None, None) == list(matrix.ROWS)
    assert matrix.chosen(["3.13"], None) == [matrix.ROWS[-1]]
    assert matrix.chosen(["3.13"], ["0.11"]) == [matrix.Row("3.13", "0.11", "0.22")]
    assert {row.python for row in matrix.chosen(None, ["0.10"])} == {"3.11", "3.12", "3.13"}
    assert matrix.chosen(["3.11"], ["0.12"]) == []  # which main reports as nothing that ran


def test_the_fast_part_is_there() -> None:
    assert [path for path in matrix.FAST if not (matrix.ROOT / path).exists()] == []


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Writes a program named `python3.x` into a folder; only such folders are on PATH."""
    monkeypatch.setenv("PATH", "")

    def write(folder: str, script: str) -> None:
        path = tmp_path / folder / f"python{HERE}"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        paths = [*filter(None, [matrix.os.environ["PATH"]]), str(path.parent)]
        monkeypatch.setenv("PATH", matrix.os.pathsep.join(paths))

    return write


def test_an_interpreter_that_refuses_or_is_another_one_is_passed_over(
    command: Callable[[str, str], None], tmp_path: Path
) -> None:
    assert matrix.interpreter(HERE) is None
    command("shim", 'echo "pyenv: command not found" >&2; exit 127')
    command("other", "echo 2.7")
    assert matrix.interpreter(HERE) is None
    command("true", f'exec {sys.executable} "$@"')
    assert matrix.interpreter(HERE) == str(tmp_path / "true" / f"python{HERE}")


def test_a_missing_interpreter_is_named_in_the_table(
    command: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert matrix.main(["--python", "3.12"]) == 1  # nothing ran
    assert capsys.readouterr().out == (
        "Python  JAX     NumPyro  minutes  result\n"
        "3.12    0.11    0.22           -  not run: no python3.12 that starts, "
        "on PATH or by pyenv\n"
    )


def test_a_failure_is_told_and_fails() -> None:
    row = matrix.ROWS[0]
    outcomes = [matrix.Outcome(row, "2 failed, 5 passed in 9.00s", True, 0.16)]
    assert matrix.table(outcomes).splitlines()[1] == (
        "3.11    0.10    0.21         0.2  FAILED: 2 failed, 5 passed in 9.00s"
    )


def test_an_environment_is_made_again_when_what_it_is_made_from_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "ROOT", tmp_path)

    def recipes(bound: str, tool: str) -> list[str]:
        lines = ["[build-system]", "[project]", f'dependencies = ["jax{bound}"]', f"[tool.{tool}]"]
        (tmp_path / "pyproject.toml").write_text("\n".join(lines))
        return [matrix.recipe(row) for row in matrix.ROWS]

    first = recipes("<1", "ruff")
    assert len(set(first)) == len(matrix.ROWS)
    assert first == recipes("<1", "mypy")
    assert set(first).isdisjoint(recipes("<2", "ruff"))
