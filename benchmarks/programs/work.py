"""The process of one program: `python -m benchmarks.programs.work`, started by `watch`."""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import os
import signal
import sys
import time
import traceback
import types
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.programs.found import Program
from benchmarks.programs.options import shorten
from benchmarks.programs.quiet import hush

ALIKE = 3  # rows of one function with arguments of the same shapes


class Meeting:
    """Each distinct model is judged once; what was done in an earlier process is not repeated."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.scratch = options, Path(options.scratch)
        self.met: dict[str, Any] = {}
        self.shapes: dict[str, int] = {}

    def emit(self, **facts: Any) -> None:
        """A line of JSON for the process that watches."""
        os.write(self.options.events, json.dumps(facts, default=str).encode() + b"\n")

    def __call__(self, model: Any, args: Any, kwargs: Any, through: str, kernel: Any) -> Any:
        """The draws with which the program goes on."""
        from benchmarks.programs.judge import compared, continued, explained, fitted

        digest, shapes = identity(model, args, kwargs)
        if digest in self.met:
            return self.met[digest]
        self.shapes[shapes] = self.shapes.get(shapes, 0) + 1
        if self.shapes[shapes] > ALIKE:
            self.met[digest] = continued(None, model, args, kwargs)
            return self.met[digest]
        ordinal = len(self.met)
        stored = self.scratch / f"draws-{ordinal}.npz"
        if ordinal < self.options.done:
            found = dict(np.load(stored)) if stored.exists() else {}
            self.met[digest] = found or continued(None, model, args, kwargs)
            return self.met[digest]
        self.emit(ordinal=ordinal, model=name_of(model), through=through)
        fit = fitted(model, args, kwargs, self.emit)
        if fit is not None and self.options.explain:
            explained(model, args, kwargs, self.emit)
        self.emit(phase="draws")
        self.met[digest] = draws = continued(fit, model, args, kwargs)
        np.savez(stored, **draws)
        if self.options.nuts:
            compared(fit, model, args, kwargs, kernel, self.emit)
        self.emit(phase="program", end=ordinal)
        return draws


def name_of(model: Any) -> str:
    """The name of the function inside partials and handlers."""
    while not isinstance(model, types.FunctionType | types.MethodType):
        inner = getattr(model, "func", None) or getattr(model, "fn", None)
        if inner is None:
            return type(model).__name__
        model = inner
    return str(model.__name__)


def identity(model: Any, args: Any, kwargs: Any) -> tuple[str, str]:
    """Digests of a model with its data, and of it with their shapes alone."""
    whole, outline = hashlib.sha256(), hashlib.sha256()
    for digest, values in ((whole, True), (outline, False)):
        absorb(digest, (model, args, kwargs), values, set())
    return whole.hexdigest(), outline.hexdigest()


def absorb(digest: Any, value: Any, values: bool, seen: set[int]) -> None:
    """Take in what tells one model and its data from another: code, closures, arrays."""
    if id(value) in seen:
        return
    say = lambda *words: digest.update("|".join(map(str, words)).encode())  # noqa: E731
    if isinstance(value, types.FunctionType):
        seen.add(id(value))
        say(value.__qualname__, value.__code__.co_code.hex(), value.__code__.co_consts)
        for cell in value.__closure__ or ():
            absorb(digest, cell.cell_contents, values, seen)
    elif isinstance(value, partial):
        absorb(digest, (value.func, value.args, value.keywords), values, seen)
    elif isinstance(value, dict):
        for key in value:
            say("key", key)
            absorb(digest, value[key], values, seen)
    elif isinstance(value, list | tuple):
        for item in value:
            absorb(digest, item, values, seen)
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        say(value.shape, value.dtype)
        if values and "key" not in str(value.dtype):
            digest.update(np.asarray(value).tobytes())
    elif isinstance(value, int | float | str | bool | None):
        say(value)
    else:
        seen.add(id(value))
        say(type(value).__qualname__)
        absorb(digest, getattr(value, "__dict__", {}), values, seen)


def execute(program: Program, emit: Any) -> None:
    """Run the cells one after another in one namespace; a cell that fails does not end them."""
    main = types.ModuleType("__main__")
    main.__file__ = str(program.path)
    sys.modules["__main__"] = main
    sys.argv = [str(program.path), *program.arguments]
    sys.path.insert(0, str(program.path.parent))
    for cell in program.cells():
        try:
            exec(compile(cell, str(program.path), "exec", dont_inherit=True), main.__dict__)
        except SystemExit as ended:
            if ended.code not in (None, 0):
                emit(stopped=f"SystemExit: {ended.code}")
            return
        except BaseException as error:
            traceback.print_exc()
            emit(stopped=f"{type(error).__name__}: {' '.join(str(error).split())}"[:300])
            if isinstance(error, KeyboardInterrupt):
                return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("name")
    parser.add_argument("--events", type=int)
    parser.add_argument("--scratch")
    parser.add_argument("--done", type=int, default=0)
    parser.add_argument("--nuts", action="store_true")
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--processor", action="store_true")
    options, arguments = parser.parse_known_args()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if options.processor:  # what else the machine does shortens no fit
        time.perf_counter = time.process_time
    meeting = Meeting(options)
    meeting.emit(phase="program")
    program = Program(Path(options.path), options.name, tuple(arguments))
    text = program.path.read_text()
    hush(text)
    shorten(meeting.emit)
    from benchmarks.programs import made
    from benchmarks.programs.intercept import Hooks

    made.serve(Path(options.scratch), text)
    Hooks(meeting).install(text)
    os.chdir(options.scratch)
    execute(program, meeting.emit)
    meeting.emit(phase="over")
    sys.stdout.flush()
    os._exit(0)  # threads of the program end with it


if __name__ == "__main__":
    main()
