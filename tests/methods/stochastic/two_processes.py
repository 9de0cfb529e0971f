"""One of two processes that fit together: `python -m ... TASK ADDRESS RANK`.

`rows FOLDER ROWS PART` fits models to arrays that both processes hold and to Parquet files of which
each reads its own share; `files-alone FOLDER ROWS PART` fits the files in one process with two
devices;
`go-on FOLDER HOW PAUSE` starts a run with checkpoints in the folder, or goes on with the one there.
"""

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow.parquet as pq

import lowerbound as lb
from lowerbound.errors import ArgumentError
from lowerbound.store.checkpoint import Keeper, found
from tests.methods.stochastic.batched import METHODS, MODELS, batched, lasting, numbers
from tests.run import models

# What is fitted, in two parts: either has arrays and files, stochastic steps and memoised visits.
ARRAYS = {"first": [("topics", "memoized")], "second": [("mixture", "averaged")]}
FILES = {
    "first": {"plain": lb.SVI(batch_size=16, steps=20, monitor=None)},
    "second": {"memoized": lb.Memoized(batch_size=16, visits=30, monitor=20)},
}


def arrays(rank: int, folder: Path, part: str) -> None:
    for name, how in ARRAYS[part]:
        np.savez(folder / f"{name}-{how}-{rank}", **numbers(batched(name, how, "all")))
    # Every process must hold the same rows.
    other = {**MODELS["mixture"].arguments, "x": np.arange(60.0).reshape(30, 2) + rank}
    method = lb.SVI(batch_size=4, steps=1)
    try:
        with lb.computing(devices="all"):
            lb.fit(models.mixture, **other, method=method)
    except ArgumentError as error:
        print(error)


def fit_files(rows: Path, method: Any) -> lb.Fit:
    columns = lb.stream(rows, x=["a", "b"])
    with lb.computing(devices="all"):
        return lb.fit(models.mixture, **columns, K=3, method=method, seed=1, progress=False)


def files(rank: int, folder: Path, rows: Path, part: str) -> None:
    read: set[tuple[str, int]] = set()
    iter_batches = pq.ParquetFile.iter_batches

    def recorded(self: Any, *args: Any, row_groups: list[int], **kwargs: Any) -> Any:
        for group in row_groups:
            start = sum(self.metadata.row_group(g).num_rows for g in range(group))
            read.add((Path(names[id(self)]).name, start))
        return iter_batches(self, *args, row_groups=row_groups, **kwargs)

    names: dict[int, str] = {}
    init = pq.ParquetFile.__init__

    def named(self: Any, source: Any, *args: Any, **kwargs: Any) -> None:
        names[id(self)] = str(source)
        init(self, source, *args, **kwargs)

    pq.ParquetFile.__init__, pq.ParquetFile.iter_batches = named, recorded
    for how, method in FILES[part].items():
        read.clear()
        np.savez(folder / f"{how}-{rank}", **numbers(fit_files(rows, method)))
        (folder / f"{how}-{rank}.json").write_text(json.dumps(sorted(read)))


def go_on(rank: int, folder: Path, how: str, pause: float) -> None:
    """A run that pauses before each checkpoint, so that it can be killed anywhere."""
    write = Keeper.write

    def slow(self: Keeper, step: int, document: dict[str, Any]) -> None:
        time.sleep(pause)
        write(self, step, document)
        print(step, flush=True)

    Keeper.write = slow  # type: ignore[method-assign]
    chosen, run = MODELS["regression"], folder / "run"
    if run.is_dir() and {who for _, who, _ in found(run)} == {0, 1}:
        fit = lb.resume(run, chosen.model, **chosen.arguments)
    else:
        method = lasting(METHODS[how], 60, batch_size=chosen.batch_size)
        options = {"method": method, "seed": 1, "checkpoint": lb.Checkpoint(run, every=4)}
        with lb.computing(devices="all"):
            fit = lb.fit(chosen.model, **chosen.arguments, **options)
    np.savez(folder / f"result-{rank}", **numbers(fit))


def main(task: str, address: str, rank: int, folder: Path, *rest: str) -> None:
    if task == "files-alone":
        jax.config.update("jax_num_cpu_devices", 2)
        files(rank, folder, Path(rest[0]), rest[1])
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, 2, rank)
    if task == "rows":
        arrays(rank, folder, rest[1])
        files(rank, folder, Path(rest[0]), rest[1])
    else:
        go_on(rank, folder, rest[0], float(rest[1]))
    jax.distributed.shutdown()


if __name__ == "__main__":
    warnings.simplefilter("error")
    with lb.computing(verdicts=False):  # a few steps lead nowhere near
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), *sys.argv[5:])
