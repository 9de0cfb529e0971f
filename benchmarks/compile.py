"""Derive and compile: the first fit of every model of the test zoo, each in a fresh process.

`python -m benchmarks.compile NAME` measures one model and prints its seconds as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

from benchmarks.timing import verdict

EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "XLA",
}


def main() -> None:
    from tests.models.zoo import CASES

    print(
        f"{'model':34s} {'first':>7s} {'XLA':>7s} {'CPU':>7s} {'programs':>9s} "
        f"{'second':>7s} {'recompiled':>11s}   seconds"
    )
    slowest = 0.0
    again = 0
    for case in CASES:
        found = in_fresh_process(case.name)
        slowest = max(slowest, found["first"])
        again += found["recompiled"]
        print(
            f"{case.name:34s} {found['first']:7.2f} {found['XLA']:7.2f} {found['CPU']:7.2f} "
            f"{found['programs']:9d} {found['second']:7.2f} {found['recompiled']:11d}",
            flush=True,
        )
    print(f"slowest first fit {slowest:.2f} s   {verdict(slowest, 5.0)}")
    print(f"programs compiled by second fits: {again}   {verdict(again, 0)}")


def in_fresh_process(name: str) -> dict:
    """The measurements of one model, from a process that has compiled nothing."""
    command = [sys.executable, "-m", "benchmarks.compile", name]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(name: str) -> dict:
    """First fit, then a second one with other data of the same shapes."""
    import jax.monitoring

    import lowerbound.names as lb
    from tests.models.zoo import CASES

    seconds: Counter[str] = Counter()
    programs: Counter[str] = Counter()

    def listen(event: str, duration: float, **_: object) -> None:
        if event in EVENTS:
            seconds[EVENTS[event]] += duration
            programs[EVENTS[event]] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    case = next(case for case in CASES if case.name == name)

    def fit(seed: int) -> float:
        args, kwargs = case.arguments(seed)
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lb.fit(case.model, *args, **kwargs, method=lb.CAVI(max_sweeps=50), seed=seed)
        return time.perf_counter() - start

    before = time.process_time()
    first = fit(0)
    busy = time.process_time() - before
    compiled, xla = programs["XLA"], seconds["XLA"]
    second = fit(1)
    return {
        "first": first,
        "XLA": xla,
        "CPU": busy,
        "programs": compiled,
        "second": second,
        "recompiled": programs["XLA"] - compiled,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
