"""Rows from an object that iterates over batches, read in order, epoch after epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Any

import numpy as np

from lowerbound.errors import RowError, StreamError
from lowerbound.model.inputs.leaves import (
    Column,
    column_array,
    column_names,
    is_table,
    table_columns,
)
from lowerbound.source.arrays import row_dtype
from lowerbound.source.call import Batch, Order, Streamed, batch_sizes, not_finite
from lowerbound.source.regroup import length, regroup


@dataclass(frozen=True)
class IterableReader:
    """Batches of named columns that can be iterated over again; `first_batch` tells their types."""

    batches: Any = field(repr=False)
    total: int
    label: str
    first_batch: Batch = field(repr=False)

    def open(self, name: str, column: Column) -> Column:
        """The column, whose type can be that of an argument."""
        row_dtype(name, _assemble(column, self.first_batch).dtype, (self.total,))
        return column

    def masked(self, column: Column) -> bool:
        """Whether the rows of the column have masks."""
        return isinstance(_assemble(column, self.first_batch), np.ma.MaskedArray)

    def first(self, column: Column) -> np.ndarray:
        """The first row."""
        rows = _assemble(column, self.first_batch)
        dtype = row_dtype(str(column.columns), rows.dtype, rows.shape)
        return np.asarray(np.ma.getdata(rows)[0], dtype)

    def source(self, chosen: Mapping[str, Column]) -> IterableSource:
        """The rows of these arguments."""
        return IterableSource(self, dict(chosen))


@dataclass(frozen=True)
class IterableSource(Streamed):
    """The rows of some arguments, in the order in which their batches come."""

    reader: IterableReader

    def accept(self, order: Order) -> None:
        """Raise unless the rows can be given in this order."""
        if order.part[1] > 1:
            raise StreamError.many_processes(self.reader.label, order.part[1])

    def read(self, order: Order, start: int, counts: Iterable[int]) -> Iterator[Batch]:
        """The next `counts` rows; every pass is taken to give the same rows in the same order."""
        place = start % (self.total - order.held_out)
        return regroup(self._epochs(order.held_out, place), counts)

    def held_out(self, order: Order) -> Batch:
        """The first rows of a pass."""
        return next(regroup(self._pass(), [order.held_out]), self._none())

    def lap(self, order: Order) -> Iterator[Batch]:
        """One pass without the rows set aside."""
        return regroup(_skip(self._pass(), order.held_out), repeat(order.share))

    def lap_sizes(self, order: Order) -> np.ndarray:
        """The number of rows in each batch of a pass."""
        return batch_sizes(self.total - order.held_out, order.share)

    def _epochs(self, held_out: int, place: int) -> Iterator[Batch]:
        yield from _skip(self._pass(), held_out + place)
        while True:
            yield from _skip(self._pass(), held_out)

    def _pass(self) -> Iterator[Batch]:
        """One pass over all rows: as many as stated, of one type, and finite."""
        reader, rows = self.reader, 0
        expected = {name: _assemble(c, reader.first_batch) for name, c in self.chosen.items()}
        for number, batch in enumerate(reader.batches):
            columns = as_columns(reader.label, number, batch)
            block = {
                name: _like(reader.label, number, column, columns, expected[name])
                for name, column in self.chosen.items()
            }
            for name, array in block.items():
                bad = not_finite(array)
                if bad is not None:
                    index, shape = (rows + bad[0], *bad[1:]), (self.total, *array.shape[1:])
                    raise RowError.of_argument(name, index, float(array[bad]), shape)
            rows += length(block)
            if rows > self.total:
                raise StreamError.wrong_total(reader.label, rows, self.total, more=True)
            yield block
        if rows != self.total:
            raise StreamError.wrong_total(reader.label, rows, self.total)

    def _none(self) -> Batch:
        arrays = {name: _assemble(c, self.reader.first_batch) for name, c in self.chosen.items()}
        return {name: array[:0] for name, array in arrays.items()}


def open_iterable(batches: Any, total: int) -> IterableReader:
    """Look at the first batch of an object that iterates over batches."""
    label = f"the {type(batches).__name__} of batches"
    for batch in islice(iter(batches), 1):
        return IterableReader(batches, total, label, as_columns(label, 0, batch))
    raise StreamError.wrong_total(label, 0, total)


def as_columns(label: str, number: int, batch: Any) -> Batch:
    """The named columns of one batch: a dict of arrays, or a table."""
    if is_table(batch) and hasattr(batch, "columns"):
        names = column_names(batch)
        pairs = zip(names, table_columns(batch), strict=True)
        columns = {name: column_array(column) for name, column in pairs}
    elif isinstance(batch, Mapping):
        columns = {
            str(name): column_array(value) if is_table(value) else np.asanyarray(value)
            for name, value in batch.items()
        }
    else:
        found = f"a {type(batch).__name__}"
        raise StreamError.wrong_batch(label, number, found, "a dict of arrays, or a table")
    lengths = {name: array.shape[:1] for name, array in columns.items()}
    if len(set(lengths.values())) != 1 or () in lengths.values():
        found = "columns of shape " + ", ".join(f"{a.shape} ('{n}')" for n, a in columns.items())
        raise StreamError.wrong_batch(label, number, found, "columns of one length")
    return columns


def _assemble(column: Column, columns: Batch) -> np.ndarray:
    """The rows of an argument, from its columns."""
    if column.single:
        return columns[column.columns[0]]
    arrays = [columns[name] for name in column.columns]
    masked = any(isinstance(array, np.ma.MaskedArray) for array in arrays)
    return np.ma.stack(arrays, axis=1) if masked else np.stack(arrays, axis=1)


def _like(
    label: str, number: int, column: Column, columns: Batch, expected: np.ndarray
) -> np.ndarray:
    """The rows of an argument in one batch, of the type and row shape of the first batch."""
    for name in column.columns:
        if name not in columns:
            found = ", ".join(f"'{key}'" for key in columns)
            raise StreamError.wrong_batch(label, number, f"columns {found}", f"a column '{name}'")
    rows = _assemble(column, columns)
    dtype = row_dtype(column.columns[0], expected.dtype, expected.shape)
    fits = rows.shape[1:] == expected.shape[1:] and np.can_cast(rows.dtype, dtype, "same_kind")
    was_masked = isinstance(expected, np.ma.MaskedArray)
    if not fits or (isinstance(rows, np.ma.MaskedArray) and not was_masked):
        raise StreamError.wrong_batch(
            label, number, _kind(column, rows), f"{_kind(column, expected)}, as in the first batch"
        )
    rows = rows.astype(dtype, copy=False)
    return np.ma.asanyarray(rows) if was_masked else rows


def _kind(column: Column, rows: np.ndarray) -> str:
    masked = "masked " if isinstance(rows, np.ma.MaskedArray) else ""
    return f"'{column.columns[0]}' as {masked}{rows.dtype} rows of shape {rows.shape[1:]}"


def _skip(blocks: Iterator[Batch], count: int) -> Iterator[Batch]:
    """The blocks without their first `count` rows."""
    for block in blocks:
        rows = length(block)
        if count < rows:
            yield {name: array[count:] for name, array in block.items()} if count else block
        count = max(count - rows, 0)
