"""Which arguments are data, what they are called, and how a call is put together again."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lowerbound.errors import ArgumentError, DataTypeError
from lowerbound.model.inputs.arguments import split_arguments


def program(x, y=None, *rest, covariates=None, K=3, **options):
    pass


def test_array_leaves_are_data_under_readable_names():
    a = np.arange(3.0)
    found = split_arguments(
        program,
        (a, a + 1, a + 2),
        {"covariates": {"age": a, "pair": (a, 2.0)}, "K": 4, "extra": [a]},
    )
    assert set(found.data) == {
        "x",
        "y",
        "rest[0]",
        "covariates['age']",
        "covariates['pair'][0]",
        "extra[0]",
    }
    args, kwargs = found.call({name: name for name in found.data})
    assert args == ("x", "y", "rest[0]")
    assert kwargs == {
        "covariates": {"age": "covariates['age']", "pair": ("covariates['pair'][0]", 2.0)},
        "K": 4,
        "extra": ["extra[0]"],
    }


def test_scalars_text_none_and_lists_of_numbers_stay():
    args = (np.float64(2.0), None, [1, 2, 3], "text", np.array(3.0), {"a": 1})
    found = split_arguments(program, args, {"K": 3})
    assert found.data == {}
    assert found.none == ("y", "covariates")
    assert found.call({}) == (args, {"K": 3})


@pytest.mark.parametrize(
    ("leaf", "dtype"),
    [
        (np.ones(2, np.float32), np.float64),
        (np.ones(2, np.float16), np.float64),
        (jnp.ones(2, jnp.bfloat16), np.float64),
        (np.ones(2, np.int32), np.int64),
        (np.ones(2, np.uint8), np.int64),
        (np.full(2, 2**63, np.uint64), np.uint64),
        (np.ones(2, bool), np.bool_),
        (jnp.ones(2, jnp.int32), np.int64),
        (pd.Series([1, 2]), np.int64),
        (pd.DataFrame({"a": [1.0, 2.0], "b": [1, 2]}), np.float64),
        (pd.Series([1, 2], dtype="Int64"), np.int64),
        (pd.Series([True, None], dtype="boolean"), np.float64),
    ],
)
def test_numbers_have_64_bits_and_truth_values_are_kept(leaf, dtype):
    data = split_arguments(program, (leaf,), {}).data
    assert data["x"].dtype == dtype
    assert data["x"].shape[0] == 2


def test_missing_entries_are_remembered_and_filled_with_a_value_of_the_array():
    masked = np.ma.array([np.nan, 4.0, 5.0], mask=[True, False, False])
    found = split_arguments(program, (masked, np.ma.array([1, 2], mask=False)), {})
    np.testing.assert_array_equal(found.data["x"], [4.0, 4.0, 5.0])
    np.testing.assert_array_equal(found.missing["x"], [True, False, False])
    assert list(found.missing) == ["x"]
    assert np.isnan(masked.data[0])


@pytest.mark.parametrize(
    "leaf",
    [
        np.array(["a", "b"]),
        np.array([1, "a"], object),
        np.array(["2020-01-01", "2020-01-02"], "datetime64[D]"),
        np.array([(1, 2.0), (3, 4.0)], [("a", int), ("b", float)]),
        pd.Series(["u", "v"], dtype="category"),
        pd.DataFrame({"a": ["u", "v"], "b": [1, 2]}),
        pl.DataFrame({"a": ["u", "v"], "b": [1, 2]}),
        pa.table({"a": ["u", "v"], "b": [1, 2]}),
    ],
    ids=lambda leaf: f"{type(leaf).__module__.split('.')[0]}-{type(leaf).__name__}",
)
def test_text_dates_and_objects_stay_as_they_are(leaf):
    found = split_arguments(program, (leaf, np.arange(2)), {})
    assert list(found.data) == ["y"]
    assert found.labels["x"] is leaf
    assert found.call(found.data)[0][0] is leaf


def test_complex_numbers_are_not_data():
    text = "dtype complex128.*\n.*real and imaginary parts as two real arrays"
    with pytest.raises(DataTypeError, match=f"(?s){text}"):
        split_arguments(program, (np.ones(2, complex),), {})


def test_all_entries_missing():
    with pytest.raises(ArgumentError) as raised:
        split_arguments(program, (np.ma.masked_all(3),), {})
    assert str(raised.value) == (
        "Argument 'x' has no observed entry: all 3 of shape (3,) are masked.\n"
        "Expected at least one. Drop the argument, or pass None to make its site latent."
    )


def test_arguments_that_do_not_fit_the_signature():
    def model(x, K):
        pass

    with pytest.raises(ArgumentError) as raised:
        split_arguments(model, (np.ones(2),), {})
    assert str(raised.value) == (
        "The arguments do not fit the model model(x, K): missing a required argument: 'K'.\n"
        "Pass the model's own arguments to fit, as you would to the model itself."
    )
