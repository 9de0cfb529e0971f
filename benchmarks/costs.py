"""What `lb.explain` expects a fit to cost, against what a cold fit takes: seconds and megabytes.

Every program has a process of its own. Seconds are those of the processor; megabytes are those by
which the peak of the process grows. The programs are those of `benchmarks.stress_models`, of
`benchmarks.hierarchy_models`, of `benchmarks.cost_models`, of posteriordb where its folder is
given, and of a source tree of NumPyro where one is. Half of them, by the hash of their names, are
to be kept aside when constants are set: how many of these are right is printed as well. Those of
Gaussians were set with both halves.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import math
import multiprocessing
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import cost_models, hierarchy_models, stress_models
from benchmarks.foretold import HEADING, Foretold, summary
from benchmarks.peak import Peak
from benchmarks.posteriordb import VARIABLE, one_line
from benchmarks.programs.found import Program, of_numpyro
from benchmarks.programs.watch import Limits, rows_of

LOADERS = {
    "stress": stress_models.load,
    "own": cost_models.load,
    "hierarchies": lambda name: hierarchy_models.programs()[name],
}


def work(pipe: Any, source: str, name: str, folder: str) -> None:
    """Fit one program, cold, and send its row."""
    import jax

    import lowerbound.names as lb
    from lowerbound.cost import Cost

    warnings.simplefilter("ignore")
    if source in LOADERS:
        program: Any = LOADERS[source](name)
    else:
        sys.path.insert(0, folder)
        program = importlib.import_module("ports").load(name)
    jax.block_until_ready(jax.numpy.zeros(1) + 1)  # the backend's own start is no part of a fit
    try:
        peak, began = Peak(), time.process_time()
        fit = lb.fit(program.model, **program.data)
        seconds = time.process_time() - began
        grown = peak.grown
        with contextlib.redirect_stdout(io.StringIO()):
            cost = lb.explain(program.model, **program.data).cost  # of the rung that is tried first
        cost = Cost(math.nan, math.nan) if cost is None else cost
        found = Foretold(name, fit.method, cost.seconds, seconds, cost.megabytes, grown)
        pipe.send(replace(found, within=cost.within))
    except Exception as error:
        pipe.send(Foretold(name, reason=one_line(error)))


def of_process(source: str, name: str, folder: str, limit: float) -> Foretold:
    """The row of a program, from a process of its own."""
    context = multiprocessing.get_context("spawn")
    pipe, end = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(end, source, name, folder), daemon=True)
    process.start()
    end.close()
    late = Foretold(name, reason=f"no end within {limit:g} s")
    try:
        row = pipe.recv() if pipe.poll(limit) else late
    except EOFError:
        row = Foretold(name, reason="the process ended")
    process.kill()
    process.join()
    return row  # type: ignore[no-any-return]


def of_program(program: Program, limit: float) -> Iterator[Foretold]:
    """The rows of a program of a source tree of NumPyro, which may hold several models."""
    limits = Limits(fit=limit, program=limit, processor=True)
    with tempfile.TemporaryDirectory(prefix="costs-") as logs:
        for row in rows_of(program, limits, ("explain",), Path(logs)):
            if row.model:
                yield Foretold(
                    f"{row.program}:{row.ordinal}:{row.model}",
                    row.rung.partition(":")[0],
                    row.expected,
                    row.cpu if row.outcome == "result" else math.nan,
                    row.expected_mb,
                    row.megabytes,
                    row.reason,
                )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.costs", description=__doc__)
    parser.add_argument("--only", default="", metavar="PATTERN", help="programs by their names")
    default = os.environ.get(VARIABLE)
    parser.add_argument("--posteriordb", type=Path, default=default and Path(default))
    parser.add_argument("--numpyro", type=Path, help="a source tree of NumPyro")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for a program")
    parser.add_argument("--jobs", type=int, default=1, help="programs at once")
    options = parser.parse_args()
    names = {
        "stress": list(stress_models.programs()),
        "own": list(cost_models.PROGRAMS),
        "hierarchies": list(hierarchy_models.programs()),
    }
    if options.posteriordb is not None:
        sys.path.insert(0, str(options.posteriordb))
        names["posteriordb"] = list(importlib.import_module("ports").names())
    rows: dict[str, list[Foretold]] = {}

    def keep(source: str, found: Callable[[], Iterable[Foretold]]) -> None:
        for row in found():
            rows.setdefault(source, []).append(row)
            print(row, flush=True)

    def one(source: str, name: str) -> Iterable[Foretold]:
        return [of_process(source, name, str(options.posteriordb), options.limit)]

    print(HEADING)
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = [
            pool.submit(keep, source, partial(one, source, name))
            for source, found in names.items()
            for name in found
            if re.search(options.only, name)
        ]
        for program in of_numpyro(options.numpyro, options.only) if options.numpyro else ():
            found = partial(of_program, program, options.limit)
            waiting.append(pool.submit(keep, "numpyro", found))
        for done in waiting:
            done.result()
    print()
    for source, own in rows.items():
        print(summary(source, own))
    if len(rows) > 1:
        print(summary("all", [row for own in rows.values() for row in own]))


if __name__ == "__main__":
    main()
