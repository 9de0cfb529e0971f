"""The commands: their options, what they call, and how what goes wrong is said."""

from __future__ import annotations

import argparse
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lowerbound.api import fit as fit_model
from lowerbound.api import resume
from lowerbound.cli.data_files import arguments_of, pairs, read_table
from lowerbound.cli.demonstration import write_demonstration
from lowerbound.cli.model_files import load_model, method_named
from lowerbound.cli.option_list import parser
from lowerbound.cli.run_folders import (
    CHECKPOINTS,
    FIT,
    REPORT,
    Record,
    begin,
    digest,
    finish,
    read_record,
    unfinished,
)
from lowerbound.errors import ArgumentError, CommandError, LowerboundError, StorageError
from lowerbound.explaining import explain
from lowerbound.formulas.formulated import formula
from lowerbound.reporting import report
from lowerbound.result.fitted import Fit
from lowerbound.result.saving import load
from lowerbound.store.checkpoint import Checkpoint
from lowerbound.trust.checking import check

DONE, FAILED, BAD_INPUT, NOT_TRUSTED, INTERRUPTED = 0, 1, 2, 3, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    try:
        given = parser().parse_args(argv)
    except SystemExit as leaving:
        return int(leaving.code or DONE) if not isinstance(leaving.code, str) else BAD_INPUT
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = _warned(given.quiet)
        try:
            return COMMANDS[given.command](given)
        except KeyboardInterrupt:
            _complain("interrupted")
            return INTERRUPTED
        except Exception as error:
            if given.debug:
                traceback.print_exc()
            expected = isinstance(error, LowerboundError | OSError)
            kind = "" if expected else f"{type(error).__name__}: "
            _complain(f"error: {kind}{' '.join(str(error).split())}")
            if not expected and not given.debug:
                _complain("(--debug shows where)")
            return (
                BAD_INPUT if isinstance(error, ArgumentError | StorageError | OSError) else FAILED
            )


def _complain(text: str) -> None:
    print(f"lowerbound: {text}", file=sys.stderr)


