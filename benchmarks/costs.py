"""What `lb.explain` expects a fit to cost, against what a cold fit takes: seconds and megabytes.

Every program has a process of its own. Seconds are those of the processor; megabytes are those by
which the peak of the process grows. The programs are those of `benchmarks.stress_models`, of
`benchmarks.cost_models`, of posteriordb where its folder is given, and of a source tree of NumPyro
where one is. Half of them, by the hash of their names, are to be kept aside when constants are set:
how many of these are right is printed as well. Those of Gaussians were set with both halves.
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
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import cost_models, stress_models
from benchmarks.foretold import HEADING, Foretold, summary
from benchmarks.peak import Peak
from benchmarks.posteriordb import VARIABLE, one_line
from benchmarks.programs.found import of_numpyro
from benchmarks.programs.watch import Limits, rows_of

LOADERS = {"stress": stress_models.load, "own": cost_models.load}


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


def of_tree(tree: Path, pattern: str, limit: float) -> Iterator[Foretold]:
    """The rows of the programs of a source tree of NumPyro; a program may hold several models."""
    limits = Limits(fit=limit, program=limit, processor=True)
    with tempfile.TemporaryDirectory(prefix="costs-") as logs:
        for program in of_numpyro(tree, pattern):
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
    options = parser.parse_args()
    names = {"stress": list(stress_models.programs()), "own": list(cost_models.PROGRAMS)}
    if options.posteriordb is not None:
        sys.path.insert(0, str(options.posteriordb))
        names["posteriordb"] = list(importlib.import_module("ports").names())
    folder = str(options.posteriordb)
    rows: dict[str, list[Foretold]] = {}
    print(HEADING)
    for source, found in names.items():
        for name in found:
            if re.search(options.only, name):
                row = of_process(source, name, folder, options.limit)
                rows.setdefault(source, []).append(row)
                print(row, flush=True)
    if options.numpyro is not None:
        for row in of_tree(options.numpyro, options.only, options.limit):
            rows.setdefault("numpyro", []).append(row)
            print(row, flush=True)
    print()
    for source, own in rows.items():
        print(summary(source, own))
    if len(rows) > 1:
        print(summary("all", [row for own in rows.values() for row in own]))


if __name__ == "__main__":
    main()
