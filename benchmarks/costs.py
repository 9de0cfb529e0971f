"""What `lb.explain` expects a fit to cost, against what a cold fit takes: seconds and megabytes.

Every program has a process of its own. Seconds are those of the processor, so that other work on
the machine disturbs less; megabytes are those by which the peak of the process grows. The constants
of the estimates are those of the stress programs: posteriordb and other folders are the test.
"""

from __future__ import annotations

import argparse
import importlib
import math
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peak import Peak
from benchmarks.posteriordb import VARIABLE, one_line
from benchmarks.stress_models import load, programs
from benchmarks.timing import verdict

FACTOR, SHARE = 3.0, 0.9  # the target: within this factor, for this share of the programs


@dataclass(frozen=True)
class Row:
    """One program: what was expected, and what the fit took."""

    program: str
    method: str = ""
    expected: float = math.nan
    seconds: float = math.nan
    megabytes_expected: float = math.nan
    megabytes: float = math.nan
    reason: str = ""

    @property
    def ratio(self) -> float:
        """How many times longer the fit took than was expected."""
        return self.seconds / self.expected

    @property
    def within(self) -> bool:
        """Whether the estimate is right to the factor."""
        return 1 / FACTOR <= self.ratio <= FACTOR

    def __str__(self) -> str:
        numbers = (self.expected, self.seconds, self.ratio)
        text = f"{self.program[:40]:40s} {self.method[:36]:36s}"
        text += "".join(f"{x:9.2f}" for x in numbers)
        return f"{text}{self.megabytes_expected:9.0f}{self.megabytes:9.0f}  {self.reason}"


HEADING = f"{'program':40s} {'method':36s}" + "".join(
    f"{h:>9s}" for h in ("expected", "seconds", "ratio", "MB exp.", "MB")
)


def work(pipe: Any, kind: str, name: str, folder: str) -> None:
    """Fit one program, cold, and send its row."""
    import jax

    import lowerbound as lb

    warnings.simplefilter("ignore")
    if kind == "stress":
        program: Any = load(name)
    else:
        sys.path.insert(0, folder)
        program = importlib.import_module("ports").load(name)
    jax.block_until_ready(jax.numpy.zeros(1) + 1)  # the backend's own start is no part of a fit
    try:
        peak, began = Peak(), time.process_time()
        fit = lb.fit(program.model, **program.data)
        seconds = time.process_time() - began
        grown, cost = peak.grown, fit.plan.cost
        expected = (math.nan, math.nan) if cost is None else (cost.seconds, cost.megabytes)
        pipe.send(Row(name, fit.method, expected[0], seconds, expected[1], grown))
    except Exception as error:
        pipe.send(Row(name, reason=one_line(error)))


def row_of(kind: str, name: str, folder: str, limit: float) -> Row:
    context = multiprocessing.get_context("spawn")
    pipe, end = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(end, kind, name, folder), daemon=True)
    process.start()
    end.close()
    try:
        row = pipe.recv() if pipe.poll(limit) else Row(name, reason=f"no end within {limit:g} s")
    except EOFError:
        row = Row(name, reason="the process ended")
    process.kill()
    process.join()
    return row


def summary(rows: Sequence[Row]) -> str:
    known = [row for row in rows if math.isfinite(row.ratio)]
    if not known:
        return "nothing to compare"
    share = float(np.mean([row.within for row in known]))
    ratios = np.array([row.ratio for row in known])
    memory = np.array([row.megabytes / row.megabytes_expected for row in known])
    near = float(np.mean((memory >= 1 / FACTOR) & (memory <= FACTOR)))
    outside = ", ".join(f"{r.program} ({r.ratio:.1f})" for r in known if not r.within)
    return "\n".join(
        [
            f"{len(known)} programs, of {len(rows)}",
            f"seconds: median ratio {np.median(ratios):.2f}; within a factor of {FACTOR:g}: "
            f"{share:.0%}   {verdict(share, SHARE, at_most=False)}",
            f"megabytes: median ratio {np.median(memory):.2f}; within a factor of {FACTOR:g}: "
            f"{near:.0%}",
            f"outside: {outside or 'none'}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.costs", description=__doc__)
    parser.add_argument("--models", help="names with commas between; all of them by default")
    default = os.environ.get(VARIABLE)
    parser.add_argument("--posteriordb", type=Path, default=default and Path(default))
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for a program")
    options = parser.parse_args()
    jobs = [("stress", name) for name in programs()]
    if options.posteriordb is not None:
        sys.path.insert(0, str(options.posteriordb))
        jobs += [("posteriordb", name) for name in importlib.import_module("ports").names()]
    if options.models:
        wanted = set(options.models.split(","))
        jobs = [job for job in jobs if job[1] in wanted]
    print(HEADING)
    rows: dict[str, list[Row]] = {}
    for kind, name in jobs:
        row = row_of(kind, name, str(options.posteriordb), options.limit)
        rows.setdefault(kind, []).append(row)
        print(row, flush=True)
    for kind, found in rows.items():
        print(f"\n{kind}\n{summary(found)}")


if __name__ == "__main__":
    main()
