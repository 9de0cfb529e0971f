"""A run that is killed again and again: `python -m tests.store.lives RUN FOLDER SEED KILLS`.

Each life is a process of its own, forked before JAX starts. It goes on from the checkpoints that
the life before left and is killed (SIGKILL) at a random moment: one in four while it starts and
compiles, the others some time after their first write begins. Writes are slowed down, so that many
kills land inside them. A last life ends the run; another process makes it in one go. Both results
are written to the folder, with the number of kills and of those that landed in a write.
"""

import json
import mmap
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist

import lowerbound as lb
from lowerbound.store.checkpoint import Keeper, available
from tests.methods.stochastic.batched import numbers

PAUSE = 0.004  # seconds, before a write, and in it before the two fsync and the renaming
LONGEST = 0.4  # seconds that a life may last after its first write begins
STARTING = 1.5  # seconds within which a life that is killed early is killed


@dataclass(frozen=True)
class Run:
    """A run that needs more checkpoints than all its lives together can write."""

    model: Callable[..., None]
    arguments: Callable[[], tuple[Any, ...]]
    method: Any
    every: int


def sum_of_two(y):
    a = numpyro.sample("a", dist.Normal(0.0, 10.0))
    b = numpyro.sample("b", dist.Normal(1.0, 10.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(a + b, 1.0), obs=y)


def few_numbers(count: int = 5) -> tuple[np.ndarray]:
    return (np.random.default_rng(0).normal(size=count),)


APART = [("a",), ("b",)]


RUNS = {
    # The two sites are updated in turn, so that each sweep undoes 0.4% of what is left: all
    # sweeps differ.
    "cavi": Run(
        sum_of_two,
        few_numbers,
        lb.CAVI(blocks=APART, restarts=2, tolerance=0.0, max_sweeps=1500),
        every=3,
    ),
    # Evaluations are 3 steps apart, so that checkpoints lie between them.
    "svi": Run(
        sum_of_two,
        partial(few_numbers, 41),
        lb.SVI(
            batch_size=4,
            steps=2003,
            forgetting=0.6,
            monitor=None,
            details=lb.Details(blocks=APART, average=True),
        ),
        every=4,
    ),
    # A pass is 11 visits, so that most checkpoints lie inside one.
    "svi-memoized": Run(
        sum_of_two,
        partial(few_numbers, 41),
        lb.Memoized(batch_size=4, blocks=APART, visits=2003),
        every=4,
    ),
}


def go_on(run: Run, folder: Path) -> lb.Fit:
    args = run.arguments()
    if folder.is_dir() and available(folder):
        return lb.resume(folder, run.model, *args)
    checkpoint = lb.Checkpoint(folder, every=run.every)
    return lb.fit(run.model, *args, method=run.method, seed=3, checkpoint=checkpoint)


def slowed(function: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(PAUSE)
        return function(*args, **kwargs)

    return slow


def killed_after(seconds: float) -> None:
    def kill() -> None:
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()


def doomed(run: Run, folder: Path, delay: float, early: bool, inside: mmap.mmap) -> None:
    """A life that ends by a kill."""
    write, started = Keeper.write, []

    def slow_write(self: Keeper, step: int, document: dict[str, Any]) -> None:
        if not started and not early:
            killed_after(LONGEST * delay)
        started.append(step)
        time.sleep(PAUSE)
        inside[0] = 1
        write(self, step, document)
        inside[0] = 0

    if early:
        killed_after(STARTING * delay)
    Keeper.write = slow_write
    os.fsync, os.replace = slowed(os.fsync), slowed(os.replace)
    go_on(run, folder)


def forked(task: Callable[[], None]) -> int:
    """Run a task in a process of its own; how that process ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # JAX: it has not started yet
        child = os.fork()
    if child == 0:
        try:
            task()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(name: str, folder: Path, seed: int, kills: int) -> None:
    run, random = RUNS[name], np.random.default_rng(seed)
    inside, landed = mmap.mmap(-1, 1), 0
    for life in range(kills):
        inside[0] = 0
        delay, early = random.uniform(), life % 4 == 0
        code = forked(lambda: doomed(run, folder / "run", delay, early, inside))  # noqa: B023
        if code != -signal.SIGKILL:
            raise SystemExit(f"life {life} ended with {code}, before it was killed")
        landed += inside[0]
    tasks = {
        "interrupted": lambda: go_on(run, folder / "run"),
        "straight": lambda: lb.fit(run.model, *run.arguments(), method=run.method, seed=3),
    }
    for title, task in tasks.items():
        code = forked(lambda: np.savez(folder / title, **numbers(task())))  # noqa: B023
        if code != 0:
            raise SystemExit(f"the {title} run ended with {code}")
    print(json.dumps({"kills": kills, "inside": landed}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
