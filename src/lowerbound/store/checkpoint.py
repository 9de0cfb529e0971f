"""Checkpoints: the state of a run, written at times to a folder, so that a killed run can go on."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lowerbound.errors import SettingError, StorageError
from lowerbound.store.archive import Kind, read_archive, write_archive

KIND = Kind("checkpoint", 2, "lb.fit(..., checkpoint=...)", "Start again in an empty folder.")
KEPT = 2  # a process may be one checkpoint ahead of another, never two
_NAME = re.compile(r"step-(\d{10})\.process-(\d{1,6})-of-(\d{1,6})\.lb")


@dataclass(frozen=True)
class Checkpoint:
    """Where to keep the state of a run, and how often: `every` steps of SVI or sweeps of CAVI.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> kept = lb.Checkpoint("run", every=10)
    >>> whole = lb.fit(coin, y, method=lb.CAVI(), checkpoint=kept)
    >>> lb.resume("run", coin, y).elbo == whole.elbo
    True
    """

    directory: str | os.PathLike[str]
    every: int = 100

    def __post_init__(self) -> None:
        if not isinstance(self.directory, str | os.PathLike) or not os.fspath(self.directory):
            raise SettingError("Checkpoint", "directory", self.directory, "the name of a folder")
        if not isinstance(self.every, int) or isinstance(self.every, bool) or self.every < 1:
            expected = (
                "an integer of at least 1: the number of steps of SVI, or of sweeps of CAVI, "
                "between two checkpoints"
            )
            raise SettingError("Checkpoint", "every", self.every, expected)


def as_checkpoint(value: Any) -> Checkpoint | None:
    """A checkpoint setting from a value or its shorthand, the name of a folder."""
    if value is None or isinstance(value, Checkpoint):
        return value
    if isinstance(value, str | os.PathLike):
        return Checkpoint(value)
    expected = 'the name of a folder, or lb.Checkpoint("folder", every=100)'
    raise SettingError("fit", "checkpoint", value, expected)


@dataclass(frozen=True)
class Keeper:
    """Writes the checkpoints of one process of a run.

    record: what is known of the run before it starts; it goes into every file.
    """

    checkpoint: Checkpoint
    process: int = 0
    processes: int = 1
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        """The folder of the checkpoints."""
        return Path(self.checkpoint.directory)

    def next(self, step: int) -> int:
        """The first step after `step` at which a checkpoint is due."""
        return (step // self.checkpoint.every + 1) * self.checkpoint.every

    def prepare(self, *, resumed: bool = False) -> None:
        """Make the folder, and raise unless a run can start in it (or go on, when `resumed`)."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.directory):
                pass
            held = sorted(found(self.directory))
        except OSError as error:
            raise StorageError(
                f"Cannot write checkpoints to {self.directory}: {error.strerror or error}.\n"
                "Expected the name of a folder, existing or new, that you may write to."
            ) from error
        if held and not resumed:
            raise StorageError(
                f"{self.directory} already holds checkpoints, the last of step {held[-1][0]}.\n"
                f"Expected an empty folder. Go on with that run by lb.resume("
                f"{os.fspath(self.checkpoint.directory)!r}, model, ...), or name another folder."
            )

    def write(self, step: int, document: Mapping[str, Any]) -> None:
        """Write the state after `step`, at once or not at all; older ones but one are removed."""
        path = _path(self.directory, step, self.process, self.processes)
        # What a kill left of earlier writes.
        for left in self.directory.glob(f".step-*.{_suffix(self.process, self.processes)}.*.tmp"):
            left.unlink(missing_ok=True)
        whole = {"run": dict(self.record), "step": step, "progress": dict(document)}
        try:
            write_archive(path, whole, KIND)
        except StorageError as error:
            cause = error.__cause__
            reason = getattr(cause, "strerror", None) or cause or error
            raise StorageError(
                f"Cannot write the checkpoint of step {step} to {self.directory}: {reason}.\n"
                "Earlier checkpoints are intact. Make room or mend the folder, then go on by "
                f"lb.resume({os.fspath(self.checkpoint.directory)!r}, model, ...)."
            ) from error
        steps = sorted(s for s, *who in found(self.directory) if who == self._who)
        # Later steps are those of a damaged or abandoned end of the run.
        past = [s for s in steps if s <= step]
        for other in {*steps} - {*past[-KEPT:]}:
            _path(self.directory, other, self.process, self.processes).unlink(missing_ok=True)

    @property
    def _who(self) -> list[int]:
        return [self.process, self.processes]


def found(directory: str | os.PathLike[str]) -> list[tuple[int, int, int]]:
    """Step, process and number of processes of each checkpoint in a folder, by name alone."""
    names = (_NAME.fullmatch(name) for name in os.listdir(directory))
    return [(int(m[1]), int(m[2]), int(m[3])) for m in names if m is not None]


def available(
    directory: str | os.PathLike[str], process: int = 0, processes: int = 1
) -> tuple[int, ...]:
    """The steps of this process whose checkpoints can be read, ascending."""
    steps = []
    for step, *who in sorted(found(directory)):
        if who == [process, processes]:
            try:
                read(directory, step, process, processes)
            except StorageError:
                continue
            steps.append(step)
    return tuple(steps)


def read(
    directory: str | os.PathLike[str], step: int, process: int = 0, processes: int = 1
) -> dict[str, Any]:
    """The checkpoint of a step: the record of the `run`, the `step`, and its `progress`."""
    path = _path(Path(directory), step, process, processes)
    document = read_archive(path, KIND)
    if set(document) != {"run", "step", "progress"} or document["step"] != step:
        raise KIND.damaged(path, "its record does not fit together")
    return document


def _path(directory: Path, step: int, process: int, processes: int) -> Path:
    return directory / f"step-{step:010d}.{_suffix(process, processes)}"


def _suffix(process: int, processes: int) -> str:
    return f"process-{process}-of-{processes}.lb"
