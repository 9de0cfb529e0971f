"""Rows that are never in memory all at once, as arguments of a model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from lowerbound.errors import StreamError
from lowerbound.model.inputs.leaves import Column, column_names, is_frame, is_table
from lowerbound.source.arrays import Rows, column_rows
from lowerbound.source.iterable import open_iterable
from lowerbound.source.parquet import open_parquet

__all__ = ["Column", "stream"]


def stream(
    source: Any, *, total: int | None = None, **columns: str | Sequence[str]
) -> dict[str, Column]:
    """Arguments of a model that are read from a source a minibatch at a time.

    `lb.fit(model, **lb.stream("rows.parquet", x=["a", "b"], y="target"), method=lb.SVI(...))`
    makes x the matrix (n, 2) of two columns and y the vector (n,) of one. The source is the path of
    a Parquet file or of a folder of them, a list of paths, a table of pandas, polars or pyarrow, or
    an object that iterates over batches, each a dict of arrays or a table, again and again; then
    `total` states the number of rows of one pass, and without `columns` the names in the first
    batch are the arguments. A `Reader` of your own works as well.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": [1.0, 0.0, 1.0], "target": [3, 1, 4]})
    >>> lb.stream(rows, x=["a", "b"], y="target")["x"]
    <stream of 'a', 'b' from the pandas DataFrame, shape (3, 2)>
    """
    if isinstance(source, Reader):
        _require(columns, source.label)
        return _columns(source, columns)
    if _is_paths(source):
        _require(columns, "the Parquet files")
        return _columns(open_parquet(source, _flat(columns)), columns)
    if is_table(source) and is_frame(source):
        return _table_columns(source, columns)
    kind = type(source).__name__
    if isinstance(source, Iterator):
        raise StreamError.used_up(kind)
    if isinstance(source, str | bytes | Mapping) or not hasattr(source, "__iter__"):
        raise StreamError.not_a_source(kind)
    if total is None:
        raise StreamError.no_total(kind)
    reader = open_iterable(source, total)
    known = tuple(reader.first_batch)
    for name in _flat(columns):
        if name not in known:
            raise StreamError.unknown_column(name, reader.label, known)
    return _columns(reader, columns or {name: name for name in known})


@runtime_checkable
class Reader(Protocol):
    """What a source of rows has to say: how many there are, its name in words, and its rows."""

    @property
    def total(self) -> int:
        """The number of rows."""

    @property
    def label(self) -> str:
        """The source in words, for plans and errors."""

    def open(self, name: str, column: Column) -> Rows | Column:
        """The rows of the argument `name`, of which none is read yet.

        `Rows` are read in any order. A reader that has an order of its own returns the column, and
        has a `source` (`Ordered`), the `first` row of a column and whether it is `masked`.
        """


@dataclass(frozen=True)
class TableReader:
    """The rows of a table in memory, which can be read in any order."""

    table: Any = field(repr=False)
    total: int
    label: str

    def open(self, name: str, column: Column) -> Rows:
        """The rows of an argument."""
        return column_rows(name, self.table, column.columns, single=column.single)


def _table_columns(table: Any, columns: Mapping[str, str | Sequence[str]]) -> dict[str, Column]:
    label = f"the {type(table).__module__.split('.')[0]} {type(table).__name__}"
    _require(columns, label)
    known = column_names(table)
    for name in _flat(columns):
        if name not in known:
            raise StreamError.unknown_column(name, label, known)
    return _columns(TableReader(table, len(table), label), columns)


def _columns(reader: Any, columns: Mapping[str, str | Sequence[str]]) -> dict[str, Column]:
    return {
        argument: Column(reader, (chosen,), True)
        if isinstance(chosen, str)
        else Column(reader, tuple(chosen), False)
        for argument, chosen in columns.items()
    }


def _flat(columns: Mapping[str, str | Sequence[str]]) -> tuple[str, ...]:
    """All chosen columns, each once."""
    chosen = [[c] if isinstance(c, str) else list(c) for c in columns.values()]
    return tuple(dict.fromkeys(name for names in chosen for name in names))


def _require(columns: Mapping[str, str | Sequence[str]], label: str) -> None:
    if not columns or not all(len(chosen) for chosen in columns.values()):
        raise StreamError.no_columns(label)


def _is_paths(source: Any) -> bool:
    if isinstance(source, str | os.PathLike):
        return True
    several = isinstance(source, list | tuple) and len(source) > 0
    return several and all(isinstance(path, str | os.PathLike) for path in source)