def _warned(quiet: bool) -> Callable[..., None]:
    """Warnings in one line each."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if not quiet:
            _complain(f"warning: {' '.join(str(message).split())}")

    return show


def _say(given: argparse.Namespace) -> Callable[[str], None]:
    """Print, unless there is to be silence."""
    return (lambda text: None) if given.quiet else lambda text: print(text, flush=True)


# --------------------------------------------------------------------------------------------------
# What is fitted


def _record(given: argparse.Namespace) -> Record:
    """What the command line says of a run."""
    words = given.subject
    if given.formula is None:
        if len(words) != 2:
            raise CommandError.subject(f"{len(words)} names, {' '.join(words)}")
        subject, data = words
    else:
        if len(words) != 1:
            raise CommandError.subject(f"--formula, and {' '.join(words)}")
        subject, data = given.formula, words[0]
        for name in ("arg", "column", "codes"):
            if getattr(given, name):
                raise CommandError.option(
                    f"--{name}", getattr(given, name)[0], "a model, not a formula"
                )
    arg, column = pairs("--arg", given.arg), pairs("--column", given.column)
    if not Path(data).is_file():
        raise CommandError.no_file(data, "a table: .csv, .tsv, .parquet, .npz or .json")
    return Record(
        subject, given.formula is not None, data, digest(data), given.family, arg, column,
        given.codes, given.method, given.seed,
    )  # fmt: skip


def _call(record: Record) -> tuple[Callable[..., Any], dict[str, Any], str]:
    """The model of a run, its arguments by name, and its program where a formula wrote it."""
    if record.is_formula:
        table = read_table(record.data)
        found = formula(record.subject, table, family=record.family)
        return found.model, found.data(), found.source
    model = load_model(record.subject)
    table = read_table(record.data)
    return model, arguments_of(model, table, record.arg, record.column, record.codes), ""


def _explain(given: argparse.Namespace) -> int:
    record = _record(given)
    method = method_named(record.method)
    model, arguments, source = _call(record)
    if source:
        _say(given)(source)
    explain(model, method=method, **arguments)
    return DONE


def _fit(given: argparse.Namespace) -> int:
    record, folder = _record(given), Path(given.out)
    method = method_named(record.method)
    model, arguments, source = _call(record)
    working = begin(folder, record, given.force)
    if source:
        (working / "model.py").write_text(source, encoding="utf-8")
    kept = None
    if given.checkpoint is not None:
        kept = Checkpoint(working / CHECKPOINTS, every=given.checkpoint)
    try:
        found = fit_model(
            model, method=method, seed=record.seed, progress=False if given.quiet else None,
            checkpoint=kept, **arguments,
        )  # fmt: skip
        _finish(given, folder, found)
    except BaseException as error:
        # A run that keeps checkpoints can go on after a kill; another leaves nothing.
        if isinstance(error, KeyboardInterrupt) and any(working.glob(f"{CHECKPOINTS}/*")):
            named = "" if record.is_formula else f" {record.subject}"
            _complain(f"go on with: lowerbound resume {folder}{named}")
        else:
            shutil.rmtree(working, ignore_errors=True)
        raise
    return DONE


def _finish(given: argparse.Namespace, folder: Path, found: Fit) -> None:
    finish(folder, found, _complain)
    say = _say(given)
    say(str(found))
    say(f"written: {', '.join(str(path) for path in sorted(folder.iterdir()))}")


# --------------------------------------------------------------------------------------------------
# Runs that were made before


def _found(
    given: argparse.Namespace, folder: Path, what: str
) -> tuple[Callable[..., Any], dict[str, Any], Record]:
    """The model and the arguments of a run, whose data have to be those of the fit."""
    record = read_record(folder, what)
    if not record.is_formula and given.model is None:
        raise CommandError.model_unnamed(given.run, record.subject, given.command)
    data = given.data or record.data
    if not Path(data).is_file():
        raise CommandError.no_file(data, "the data of the run, or another place with --data")
    if digest(data) != record.digest:
        raise CommandError.changed(data, given.run)
    subject = record.subject if record.is_formula else given.model
    named = Record(**{**vars(record), "data": data, "subject": subject})
    model, arguments, _ = _call(named)
    return model, arguments, record


def _loaded(given: argparse.Namespace) -> Fit:
    folder = Path(given.run)
    model, arguments, _ = _found(given, folder, "run")
    if not (folder / FIT).is_file():
        raise CommandError.no_run(given.run, "fit")
    return load(folder / FIT, model, **arguments)


def _check(given: argparse.Namespace) -> int:
    verdict = check(_loaded(given), given.seconds)
    _say(given)(str(verdict))
    return NOT_TRUSTED if verdict.trust == "nothing" else DONE


def _report(given: argparse.Namespace) -> int:
    page = Path(given.out) if given.out else Path(given.run) / REPORT
    found = _loaded(given)
    part = page.with_name(f"{page.name}.unfinished")
    report(found, part)
    part.replace(page)
    _say(given)(f"written: {page}")
    return DONE


def _resume(given: argparse.Namespace) -> int:
    folder = Path(given.run)
    working = unfinished(folder)
    model, arguments, _ = _found(given, working, "run to go on with")
    found = resume(
        working / CHECKPOINTS, model, progress=False if given.quiet else None, **arguments
    )
    _finish(given, folder, found)
    return DONE


def _demo(given: argparse.Namespace) -> int:
    folder = Path(given.out)
    if (folder / "run").exists():
        raise CommandError.exists(str(folder / "run"), "Expected a new one: choose it with --out.")
    words = write_demonstration(folder, given.rows)
    _say(given)(f"lowerbound {' '.join(words)}")
    flags = ["--quiet"] * given.quiet + ["--debug"] * given.debug
    return _fit(parser().parse_args([*words, *flags]))


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "explain": _explain,
    "fit": _fit,
    "check": _check,
    "report": _report,
    "resume": _resume,
    "demo": _demo,
}
