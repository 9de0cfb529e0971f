"""Does anything hang? Public calls with batched linear algebra, on pools of 1 to 4 threads.

    python -m benchmarks.hang [--pools 1,2,3,4] [--times 100] [--only grid,sweeps] [--limit 120]
    python -m benchmarks.hang --audit [--only ...]

Every case of every pool has a process of its own, which repeats the fit and everything that it can
be asked. A call that takes longer than the limit is a hang: its stacks are printed, and the exit
code is 1. `--audit` reads instead what XLA compiled for one round of each case, whoever had it
compiled, and names the kernels that would divide their batch over the pool.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.hang_calls import Case, calls, cases, fitted, judged
from lowerbound.compiled.unsplit import batch_and_most, kernels_divide

FITS = 20  # the fit itself, and what judges it, are repeated once in so many rounds
KERNEL = re.compile(
    r'custom_call_target="lapack_([sdcz])(\w+?)_ffi", operand_layout_constraints=\{(.*?\})\}'
)
SHAPE = re.compile(r"\w\d+\[([\d,]*)\]")
OPERATIONS = {
    "potrf": "cholesky",
    "trsm": "triangular_solve",
    "getrf": "lu",
    "geqrf": "geqrf",
    "geqp3": "geqp3",
    "orgqr": "householder_product",
    "ungqr": "householder_product",
    "ormqr": "ormqr",
    "unmqr": "ormqr",
    "gesdd": "svd",
    "gesvd": "svd",
    "syevd": "eigh",
    "heevd": "eigh",
    "geev": "eig",
    "gees": "schur",
    "gehrd": "hessenberg",
    "sytrd": "tridiagonal",
    "hetrd": "tridiagonal",
    "gtsv": "tridiagonal_solve",
}


def repeat(case: Case, times: int, limit: float) -> None:
    """The worker: rounds of calls, each with so many seconds."""
    for number in range(times):
        faulthandler.dump_traceback_later(limit, exit=True)
        if number % FITS == 0:
            fit = fitted(case, seed=number)
            faulthandler.dump_traceback_later(limit, exit=True)
            judged(fit, seed=number)
            faulthandler.dump_traceback_later(limit, exit=True)
        calls(case, fit, seed=number)
        faulthandler.cancel_dump_traceback_later()
        print(f"round {number + 1} of {times} ended", flush=True)


def started(name: str, pool: int, times: int, limit: float, flags: str = "") -> tuple[int, str]:
    """One case in a process of its own; its exit code and what it printed."""
    command = [sys.executable, "-m", "benchmarks.hang", "--worker", name]
    command += ["--times", str(times), "--limit", str(limit)]
    environment = {**os.environ, "NPROC": str(pool), "JAX_PLATFORMS": "cpu"}
    if flags:
        environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
        environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # what is read again is not dumped
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=times * limit
        )
    except subprocess.TimeoutExpired as late:
        return -1, str(late)
    return done.returncode, done.stdout + done.stderr


def stress(names: Sequence[str], pools: Sequence[int], times: int, limit: float) -> int:
    """A line for every case and pool; the number of those that did not end."""
    failures = 0
    print(f"{'case':20s} {'threads':>8s} {'rounds':>7s} {'seconds':>8s}")
    for name in names:
        for pool in pools:
            began = time.perf_counter()
            code, text = started(name, pool, times, limit)
            seconds = time.perf_counter() - began
            said = "" if code == 0 else "HANGS" if "Timeout (" in text or code == -1 else "FAILS"
            print(f"{name:20s} {pool:8d} {times:7d} {seconds:8.0f}  {said}", flush=True)
            if said:
                failures += 1
                print(text)
    return failures


def divided(folder: Path) -> Iterator[tuple[str, str]]:
    """The compiled programs in a folder with kernels that would divide a batch, and these."""
    for path in sorted(folder.glob("*after_optimizations.txt")):
        for kind, kernel, operands in KERNEL.findall(path.read_text()):
            shapes = [tuple(int(n) for n in s.split(",") if n) for s in SHAPE.findall(operands)]
            found = batch_and_most(OPERATIONS[kernel], shapes, complex_=kind in "cz")
            assert found is not None
            if found[0] > found[1]:
                yield path.name, f"{kernel} of {shapes}"


def audit(names: Sequence[str], limit: float, pool: int = 1) -> int:
    """Read what is compiled for every case; the number of kernels that might wait."""
    failures = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
            code, text = started(name, pool, 1, limit, flags)
            programs = len(list(Path(folder).glob("*after_optimizations.txt")))
            found = list(divided(Path(folder))) if kernels_divide() else []
        print(f"{name:20s} {programs:5d} programs, {len(found)} kernels that divide", flush=True)
        for program, kernel in found:
            print(f"    {kernel}   in {program}")
        if code:
            print(text)
        failures += len(found) + (code != 0)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pools", default="1,2,3,4", help="threads of XLA's pool")
    parser.add_argument("--times", type=int, default=100, help="rounds of calls in each process")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of one round")
    parser.add_argument("--only", default="", help="names of cases, with commas between them")
    parser.add_argument("--audit", action="store_true", help="read what XLA compiles instead")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        repeat(cases()[given.worker], given.times, given.limit)
        return 0
    names = given.only.split(",") if given.only else list(cases())
    if given.audit:
        if not kernels_divide():
            print("The kernels of this jaxlib divide nothing.")
            return 0
        return int(audit(names, given.limit) > 0)
    pools = [int(pool) for pool in given.pools.split(",")]
    return int(stress(names, pools, given.times, given.limit) > 0)


if __name__ == "__main__":
    sys.exit(main())
