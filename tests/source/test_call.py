"""Every kind of data argument gives the rows that the same array would give."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from lowerbound.errors import ArgumentError, DataTypeError, EmptyDataError, RowError, StreamError
from lowerbound.model.inputs.arguments import split_arguments
from lowerbound.source.batches import Batches
from lowerbound.source.call import open_call
from lowerbound.source.stream import stream

N = 40
X = np.random.default_rng(0).standard_normal((N, 3)).round(3)
X[X < 0.3] = 0.0
COUNTS = np.arange(N) % 7
FRAME = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}


def model(x, y=None, *, covariates=None, K=3):
    pass


def arrow_chunks() -> pa.Table:
    whole = pa.table(FRAME)
    return pa.concat_tables([whole.slice(0, 15), whole.slice(15)])


SOURCES = {
    "numpy": (X, X),
    "fortran order": (np.asfortranarray(X), X),
    "strided": (np.repeat(X, 2, axis=0)[::2], X),
    "big endian": (X.astype(">f8"), X),
    "jax": (jnp.asarray(X, jnp.float32), X.astype(np.float32)),
    "half precision": (X.astype(np.float16), X.astype(np.float16).astype(np.float64)),
    "vector": (COUNTS, COUNTS),
    "flags": (COUNTS > 3, COUNTS > 3),
    "csr matrix": (scipy.sparse.csr_matrix(X), X),
    "coo array": (scipy.sparse.coo_array(X), X),
    "sparse counts": (scipy.sparse.csc_array(np.diag(COUNTS)), np.diag(COUNTS)),
    "pandas frame": (pd.DataFrame(FRAME), X),
    "pandas mixed": (pd.DataFrame({"a": COUNTS, "b": X[:, 0]}), np.c_[COUNTS, X[:, 0]]),
    "pandas series": (pd.Series(COUNTS), COUNTS),
    "pandas nullable": (pd.Series(COUNTS, dtype="Int64"), COUNTS),
    "polars frame": (pl.DataFrame(FRAME), X),
    "polars series": (pl.Series(COUNTS), COUNTS),
    "arrow table": (pa.table(FRAME), X),
    "arrow table in chunks": (arrow_chunks(), X),
    "arrow array": (pa.array(COUNTS), COUNTS),
    "arrow flags": (pa.array(COUNTS > 3), COUNTS > 3),
    "arrow chunked array": (pa.chunked_array([COUNTS[:9], COUNTS[9:]]), COUNTS),
    "stream of a pandas frame": (stream(pd.DataFrame(FRAME), x=["c", "a"])["x"], X[:, [2, 0]]),
    "stream of a polars frame": (stream(pl.DataFrame(FRAME), x="b")["x"], X[:, 1]),
    "stream of an arrow table": (stream(arrow_chunks(), x=["b"])["x"], X[:, [1]]),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_rows_of_any_source_are_the_rows_of_the_array(kind):
    leaf, expected = SOURCES[kind]
    call = open_call(model, (leaf,), {})
    assert call.lengths == {"x": N}
    source = call.source(["x"])
    assert (source.total, source.names, source.random_access) == (N, ("x",), True)
    index = np.array([39, 0, 7, 7])
    rows = source.take(index)["x"]
    np.testing.assert_array_equal(rows, expected[index])
    assert rows.dtype == expected.dtype
    ((outline,), _) = call.outline()
    dtype = np.dtype(float) if rows.dtype.kind == "f" else rows.dtype  # as a trace has it
    assert (outline.shape, outline.dtype, outline.strides[0]) == (expected.shape, dtype, 0)
    np.testing.assert_array_equal(outline[5], expected[0])
    ((whole,), _) = call.put({})
    np.testing.assert_array_equal(whole, expected)


@pytest.mark.parametrize(
    "kind", [kind for kind in SOURCES if kind.split()[0] in ("csr", "coo", "polars", "arrow")]
)
def test_full_data_fits_read_tables_and_sparse_matrices_too(kind):
    leaf, expected = SOURCES[kind]
    found = split_arguments(model, (leaf,), {})
    np.testing.assert_array_equal(found.data["x"], expected)
    assert found.missing == {}


@pytest.mark.parametrize(
    "leaf",
    [
        pl.Series([1, None, 3]),
        pl.Series([True, None, False]),
        pa.array([1, None, 3]),
        pa.chunked_array([[True, None], [False]]),
    ],
)
def test_nulls_are_nan_which_validation_names(leaf):
    data = split_arguments(model, (leaf,), {}).data["x"]
    assert data.dtype == np.float64
    np.testing.assert_array_equal(np.isnan(data), [False, True, False])


def test_nested_arguments_have_the_names_of_a_full_data_fit():
    kwargs = {"covariates": {"age": COUNTS, "pair": (X, 2.0)}, "K": 4}
    call = open_call(model, (X, None), kwargs)
    assert list(call.lengths) == list(split_arguments(model, (X, None), kwargs).data)
    assert call.lengths == {"x": N, "covariates['age']": N, "covariates['pair'][0]": N}
    args, kwargs = call.put({"x": X[:2], "covariates['age']": COUNTS[:2]})
    np.testing.assert_array_equal(args[0], X[:2])
    assert args[1] is None
    np.testing.assert_array_equal(kwargs["covariates"]["age"], COUNTS[:2])
    np.testing.assert_array_equal(kwargs["covariates"]["pair"][0], X)
    assert kwargs["covariates"]["pair"][1] == 2.0
    assert kwargs["K"] == 4


def test_a_file_mapped_into_memory_is_never_read_whole(tmp_path):
    # A terabyte of which the disk holds two rows: reading all of it could not end well.
    rows, row = 2**34, np.arange(8.0)
    mapped = np.memmap(tmp_path / "rows", np.float64, "w+", shape=(rows, 8))
    mapped[0], mapped[rows - 1] = row, row + 1
    source = open_call(model, (mapped,), {}).source(["x"])
    taken = source.take(np.array([rows - 1, 0, rows // 2]))["x"]
    np.testing.assert_array_equal(taken, [row + 1, row, np.zeros(8)])
    batches = Batches(source, size=4, seed=0, held_out=5)
    assert next(batches.chunks(10**6, 3, 10**6 + 3))["x"].shape == (3, 4, 8)
    assert batches.held_out_rows()["x"].shape == (5, 8)
    assert next(batches.lap())["x"].shape == (4, 8)


def test_masked_rows_keep_their_masks():
    masked = np.ma.array(X.copy(), mask=X == 0.0)
    masked.data[masked.mask] = np.nan
    call = open_call(model, (masked,), {})
    assert call.masked == {"x"}
    batches = Batches(call.source(["x"]), size=8, seed=1)
    for chunk in batches.chunks(0, 2, 5):
        assert isinstance(chunk["x"], np.ma.MaskedArray)
        assert chunk["x"].mask.shape == chunk["x"].shape
        np.testing.assert_array_equal(chunk["x"].mask, np.isnan(chunk["x"].data))
    rows = np.ma.concatenate([batch["x"] for batch in batches.lap()])
    np.testing.assert_array_equal(rows.filled(0.0), X)
    ((outline,), _) = call.outline()
    assert isinstance(outline, np.ma.MaskedArray)
    assert outline.data.strides[0] == 0
    assert np.isfinite(outline.data).all()
    assert not outline.mask.any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["array", "frame"])
def test_a_row_that_is_not_finite_is_named(value, kind):
    bad = X.copy()
    bad[17, 2] = value
    leaf = bad if kind == "array" else pd.DataFrame(bad)
    batches = Batches(open_call(model, (leaf,), {}).source(["x"]), size=4, seed=0)
    with pytest.raises(RowError) as error:
        list(batches.chunks(0, 2, 10))
    assert str(error.value) == (
        f"Row 17 of argument 'x' holds {value}: x[17, 2], shape (40, 3).\n"
        "Expected finite numbers. Drop the row, or mark missing entries with "
        "numpy.ma.masked_invalid(x)."
    )


def test_sums_that_overflow_are_not_taken_for_infinite_rows():
    large = np.full((4, 2), 1e308)
    batches = Batches(open_call(model, (large,), {}).source(["x"]), size=4, seed=0)
    np.testing.assert_array_equal(next(batches.lap())["x"], large)


def test_an_empty_argument_is_named():
    with pytest.raises(EmptyDataError) as error:
        open_call(model, (X[:0],), {})
    assert str(error.value) == (
        "Argument 'x' is empty: shape (0, 3).\n"
        "Expected at least one entry along every axis. Check the selection that made it."
    )


def test_text_is_not_data():
    with pytest.raises(DataTypeError) as error:
        open_call(model, (pl.Series(["a", "b"]),), {})
    assert str(error.value) == (
        "Argument 'x' has dtype object, shape (2,).\n"
        "Expected a real array: float, int or bool. Convert it to numbers, e.g. categories to "
        "codes with pandas.factorize(x)[0]."
    )


def test_an_iterator_among_the_arguments_is_refused():
    with pytest.raises(StreamError) as error:
        open_call(model, ((row for row in X),), {})
    assert str(error.value) == (
        "Argument 'x' is a generator, which can be read only once.\n"
        "Expected something that can be read again for every epoch. Pass an object whose "
        "__iter__ starts afresh (a list of batches, or a class with __iter__) to "
        "lb.stream(batches, total=...)."
    )


BATCHES = [{"x": X[:15]}, {"x": X[15:]}]


def test_arrays_and_streams_do_not_mix_in_one_minibatch():
    call = open_call(model, (X,), {"y": stream(BATCHES, total=N)["x"]})
    with pytest.raises(ArgumentError) as error:
        call.source(["x", "y"])
    assert str(error.value) == (
        "The minibatches would come from several sources: 'x' is an array, 'y' comes from the list "
        "of batches.\nExpected arrays alone, or the columns of one lb.stream. Put all arguments "
        "that have one row per observation into one stream."
    )


def test_a_stream_cannot_stand_for_an_argument_that_is_needed_whole():
    call = open_call(model, (X,), {"y": stream(BATCHES, total=N)["x"]})
    with pytest.raises(ArgumentError) as error:
        call.put({"x": X[:2]})
    assert str(error.value) == (
        "Argument 'y' is a stream of 40 rows that are not those of the minibatches (x).\n"
        "Expected an array for an argument that every minibatch needs whole. Pass it as an array."
    )


def test_a_full_data_fit_refuses_a_stream():
    with pytest.raises(ArgumentError) as error:
        split_arguments(model, (), stream(BATCHES, total=N))
    assert str(error.value) == (
        "Argument 'x' is a stream of 40 rows from the list of batches; this method needs all of "
        "its rows at once.\nExpected an array. Read the stream a minibatch at a time, "
        "method=lb.SVI(batch_size=...), or pass its rows as an array."
    )
