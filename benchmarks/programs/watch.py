"""The process that watches: limits of seconds for each phase, and rows from what it is told."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.programs.found import Program
from benchmarks.programs.rows import Row

QUIET, IDLE = 60.0, 0.002  # a fit that for so many seconds uses less of a core than this hangs
RUNNING: set[subprocess.Popen[bytes]] = set()
KNOWN = {field.name for field in fields(Row)}


@dataclass(frozen=True)
class Limits:
    """Seconds of a fit, of NUTS, and of the program outside both.

    On a machine that does other work as well they may count processor time; a process that waits
    for ever is found by its using none.
    """

    fit: float = 240.0
    nuts: float = 300.0
    program: float = 240.0
    processor: bool = False

    def of(self, phase: str) -> float:
        """The limit of a phase."""
        return {"fit": self.fit, "explain": self.fit, "nuts": self.nuts}.get(phase, self.program)


class Watched:
    """A program's process, its phase, and the processor time that it takes."""

    def __init__(
        self, program: Program, scratch: Path, log: Path, done: int, flags: Sequence[str]
    ) -> None:
        self.pipe, end = os.pipe()
        command = [sys.executable, "-m", "benchmarks.programs.work", str(program.path.resolve())]
        command += [program.name, "--events", str(end), "--scratch", str(scratch)]
        command += ["--done", str(done), *(f"--{flag}" for flag in flags)]
        command += program.arguments
        self.log = log.open("ab")
        self.process = subprocess.Popen(
            command,
            pass_fds=[end],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        RUNNING.add(self.process)
        os.close(end)
        self.rest = b""
        self.phase, self.since = "program", time.monotonic()
        self.used, self.before = [(self.since, 0.0)], 0.0

    def events(self, limits: Limits) -> Iterator[dict[str, Any]]:
        """What the process says; `{"ended": ...}` comes last, with the reason."""
        while True:
            if select.select([self.pipe], [], [], 1.0)[0]:
                chunk = os.read(self.pipe, 1 << 16)
                if not chunk:
                    status = self.process.wait()
                    yield {"ended": "" if status == 0 else f"crash: status {status}"}
                    return
                *lines, self.rest = (self.rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if "phase" in event:
                        self.phase, self.since = event["phase"], time.monotonic()
                        self.before = processor_seconds(self.process.pid)
                        self.used = [(self.since, self.before)]
                    yield event
            elif reason := self.late(limits):
                yield {"ended": reason}
                return

    def late(self, limits: Limits) -> str:
        """Why the process must end now, if it must."""
        now, used = time.monotonic(), processor_seconds(self.process.pid)
        self.used = [(t, u) for t, u in self.used if t > now - 1.5 * QUIET] + [(now, used)]
        then, before = next(((t, u) for t, u in self.used if t <= now - QUIET), (now, used))
        if self.phase != "program" and then < now and used - before < IDLE * (now - then):
            return f"hang: {self.phase} used no processor for {QUIET:g} s"
        if (self.spent() if limits.processor else now - self.since) > limits.of(self.phase):
            return f"time-out: no end of {self.phase} within {limits.of(self.phase):g} s"
        return ""

    def spent(self) -> float:
        """Processor seconds of this phase."""
        return processor_seconds(self.process.pid) - self.before

    def stack(self) -> str:
        """The stacks of all threads as they are, from the log."""
        size = os.fstat(self.log.fileno()).st_size
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGUSR1)
            time.sleep(1.0)
        with open(self.log.name, "rb") as log:
            log.seek(size)
            return log.read().decode(errors="replace")[-6000:]

    def end(self) -> None:
        """Kill and close."""
        self.process.kill()
        self.process.wait()
        RUNNING.discard(self.process)
        os.close(self.pipe)
        self.log.close()


def end_all(*_: Any) -> None:
    """End every process that was started here, and this one: for a signal."""
    for process in list(RUNNING):
        process.kill()
    os._exit(1)


def processor_seconds(pid: int) -> float:
    """What a process has used so far, by Linux's count."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def rows_of(
    program: Program,
    limits: Limits,
    tasks: Sequence[str],
    logs: Path,
    varied: Callable[[Program], None] = lambda other: None,
) -> Iterator[Row]:
    """The rows of a program; after one that must be ended, a new process goes on from there.

    `varied` is told the variants that its options name as soon as these are known.
    """
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / (re.sub(r"[^\w.]+", "-", program.label) + ".log")
    log.write_bytes(b"")
    done, stopped, variants = 0, [], []
    flags = [*tasks, "processor"] if limits.processor else tasks
    with tempfile.TemporaryDirectory(prefix="programs-") as folder:
        # A program finds what lies beside it, and beside its folder: "../data/rows.csv".
        scratch = Path(folder) / "program"
        scratch.mkdir()
        linked(program.path.parent.parent, scratch.parent)
        linked(program.path.parent, scratch)
        again = True
        while again:
            again, facts = False, {}
            watched = Watched(program, scratch, log, done, flags)
            for event in watched.events(limits):
                if "ordinal" in event:
                    facts = {"program": program.label}
                for arguments in event.get("variants", ()):
                    if arguments not in variants and not program.arguments:
                        variants.append(arguments)
                        varied(replace(program, arguments=tuple(arguments)))
                if "stopped" in event:
                    stopped.append(event["stopped"])
                facts |= {name: value for name, value in event.items() if name in KNOWN}
                if "end" in event:
                    yield row(facts)
                    done, facts = event["end"] + 1, {}
                elif "ended" in event and "ordinal" in facts:  # within a row
                    yield row(broken(facts, event["ended"], watched))
                    done, again = facts["ordinal"] + 1, True
                elif event.get("ended"):
                    stopped.append(event["ended"])
            watched.end()
    if not done:
        reason = needs(stopped) or "no model was met"
        yield Row(program.label, 0, reason=reason, where="\n".join(stopped))
    elif stopped:
        print(f"    {program.label} then stopped: {stopped[0][:150]}", flush=True)


def row(facts: dict[str, Any]) -> Row:
    return Row(**(facts | {"warned": tuple(facts.get("warned", ()))}))


def broken(facts: dict[str, Any], reason: str, watched: Watched) -> dict[str, Any]:
    """The facts of a row whose process ended within it; a result stays one."""
    if facts.get("outcome") == "result":
        if watched.phase == "nuts":
            return facts | {"unjudged": reason}
        return facts | {"warned": [*facts.get("warned", ()), reason], "where": watched.stack()}
    outcome = reason.partition(":")[0]
    if "outcome" in facts:
        return facts
    if not reason:
        reason = outcome = "crash"
    seconds = time.monotonic() - watched.since
    facts |= {"outcome": outcome, "reason": reason, "seconds": seconds, "cpu": watched.spent()}
    return facts | {"where": watched.stack()}


def needs(stopped: list[str]) -> str:
    """What a program lacks, from its first exception."""
    if not stopped:
        return ""
    first = stopped[0]
    if first.startswith("ModuleNotFoundError: No module named"):
        return f"needs {first.split(chr(39))[1]}"
    return f"needs what {first}" if first.startswith("FileNotFoundError") else first


def linked(folder: Path, scratch: Path) -> None:
    """Links to a program's neighbours, so that it may read them and writes elsewhere."""
    for path in list(folder.iterdir())[:1000]:
        if not path.name.startswith("."):
            (scratch / path.name).symlink_to(path.resolve())
