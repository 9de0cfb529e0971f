"""Folders of runs: whole or not at all. What is unfinished stands beside, under another name."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lowerbound.errors import CommandError, MissingPackageError
from lowerbound.reporting import report
from lowerbound.result.fitted import Fit
from lowerbound.version import __version__

RECORD, FIT, SUMMARY, REPORT = "run.json", "fit.lb", "summary.csv", "report.html"
CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class Record:
    """What a run was made from: all that is on its command line."""

    subject: str  # model.py:model, or a formula
    is_formula: bool
    data: str
    digest: str
    family: str
    arg: dict[str, str]
    column: dict[str, str]
    codes: list[str]
    method: str
    seed: int
    version: str = __version__


def digest(path: str) -> str:
    """A digest of a file, so that other data are not taken for it."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unfinished(folder: Path) -> Path:
    """Where a run stands until it is whole."""
    return folder.with_name(f"{folder.name}.unfinished")


def begin(folder: Path, record: Record, force: bool) -> Path:
    """Make the folder in which the run is written; an error where there is something already."""
    working = unfinished(folder)
    if folder.exists() and not force:
        remedy = "Expected a new one. Choose another with --out, or replace it with --force."
        raise CommandError.exists(str(folder), remedy)
    if working.exists():
        if not force:
            remedy = f"It holds a run that has not ended: lowerbound resume {folder}, or --force."
            raise CommandError.exists(str(working), remedy)
        shutil.rmtree(working)
    working.mkdir(parents=True)
    place = str(Path(record.data).resolve())
    text = json.dumps({**asdict(record), "data": place}, indent=1)
    (working / RECORD).write_text(text + "\n", encoding="utf-8")
    return working


def finish(folder: Path, fit: Fit, say: Callable[[str], None]) -> None:
    """Write what there is of a fit, and give the folder its name."""
    working = unfinished(folder)
    fit.save(working / FIT)
    fit.summary().to_csv(working / SUMMARY)
    try:
        report(fit, working / REPORT)
    except MissingPackageError as error:
        say(f"no report: {' '.join(str(error).splitlines())}")
    shutil.rmtree(working / CHECKPOINTS, ignore_errors=True)
    old = folder.with_name(f"{folder.name}.replaced")
    if folder.exists():
        folder.rename(old)
    working.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def read_record(folder: Path, what: str = "run") -> Record:
    """What a run was made from."""
    path = folder / RECORD
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return Record(**found)
    except (OSError, ValueError, TypeError) as error:
        raise CommandError.no_run(str(folder), what) from error
