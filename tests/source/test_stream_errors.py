"""What a stream of rows refuses, and what it says."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lowerbound.errors import BatchSizeError, RowError, StreamError
from lowerbound.source.batches import Batches
from lowerbound.source.call import open_call
from lowerbound.source.stream import stream


def drain(columns, size=4):
    source = open_call(lambda x: None, (), columns).source(list(columns))
    for _ in Batches(source, size, seed=0).lap():
        pass


def text(error, *calls):
    with pytest.raises(error) as caught:
        calls[0](*calls[1:])
    return str(caught.value)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "rows.parquet"
    rows = np.arange(20.0)
    names = [str(i) for i in range(20)]
    lists = [[1.0]] * 20
    pq.write_table(pa.table({"a": rows, "b": rows, "name": names, "lists": lists}), file)
    return file


AGAIN = (
    "Expected something that can be read again for every epoch. Pass an object whose __iter__ "
    "starts afresh (a list of batches, or a class with __iter__) to lb.stream(batches, total=...)."
)


@pytest.mark.parametrize(
    ("source", "kind"),
    [((b for b in ()), "generator"), (iter([]), "list_iterator"), (map(int, ()), "map")],
)
def test_one_shot_iterators(source, kind):
    assert text(StreamError, stream, source) == (
        f"The source is a {kind}, which can be read only once.\n{AGAIN}"
    )


def test_no_total():
    assert text(StreamError, stream, [{"x": np.arange(3)}]) == (
        "The source is a list of batches whose number of rows is not known.\n"
        "Expected the number of rows of one pass. State it: lb.stream(batches, total=...)."
    )


@pytest.mark.parametrize(("source", "kind"), [(3, "int"), ({"x": [1]}, "dict"), (b"x", "bytes")])
def test_not_a_source(source, kind):
    assert text(StreamError, stream, source) == (
        f"The source is a {kind}.\n"
        "Expected the path of a Parquet file or of a folder of them, a list of paths, a table of "
        "pandas, polars or pyarrow, or something that iterates over batches."
    )


TOTAL = (
    "Expected the same rows in every pass. State the number of rows of one pass, "
    "lb.stream(batches, total=...), and let every pass give all of them."
)


def test_fewer_or_more_rows_than_stated():
    batches = [{"x": np.arange(5)}, {"x": np.arange(5)}]
    assert text(StreamError, drain, stream(batches, total=11)) == (
        f"A pass over the list of batches gave 10 rows; total=11 was stated.\n{TOTAL}"
    )
    assert text(StreamError, drain, stream(batches, total=9)) == (
        f"A pass over the list of batches gave more than 9 rows; total=9 was stated.\n{TOTAL}"
    )
    with pytest.raises(StreamError) as error:
        stream([], total=3)
    assert str(error.value) == (
        f"A pass over the list of batches gave 0 rows; total=3 was stated.\n{TOTAL}"
    )


class Shrinking:
    """A source that loses a row after its first two readings."""

    def __init__(self):
        self.readings = 0

    def __iter__(self):
        self.readings += 1
        yield {"x": np.arange(10 if self.readings <= 2 else 9)}


def test_rows_that_change_between_epochs():
    columns = stream(Shrinking(), total=10)
    batches = Batches(open_call(lambda x: None, (), columns).source(["x"]), 5, seed=0)
    chunks = batches.chunks(0, 1, 100)
    assert [next(chunks)["x"].tolist() for _ in range(2)] == [[[0, 1, 2, 3, 4]], [[5, 6, 7, 8, 9]]]
    assert text(StreamError, list, chunks) == (
        f"A pass over the Shrinking of batches gave 9 rows; total=10 was stated.\n{TOTAL}"
    )


LIKE = "Give every batch the same columns, types and row shapes, one row per observation."


@pytest.mark.parametrize(
    ("second", "found", "expected"),
    [
        ({"y": np.arange(5)}, "columns 'y'", "a column 'x'"),
        (
            {"x": np.zeros((5, 2), int)},
            "'x' as int64 rows of shape (2,)",
            "'x' as int64 rows of shape (), as in the first batch",
        ),
        (
            {"x": np.zeros(5)},
            "'x' as float64 rows of shape ()",
            "'x' as int64 rows of shape (), as in the first batch",
        ),
        (
            {"x": np.ma.zeros(5, int)},
            "'x' as masked int64 rows of shape ()",
            "'x' as int64 rows of shape (), as in the first batch",
        ),
        (np.arange(5), "a ndarray", "a dict of arrays, or a table"),
        (
            {"x": np.arange(5), "y": np.arange(4)},
            "columns of shape (5,) ('x'), (4,) ('y')",
            "columns of one length",
        ),
    ],
)
def test_a_batch_that_is_not_like_the_first(second, found, expected):
    columns = stream([{"x": np.arange(5)}, second], total=10)
    assert text(StreamError, drain, columns) == (
        f"Batch 1 of the list of batches gives {found}.\nExpected {expected}. {LIKE}"
    )


def test_a_row_of_a_batch_that_is_not_finite():
    bad = np.zeros((5, 2))
    bad[3, 1] = np.nan
    assert text(RowError, drain, stream([{"x": np.zeros((5, 2))}, {"x": bad}], total=10)) == (
        "Row 8 of argument 'x' holds nan: x[8, 1], shape (10, 2).\n"
        "Expected finite numbers. Drop the row, or mark missing entries with "
        "numpy.ma.masked_invalid(x)."
    )


def test_batches_in_order_are_not_for_many_processes_nor_for_uniform_draws():
    columns = stream([{"x": np.arange(10)}], total=10)
    source = open_call(lambda x: None, (), columns).source(["x"])
    assert text(StreamError, lambda: Batches(source, 4, 0, part=(0, 2))) == (
        "the list of batches is read in order, so 2 processes cannot divide its rows.\n"
        "Expected arrays, tables or Parquet files, of which each process reads its own share. "
        "Write the rows to Parquet files."
    )
    assert text(BatchSizeError, lambda: Batches(source, 4, 0, sampling="uniform")) == (
        "sampling = 'uniform' needs rows in any order; a stream gives them one after another.\n"
        "Expected arrays or tables in memory. Use sampling='epochs', which draws without "
        "replacement."
    )


def test_columns_that_do_not_exist(path):
    assert text(StreamError, lambda: stream(path, x=["a", "q"])) == (
        f"There is no column 'q' in {path}.\n"
        "Expected one of its columns: 'a', 'b', 'name', 'lists'. Correct the name in "
        "lb.stream(...)."
    )
    assert text(StreamError, lambda: stream(pd.DataFrame({"a": [1], "b": [2]}), x="q")) == (
        "There is no column 'q' in the pandas DataFrame.\n"
        "Expected one of its columns: 'a', 'b'. Correct the name in lb.stream(...)."
    )
    assert text(StreamError, lambda: stream([{"a": np.arange(3)}], total=3, x="q")) == (
        "There is no column 'q' in the list of batches.\n"
        "Expected one of its columns: 'a'. Correct the name in lb.stream(...)."
    )


def test_no_column_is_chosen(path):
    assert text(StreamError, stream, path) == (
        "No column of the Parquet files was chosen.\nExpected the columns of each argument of the "
        'model, e.g. lb.stream(source, x=["a", "b"], y="target").'
    )


@pytest.mark.parametrize(
    ("column", "kind"), [("name", "string"), ("lists", r"list<(element|item): double>")]
)
def test_columns_that_hold_no_numbers(path, column, kind):
    found = text(StreamError, lambda: stream(path, x=column))
    assert re.fullmatch(
        re.escape(f"Column '{column}' of {path} has type ")
        + kind
        + re.escape(
            ".\nExpected floats, integers or booleans. Write it as numbers, e.g. categories as "
            "codes, or choose another column."
        ),
        found,
    )


@pytest.mark.parametrize(
    ("other", "difference"),
    [({"a": np.arange(3)}, "has type int64"), ({"b": np.arange(3.0)}, "has no such column")],
)
def test_files_that_disagree(path, other, difference):
    second = path.with_name("second.parquet")
    pq.write_table(pa.table(other), second)
    assert text(StreamError, lambda: stream([path, second], x="a")) == (
        f"Column 'a' has type double in {path}; {second} {difference}.\n"
        "Expected all files to have the same columns and types. Rewrite the files that differ, or "
        "leave them out by passing a list of paths."
    )


def test_paths_that_lead_nowhere(tmp_path):
    assert text(StreamError, lambda: stream(tmp_path, x="a")) == (
        f"The folder {tmp_path} holds no file named *.parquet.\n"
        "Expected at least one, at any depth. Check the path."
    )
    assert text(StreamError, lambda: stream(tmp_path / "no.parquet", x="a")) == (
        f"There is no file or folder {tmp_path}/no.parquet.\n"
        "Expected a Parquet file, or a folder of them. Check the path."
    )


def test_a_file_that_is_no_parquet(tmp_path):
    file = tmp_path / "rows.parquet"
    file.write_text("a,b\n1,2\n" * 20)
    found = text(StreamError, lambda: stream(file, x="a"))
    head, reason, tail = re.fullmatch(r"(.* as Parquet: )(.+)(\.\n.*)", found, re.S).groups()
    assert head == f"{file} cannot be read as Parquet: "
    assert "magic bytes" in reason
    assert tail == (
        ".\nExpected Parquet files. Convert other formats, e.g. "
        'pandas.read_csv(...).to_parquet("rows.parquet").'
    )


def test_files_without_rows(tmp_path):
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": np.zeros(0)}), file)
    assert text(StreamError, lambda: stream(file, x="a")) == (
        f"{file} holds no rows.\nExpected at least one. Check how it was written."
    )


@pytest.mark.parametrize(("value", "named"), [(None, "a null"), (np.nan, "nan"), (-np.inf, "-inf")])
def test_rows_of_files_that_are_not_finite(tmp_path, value, named):
    good = pa.array(np.zeros(30))
    bad = pa.array([*np.zeros(27), value, 0.0, 0.0], pa.float64())
    pq.write_table(pa.table({"a": good, "b": good}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": good, "b": bad}), tmp_path / "2.parquet", row_group_size=10)
    columns = stream(tmp_path, x=["a", "b"])
    wording = (
        f"Column 'b' of {tmp_path}/2.parquet holds {named} in row 27.\n"
        "Expected finite numbers. Drop such rows when the file is written, or fill them in."
    )
    assert text(RowError, drain, columns) == wording
    source = open_call(lambda x: None, (), columns).source(["x"])
    assert text(RowError, list, Batches(source, 4, seed=1).chunks(0, 2, 20)) == wording


def test_a_file_that_changes_under_the_reader(path):
    columns = stream(path, x="a")
    path.write_bytes(b"")
    found = text(StreamError, drain, columns)
    assert re.fullmatch(
        re.escape(f"{path} changed while it was read: ")
        + r"[^\n]+"
        + re.escape(
            ".\nExpected the same rows in every epoch. Write new data to a new file, and fit again."
        ),
        found,
    )


def test_batches_larger_than_the_files(path):
    source = open_call(lambda x: None, (), stream(path, x="a")).source(["x"])
    assert text(BatchSizeError, lambda: Batches(source, 21, seed=0)) == (
        "The batch size is 21, for 20 rows of data.\n"
        "Expected between 1 and 20. Use a smaller batch_size; with all rows in every batch, "
        "method=lb.CAVI() is the same algorithm without noise."
    )
