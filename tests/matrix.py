"""The fast part of the suite on every supported Python, JAX and NumPyro: `make test-matrix`.

Each row of `ROWS` gets an environment of its own under `.matrix/`, made where it is missing or out
of date, and kept. An interpreter that is not on this machine is reported, not required.
Standard library only: it is run by whichever Python 3.11 or newer there is.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".matrix"
# What is installed, besides a row's versions, follows from the project and from these.
SOURCES = ("hatch_build.py", "src/lowerbound/topics/native/*pp")

# What other versions break: readers of traces and jaxprs, shapes and types of draws, deprecations.
# Then fits, by coordinate ascent and by Gaussians. `make test` runs everything, on one Python.
FAST = (
    "tests/model",
    "tests/joint",
    "tests/family",
    "tests/source",
    "tests/data",
    "tests/test_api.py",
    "tests/compute/test_bounded_loops.py",
    "tests/methods/partial/test_hybrid.py",
    "tests/methods/hierarchy",
    "tests/test_import.py",
    "tests/test_matrix.py",
)


@dataclass(frozen=True)
class Row:
    """One interpreter with one JAX and one NumPyro, each as major.minor."""

    python: str
    jax: str
    numpyro: str

    @property
    def home(self) -> Path:
        """Where its environment is."""
        return FOLDER / f"python{self.python}-jax{self.jax}-numpyro{self.numpyro}"


# Every Python with every JAX that it can have: JAX 0.11 wants Python 3.12.
COMBINATIONS = (
    Row("3.11", "0.10", "0.21"),
    Row("3.12", "0.10", "0.21"),
    Row("3.12", "0.11", "0.22"),
    Row("3.12", "0.12", "0.22"),
    Row("3.13", "0.10", "0.22"),
    Row("3.13", "0.11", "0.22"),
    Row("3.13", "0.12", "0.22"),
)
# Those that are tried unless a JAX is asked for: each version occurs.
ROWS = (COMBINATIONS[0], COMBINATIONS[2], COMBINATIONS[6])


@dataclass(frozen=True)
class Outcome:
    """How a row ended: the words of its line in the table, and whether it counts as a failure."""

    row: Row
    words: str
    failed: bool = False
    minutes: float = 0.0


def candidates(version: str) -> Iterator[str]:
    """Commands that may start Python `version`: every one on PATH, then what pyenv has."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        yield from filter(None, [shutil.which(f"python{version}", path=folder)])
    if pyenv := shutil.which("pyenv"):
        found = subprocess.run([pyenv, "prefix", version], capture_output=True, text=True)
        if found.returncode == 0:
            yield str(Path(found.stdout.strip()) / "bin" / f"python{version}")


def interpreter(version: str) -> str | None:
    """The first command that starts Python `version`: a shim of pyenv may be there and refuse."""
    says = "import sys; print('%d.%d' % sys.version_info[:2])"
    for command in candidates(version):
        try:
            found = subprocess.run([command, "-c", says], capture_output=True, text=True)
        except OSError:
            continue
        if found.returncode == 0 and found.stdout.strip() == version:
            return command
    return None


def recipe(row: Row) -> str:
    """A digest of all that an environment is made from; settings of tools are not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    made_from = [row, project["project"], project["build-system"]]
    digest = hashlib.sha256(repr(made_from).encode())
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def prepare(row: Row, command: str) -> None:
    """Make the environment of a row, unless it is there as it should be."""
    stamp = row.home / "recipe"
    if stamp.is_file() and stamp.read_text() == recipe(row):
        return
    print(f"making {row.home.relative_to(ROOT)}", flush=True)
    subprocess.run([command, "-m", "venv", "--clear", str(row.home)], check=True)
    packages = [f"jax=={row.jax}.*", f"numpyro=={row.numpyro}.*", "-e", ".[dev]"]
    pip = [str(row.home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", *packages], check=True, cwd=ROOT)
    stamp.write_text(recipe(row))


def run(row: Row, tests: list[str]) -> Outcome:
    """The tests in the environment of a row, which is made first."""
    command = interpreter(row.python)
    if command is None:
        return Outcome(row, f"not run: no python{row.python} that starts, on PATH or by pyenv")
    try:
        prepare(row, command)
    except subprocess.CalledProcessError as error:
        return Outcome(row, f"not installed: {' '.join(error.cmd[1:4])} ended with an error", True)
    print(f"testing with {row.home.name}", flush=True)
    start = time.monotonic()
    pytest = [str(row.home / "bin" / "python"), "-m", "pytest", "-n", "2", "-q", "--tb=short"]
    cache = ["-o", f"cache_dir={row.home / 'pytest'}"]
    done = subprocess.run([*pytest, *cache, *tests], cwd=ROOT, capture_output=True, text=True)
    minutes = (time.monotonic() - start) / 60
    lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
    if done.returncode:
        print("\n".join(lines), flush=True)
    return Outcome(row, lines[-1].strip("= "), done.returncode != 0, minutes)


def table(outcomes: list[Outcome]) -> str:
    """One line a row: its versions, how long it took and how it ended."""
    lines = [f"{'Python':8}{'JAX':8}{'NumPyro':9}{'minutes':>7}  result"]
    for outcome in outcomes:
        row, minutes = outcome.row, f"{outcome.minutes:.1f}" if outcome.minutes else "-"
        words = f"FAILED: {outcome.words}" if outcome.failed else outcome.words
        lines.append(f"{row.python:8}{row.jax:8}{row.numpyro:9}{minutes:>7}  {words}")
    return "\n".join(lines)


def chosen(pythons: list[str] | None, jaxes: list[str] | None) -> list[Row]:
    """The rows of some Pythons, and, where a JAX is asked for, any combination that has it."""
    rows = COMBINATIONS if jaxes else ROWS
    return [
        row
        for row in rows
        if (not pythons or row.python in pythons) and (not jaxes or row.jax in jaxes)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run all rows, or those of the named versions; 0 where at least one ran and none failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    for name in ("python", "jax"):
        known = sorted({getattr(row, name) for row in COMBINATIONS})
        parser.add_argument(f"--{name}", action="append", choices=known, help="only this one")
    parser.add_argument("tests", nargs="*", default=FAST, help="instead of the fast part")
    asked = parser.parse_args(arguments)
    outcomes = [run(row, list(asked.tests)) for row in chosen(asked.python, asked.jax)]
    print(table(outcomes))
    return int(any(o.failed for o in outcomes) or not any(o.minutes for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
