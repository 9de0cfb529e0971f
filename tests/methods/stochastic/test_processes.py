"""Two processes that fit together, each with its own rows: the numbers of one, also after a kill.

They run in `two_processes`, joined by jax.distributed, and exchange sums over gloo.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from queue import Queue

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.methods.stochastic.batched import assert_close, batched, numbers, stored
from tests.methods.stochastic.two_processes import ARRAYS, FILES
from tests.run import models

ROOT = Path(__file__).parents[3]
SECONDS = 240
GRACE = 5  # seconds in which a process whose partner was killed may end by itself
GROUP = 25  # rows in a row group


def start(task: str, address: str, rank: int, *arguments: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.methods.stochastic.two_processes"),
            *map(str, (task, address, rank, *arguments)),
        ],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def pair(task: str, *arguments: object):
    """Both processes; none outlives the test."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    both = [start(task, address, rank, *arguments) for rank in (0, 1)]
    try:
        yield both
    finally:
        for process in both:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()


def finished(task: str, *arguments: object) -> list[str]:
    """What both print until they end."""
    with pair(task, *arguments) as both:
        ended = [process.communicate(timeout=SECONDS) for process in both]
        for process, (_, errors) in zip(both, ended, strict=True):
            assert process.returncode == 0, errors[-4000:]
    return [printed for printed, _ in ended]


@dataclass(frozen=True)
class Together:
    """What two processes printed, and the folder they wrote to."""

    part: str
    folder: Path
    printed: list[str]


@pytest.fixture(scope="module", params=["first", pytest.param("second", marks=pytest.mark.slow)])
def together(request, tmp_path_factory) -> Together:
    folder = tmp_path_factory.mktemp("together")
    write_rows(folder / "rows")
    part = request.param
    return Together(part, folder, finished("rows", folder, folder / "rows", part))


def test_two_processes_give_the_numbers_of_one(together):
    """Arrays: each process takes its share of every batch, and of every batch of a pass."""
    for name, how in ARRAYS[together.part]:
        expected = numbers(batched(name, how))
        for rank in (0, 1):
            assert_close(stored(together.folder / f"{name}-{how}-{rank}.npz"), expected)


def test_processes_must_hold_the_same_rows(together):
    for text in together.printed:
        assert text.endswith(
            "Argument 'x' of process 1 differs from that of process 0.\n"
            "Expected the same call of fit in every process: each takes its own rows of the same "
            "data.\n"
        )


ENDS = (0, 150, 153, 410)  # of the rows of three files


def write_rows(folder: Path) -> None:
    folder.mkdir()
    rows = models.clusters(n=ENDS[-1])[0]
    for number, (low, high) in enumerate(pairwise(ENDS)):
        table = pa.table({"a": rows[low:high, 0], "b": rows[low:high, 1]})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=GROUP)


def test_two_processes_share_files(together, tmp_path):
    """The numbers of one process, and each reads the row groups of its own half of the rows."""
    folder = together.folder
    one = start("files-alone", "none", 0, tmp_path, folder / "rows", together.part)
    _, errors = one.communicate(timeout=SECONDS)
    assert one.returncode == 0, errors[-4000:]
    for how in FILES[together.part]:
        for rank in (0, 1):
            assert_close(stored(folder / f"{how}-{rank}.npz"), stored(tmp_path / f"{how}-0.npz"))
    if "plain" not in FILES[together.part]:
        return
    half = (ENDS[-1] + 1) // 2 + 1  # lanes differ by one row at most
    # Rows held out are read by everyone; the plain fit has none.
    read = [json.loads((folder / f"plain-{rank}.json").read_text()) for rank in (0, 1)]
    starts = [np.array([ENDS[int(file[0])] + row for file, row in own]) for own in read]
    assert starts[0].max() < half
    # Everyone looks at the first row of all, to see what a row is.
    assert starts[1].min() == 0
    assert (starts[1][starts[1] > 0] + GROUP > ENDS[-1] - half).all()
    assert len({*starts[0], *starts[1]}) == 18


# --- Kills ---


def printing(process: subprocess.Popen[str], lines: Queue[str]) -> None:
    threading.Thread(target=lambda: [*map(lines.put, process.stdout)], daemon=True).start()


def one_is_killed(folder: Path, how: str, victim: int, writes: int) -> None:
    """Both go on until one, after so many checkpoints of its own in this life, is killed."""
    with pair("go-on", folder, how, 0.02) as both:
        lines: list[Queue[str]] = [Queue(), Queue()]
        for process, own in zip(both, lines, strict=True):
            printing(process, own)
        # The other must have written once too, or there is nothing to go on from.
        lines[1 - victim].get(timeout=SECONDS)
        for _ in range(writes):
            lines[victim].get(timeout=SECONDS)
        assert both[victim].poll() is None, "it ended before it was killed"
        both[victim].kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            assert both[1 - victim].wait(GRACE) != 0


@pytest.mark.parametrize(
    ("how", "kills"),
    [
        pytest.param("memoized", 3, marks=pytest.mark.slow),
        pytest.param("averaged", 3, marks=pytest.mark.slow),
    ],
)
def test_when_one_of_two_processes_is_killed(how, kills, tmp_path):
    """Started again, both end as if neither had stopped, bit for bit."""
    random = np.random.default_rng(kills)
    for folder in ("killed", "straight"):
        (tmp_path / folder).mkdir()
    for _ in range(kills):
        victim, writes = int(random.integers(2)), int(random.integers(1, 4))
        one_is_killed(tmp_path / "killed", how, victim, writes)
    finished("go-on", tmp_path / "killed", how, 0)
    finished("go-on", tmp_path / "straight", how, 0)
    expected = stored(tmp_path / "straight" / "result-0.npz")
    for folder, rank in (("straight", 1), ("killed", 0), ("killed", 1)):
        found = stored(tmp_path / folder / f"result-{rank}.npz")
        assert set(found) == set(expected)
        for key, value in expected.items():
            np.testing.assert_array_equal(found[key], value, err_msg=f"{folder} {rank} {key}")
