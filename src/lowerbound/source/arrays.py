"""The rows of one data argument that is in memory (or mapped into it)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from lowerbound.errors import DataTypeError, EmptyDataError
from lowerbound.model.inputs.leaves import (
    column_array,
    is_frame,
    is_sparse,
    is_table,
    table_columns,
    whole_array,
)


@dataclass(frozen=True)
class Rows:
    """One data argument as an indexed family of rows; `take(index)` reads those rows alone."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    masked: bool
    take: Callable[[np.ndarray], np.ndarray]
    whole: Callable[[], np.ndarray]

    def first(self) -> np.ndarray:
        """The first row; entries that are missing there hold some observed value."""
        row = self.take(np.zeros(1, np.int64))[0]
        if not self.masked:
            return np.asarray(row)
        missing = np.ma.getmaskarray(row)
        row = np.array(np.ma.getdata(row))
        if missing.any():
            everything = self.whole()
            observed = np.argmin(np.ma.getmaskarray(everything))
            row[missing] = np.ma.getdata(everything).flat[observed]
        return row


def row_dtype(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.dtype[Any]:
    """The type of a row: single precision stays, all other numbers have 64 bits."""
    if jnp.issubdtype(dtype, np.floating):
        single = dtype == np.dtype(np.float32).newbyteorder(dtype.byteorder)
        return np.dtype(np.float32 if single else np.float64)
    if dtype.kind not in "biu":
        raise DataTypeError(name, str(dtype), shape)
    return np.dtype(bool if dtype.kind == "b" else np.int64)


def open_rows(name: str, leaf: Any) -> Rows:
    """The rows of an array, a table or a sparse matrix, none of which is read yet."""
    if is_table(leaf):
        return _table_rows(name, table_columns(leaf), matrix=is_frame(leaf))
    if is_sparse(leaf):
        return _sparse_rows(name, leaf)
    return _array_rows(name, np.asanyarray(leaf))


def column_rows(name: str, table: Any, columns: Sequence[str], *, single: bool) -> Rows:
    """The rows of chosen columns of a table."""
    return _table_rows(name, table_columns(table, tuple(columns)), matrix=not single)


def _array_rows(name: str, array: np.ndarray) -> Rows:
    _refuse_empty(name, array.shape)
    dtype = row_dtype(name, array.dtype, array.shape)
    if isinstance(array, np.ma.MaskedArray):
        data, mask = np.asarray(array.data), np.ma.getmaskarray(array)

        def take_masked(index: np.ndarray) -> np.ndarray:
            values = _take(data, index).astype(dtype, copy=False)
            rows: np.ndarray = np.ma.MaskedArray(values, mask=_take(mask, index))
            return rows

        def whole() -> np.ndarray:
            return array.astype(dtype, copy=False)

        return Rows(name, array.shape, dtype, bool(mask.any()), take_masked, whole)
    plain = np.asarray(array).view()  # an object of its own: see `split_arguments`

    def take(index: np.ndarray) -> np.ndarray:
        return _take(plain, index).astype(dtype, copy=False)

    return Rows(name, array.shape, dtype, False, take, lambda: plain.astype(dtype, copy=False))


def _take(array: np.ndarray, index: np.ndarray) -> np.ndarray:
    # np.take first copies the whole of an array that is not C-contiguous and aligned.
    flags = array.flags
    if flags.c_contiguous and flags.aligned and array.dtype.isnative:
        return np.take(array, index, axis=0)
    return np.asarray(array[index])


def _table_rows(name: str, columns: Sequence[Any], *, matrix: bool) -> Rows:
    arrays = [column_array(column) for column in columns]
    length = len(arrays[0]) if arrays else 0
    shape = (length, len(arrays)) if matrix else (length,)
    _refuse_empty(name, shape)
    found = np.result_type(*[array.dtype for array in arrays])
    dtype = row_dtype(name, found, shape)

    def take(index: np.ndarray) -> np.ndarray:
        if not matrix:
            return _take(arrays[0], index).astype(dtype, copy=False)
        out = np.empty((len(index), len(arrays)), dtype)
        for j, array in enumerate(arrays):
            out[:, j] = _take(array, index)
        return out

    def whole() -> np.ndarray:
        together = np.stack(arrays, axis=1) if matrix else arrays[0]
        return together.astype(dtype, copy=False)

    return Rows(name, shape, dtype, False, take, whole)


def _sparse_rows(name: str, matrix: Any) -> Rows:
    shape = tuple(int(length) for length in matrix.shape)
    _refuse_empty(name, shape)
    dtype = row_dtype(name, matrix.dtype, shape)
    compressed = matrix.tocsr()

    def take(index: np.ndarray) -> np.ndarray:
        return np.asarray(compressed[index].toarray()).astype(dtype, copy=False)

    def whole() -> np.ndarray:
        return whole_array(matrix).astype(dtype, copy=False)

    return Rows(name, shape, dtype, False, take, whole)


def _refuse_empty(name: str, shape: tuple[int, ...]) -> None:
    if 0 in shape:
        raise EmptyDataError(name, shape)
