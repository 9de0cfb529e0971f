"""`python -m benchmarks.programs --numpyro PATH`: see the package's docstring."""

from __future__ import annotations

import argparse
import json
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import LifoQueue

from benchmarks.programs.found import Program, of_numpyro, programs
from benchmarks.programs.rows import HEADING, Row, summary
from benchmarks.programs.watch import Limits, end_all, rows_of


def main() -> None:
    import benchmarks.programs

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.programs", description=benchmarks.programs.__doc__
    )
    tree = parser.add_mutually_exclusive_group(required=True)
    tree.add_argument("--numpyro", type=Path, help="a source tree of NumPyro")
    tree.add_argument("--tree", type=Path, help="any tree of scripts and notebooks")
    parser.add_argument("--only", default="", metavar="PATTERN", help="programs by their paths")
    parser.add_argument("--no-nuts", action="store_true", help="no comparison")
    parser.add_argument("--no-explain", action="store_true", help="no plans")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds of a fit")
    parser.add_argument("--nuts-limit", type=float, default=300.0, help="seconds of NUTS")
    parser.add_argument("--processor", action="store_true", help="limits of processor seconds")
    parser.add_argument("--jobs", type=int, default=1, help="programs at once")
    parser.add_argument("--output", type=Path, default=Path("output/programs"), help="a folder")
    options = parser.parse_args()
    find = of_numpyro if options.numpyro else programs
    found = list(find(options.numpyro or options.tree, options.only))
    limits = Limits(fit=options.limit, nuts=options.nuts_limit, processor=options.processor)
    tasks = [t for t in ("explain", "nuts") if not getattr(options, f"no_{t}")]
    options.output.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, end_all)
    signal.signal(signal.SIGINT, end_all)
    rows: list[Row] = []
    waiting: LifoQueue[Program | None] = LifoQueue()  # the variants of a program come next
    for program in reversed(found):
        waiting.put(program)
    print(HEADING, flush=True)
    with (options.output / "rows.jsonl").open("a" if options.only else "w") as kept:

        def run(program: Program) -> None:
            for row in rows_of(program, limits, tasks, options.output / "logs", waiting.put):
                print(row, flush=True)
                rows.append(row)
                kept.write(json.dumps(asdict(row)) + "\n")
                kept.flush()

        def work() -> None:
            while True:
                program = waiting.get()
                try:
                    if program is None:
                        return
                    run(program)
                finally:
                    waiting.task_done()

        with ThreadPoolExecutor(options.jobs) as pool:
            workers = [pool.submit(work) for _ in range(options.jobs)]
            waiting.join()
            for _ in workers:
                waiting.put(None)
            for worker in workers:
                worker.result()
    print(f"\n{summary(rows)}", flush=True)


if __name__ == "__main__":
    main()
