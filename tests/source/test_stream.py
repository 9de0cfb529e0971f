"""Laws of rows that are streamed: from Parquet files, and from objects that give batches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lowerbound.source import lanes, parquet
from lowerbound.source.batches import Batches
from lowerbound.source.call import open_call
from lowerbound.source.stream import stream

N = 1003


def model(x, y=None):
    pass


def table(low: int, high: int) -> pa.Table:
    rows = np.arange(low, high)
    return pa.table({"id": rows, "a": rows + 0.25, "b": (-rows).astype(np.float32)})


@pytest.fixture
def folder(tmp_path):
    """Three files of unequal length and row groups of 64 rows, one of them in a subfolder."""
    (tmp_path / "later").mkdir()
    for name, low, high in (("1", 0, 400), ("2", 400, 407), ("later/3", 407, N)):
        pq.write_table(table(low, high), tmp_path / f"{name}.parquet", row_group_size=64)
    return tmp_path


@pytest.fixture
def small_windows(monkeypatch):
    monkeypatch.setattr(parquet, "WINDOW", 50)
    monkeypatch.setattr(parquet, "READ", 20)


def opened(columns):
    return open_call(model, (), columns).source(list(columns))


def ids(batches, start, stop, steps=3, name="x"):
    return np.concatenate([chunk[name] for chunk in batches.chunks(start, steps, stop)])


class Again:
    """Batches of the rows 0 .. n-1, afresh in every pass."""

    def __init__(self, n=N, size=37, make=lambda rows: {"x": rows}):
        self.n, self.size, self.make = n, size, make

    def __iter__(self):
        for low in range(0, self.n, self.size):
            yield self.make(np.arange(low, min(low + self.size, self.n)))


def test_columns_of_files_become_arguments(folder):
    columns = stream(folder, x=["a", "b"], y="id")
    assert repr(columns["x"]) == (
        f"<stream of 'a', 'b' from 3 Parquet files ({folder}/1.parquet, ...), shape (1003, 2)>"
    )
    assert columns["x"].reader is columns["y"].reader
    call = open_call(model, (), columns)
    assert call.lengths == {"x": N, "y": N}
    _, outline = call.outline()
    assert {k: (v.shape, v.dtype.name, v.strides[0]) for k, v in outline.items()} == {
        "x": ((N, 2), "float64", 0),
        "y": ((N,), "int64", 0),
    }
    np.testing.assert_array_equal(outline["x"][3], [0.25, 0.0])
    for batch in Batches(call.source(["x", "y"]), 100, seed=0).lap():
        np.testing.assert_array_equal(batch["x"], np.c_[batch["y"] + 0.25, -batch["y"]])
    single = open_call(model, (), stream(folder, x="b")).source(["x"])
    assert next(Batches(single, 100, seed=0).lap())["x"].dtype == np.float32


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("aside", [0, 1, 100])
@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_processes_share_the_rows_of_files(folder, aside, parts):
    source = opened(stream(folder, x="id"))
    processes = [Batches(source, 24, 7, held_out=aside, part=(p, parts)) for p in range(parts)]
    held = processes[0].held_out_rows()["x"]
    assert len(np.unique(held)) == aside
    laps, draws = [], []
    for process in processes:
        np.testing.assert_array_equal(process.held_out_rows()["x"], held)
        lap = [batch["x"] for batch in process.lap()]
        assert all(len(batch) <= 24 // parts for batch in lap)
        laps.append(lap)
        steps = 2 * N // 24
        draws.append(ids(process, 0, steps))
        assert draws[-1].shape == (steps, 24 // parts)
        # Each process reads its own lanes alone.
        assert np.isin(draws[-1], np.concatenate(lap)).all()
    assert len({len(lap) for lap in laps}) == 1
    found = np.concatenate([np.concatenate(lap) for lap in laps])
    np.testing.assert_array_equal(np.sort(np.r_[found, held]), np.arange(N))


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("aside", [0, 1, 2, 100])
@pytest.mark.parametrize("parts", [2, 4])
def test_batches_of_files_do_not_depend_on_the_number_of_processes(folder, aside, parts):
    """Drawn batches are the same in the same order; those of a lap hold the same rows."""
    source = opened(stream(folder, x="id"))
    whole = Batches(source, 24, 7, held_out=aside)
    processes = [Batches(source, 24, 7, held_out=aside, part=(p, parts)) for p in range(parts)]
    shared = np.concatenate([ids(process, 3, 90) for process in processes], axis=1)
    np.testing.assert_array_equal(shared, ids(whole, 3, 90))
    laps = [[batch["x"] for batch in process.lap()] for process in processes]
    for shares, batch in zip(zip(*laps, strict=True), whole.lap(), strict=True):
        np.testing.assert_array_equal(np.sort(np.concatenate(shares)), np.sort(batch["x"]))


@pytest.mark.parametrize("size", [12, 30, 252])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_the_sizes_of_the_batches_of_a_lap(folder, size, parts):
    """Whether or not the lanes of a process divide its share of a batch."""
    source = opened(stream(folder, x="id"))
    processes = [Batches(source, size, 7, held_out=1, part=(p, parts)) for p in range(parts)]
    lengths = [[len(batch["x"]) for batch in process.lap()] for process in processes]
    for process in processes:
        np.testing.assert_array_equal(process.lap_sizes, np.sum(lengths, axis=0))
    assert processes[0].lap_sizes.all()
    assert processes[0].lap_sizes.sum() == N - 1


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize(("n", "aside"), [(1003, 103), (1003, 3), (1000, 0)])
def test_every_epoch_of_files_draws_every_row_once(tmp_path, n, aside):
    pq.write_table(table(0, n), tmp_path / "rows.parquet", row_group_size=64)
    batches = Batches(opened(stream(tmp_path / "rows.parquet", x="id")), 10, 3, held_out=aside)
    assert batches.total % 20 == 0
    steps = batches.total // 10
    first, second = ids(batches, 0, steps).ravel(), ids(batches, steps, 2 * steps).ravel()
    left = np.setdiff1d(np.arange(n), batches.held_out_rows()["x"])
    np.testing.assert_array_equal(np.sort(first), left)
    np.testing.assert_array_equal(np.sort(second), left)
    assert not np.array_equal(first, second)
    # Rows of one batch come from all quarters of the file.
    quarters = np.searchsorted(left, first.reshape(-1, 10)) * 4 // len(left)
    assert all(len(np.unique(batch)) == 4 for batch in quarters)


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("size", [10, 24])
def test_a_stream_of_files_starts_at_any_batch(folder, size):
    batches = Batches(opened(stream(folder, x="id")), size, 5, held_out=40)
    straight = ids(batches, 0, 150)
    np.testing.assert_array_equal(ids(batches, 0, 150, steps=150), straight)
    for start in (1, 17, 96, 149):
        np.testing.assert_array_equal(ids(batches, start, 150, steps=7), straight[start:])
    other = Batches(opened(stream(folder, x="id")), size, 6, held_out=40)
    assert not np.array_equal(ids(other, 0, 150), straight)


def test_starting_late_reads_no_more_than_one_row_group_of_each_lane(folder, monkeypatch):
    monkeypatch.setattr(parquet, "WINDOW", 64)
    read = []
    iter_batches = pq.ParquetFile.iter_batches

    def watched(self, size, row_groups, columns):
        read.extend(row_groups)
        return iter_batches(self, size, row_groups=row_groups, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    source = opened(stream(folder, x="id"))
    order = Batches(source, 8, seed=0)._order
    next(source.read(order, 8 * 100, [8]))
    # A window of 64 rows spans at most three pieces of 64 rows or fewer, in each of four lanes.
    assert 4 <= len(read) <= 12


def test_memory_does_not_grow_with_the_row_groups(tmp_path):
    values = np.random.default_rng(0).standard_normal(400_000)
    peaks = []
    # Both have row groups of more than a page, which is what the reader must hold.
    for rows in (100_000, 400_000):
        pq.write_table(pa.table({"a": values}), tmp_path / "rows.parquet", row_group_size=rows)
        batches = Batches(opened(stream(tmp_path / "rows.parquet", x="a")), 64, seed=0)
        before, peak = pa.total_allocated_bytes(), 0
        for _ in batches.chunks(0, 100, 2000):
            peak = max(peak, pa.total_allocated_bytes() - before)
        peaks.append(peak)
    assert peaks[1] < 1.6 * peaks[0]


def test_tiny_files_have_fewer_lanes(tmp_path):
    pq.write_table(table(0, 3), tmp_path / "rows.parquet")
    batches = Batches(opened(stream(str(tmp_path / "rows.parquet"), x="id")), 2, 0, held_out=1)
    assert set(ids(batches, 0, 4).ravel()) | set(batches.held_out_rows()["x"]) == {0, 1, 2}


@pytest.mark.parametrize("held_out", [0, 1, 5, 16, 500, 996])
@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_lanes_and_runs_partition_the_rows(held_out, parts):
    for seed in range(5):
        divided = lanes.divide(N, held_out, parts, np.random.default_rng(seed))
        assert len(divided) % parts == 0
        runs = sorted(run for lane in divided for run in (*lane.drawn, *lane.aside))
        assert runs[0][0] == 0
        assert runs[-1][1] == N
        assert all(a[1] == b[0] for a, b in pairwise(runs))
        assert sum(b - a for lane in divided for a, b in lane.aside) == held_out
        assert max(lane.rows for lane in divided) - min(lane.rows for lane in divided) <= 1


def test_held_out_rows_of_files_differ_by_seed_and_lie_in_many_places(folder):
    source = opened(stream(folder, x="id"))
    held = [Batches(source, 4, seed, held_out=160).held_out_rows()["x"] for seed in (0, 1)]
    assert not np.array_equal(*held)
    for rows in held:
        assert np.count_nonzero(np.diff(rows) > 1) + 1 >= 8


@pytest.mark.parametrize(
    "make",
    [
        lambda rows: {"x": rows},
        lambda rows: {"x": pd.Series(rows)},
        lambda rows: pd.DataFrame({"x": rows}),
        lambda rows: pl.DataFrame({"x": rows}),
        lambda rows: pa.table({"x": rows}),
        lambda rows: pa.record_batch({"x": rows}),
    ],
)
def test_batches_that_can_be_read_again_are_cut_anew(make):
    batches = Batches(opened(stream(Again(make=make), total=N)), 10, 0, held_out=50)
    np.testing.assert_array_equal(batches.held_out_rows()["x"], np.arange(50))
    lap = [batch["x"] for batch in batches.lap()]
    assert {len(batch) for batch in lap[:-1]} == {10}
    np.testing.assert_array_equal(np.concatenate(lap), np.arange(50, N))
    straight = ids(batches, 0, 300)
    np.testing.assert_array_equal(straight.ravel(), np.resize(np.arange(50, N), 3000))
    np.testing.assert_array_equal(ids(batches, 207, 300, steps=11), straight[207:])


def test_columns_of_batches_can_be_chosen_and_joined():
    def make(rows):
        return {"a": rows + 0.5, "b": rows, "m": np.c_[rows, rows]}

    columns = stream(Again(make=make), total=N, x=["b", "a"], y="m")
    call = open_call(model, (), columns)
    assert call.outline()[1]["y"].shape == (N, 2)
    chunk = next(Batches(call.source(["x", "y"]), 5, 0).chunks(0, 2, 2))
    rows = np.arange(10).reshape(2, 5)
    np.testing.assert_array_equal(chunk["x"], np.stack([rows, rows + 0.5], axis=-1))
    np.testing.assert_array_equal(chunk["y"], np.stack([rows, rows], axis=-1))


def test_masks_of_batches_are_kept():
    def make(rows):
        return {"x": np.ma.array(np.where(rows % 3, rows, np.nan), mask=rows % 3 == 0)}

    call = open_call(model, (), stream(Again(make=make), total=N))
    assert call.masked == {"x"}
    rows = Batches(call.source(["x"]), 50, 0).chunks(0, 30, 30)
    chunk = next(rows)["x"]
    assert isinstance(chunk, np.ma.MaskedArray)
    numbers = np.resize(np.arange(N), 1500).reshape(30, 50)
    np.testing.assert_array_equal(chunk.mask, numbers % 3 == 0)
    np.testing.assert_array_equal(chunk.compressed(), numbers[numbers % 3 != 0])
