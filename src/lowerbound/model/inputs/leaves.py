"""Which leaves of a model call hold data, and the array that each of them is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True, repr=False)
class Column:
    """One or more columns of a stream of rows, standing for an argument of the model.

    `columns` are the names in the source; a `single` one is a vector (n,), several a matrix
    (n, d). All arguments of one stream share one `reader`, which only minibatch methods open.
    """

    reader: Any = field(compare=False)
    columns: tuple[str, ...]
    single: bool

    def __repr__(self) -> str:
        names = ", ".join(f"'{column}'" for column in self.columns)
        total = self.reader.total
        shape = f"({total},)" if self.single else f"({total}, {len(self.columns)})"
        return f"<stream of {names} from {self.reader.label}, shape {shape}>"


def is_leaf(node: Any) -> bool:
    """Whether the node is one argument, not a container of arguments."""
    return node is None or isinstance(node, np.ndarray | Column | Iterator) or is_table(node)


def is_data(leaf: Any) -> bool:
    """Whether the leaf is an array or a table of numbers, of one or more dimensions."""
    if isinstance(leaf, Column) or is_sparse(leaf):
        return True
    if is_table(leaf):
        return not is_label(leaf)
    if not isinstance(leaf, np.ndarray | jax.Array) or leaf.ndim == 0:
        return False
    return not (jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) or is_label(leaf))


def is_label(leaf: Any) -> bool:
    """Whether the leaf is an array or a table that holds text, dates or objects.

    No density has such a value: a program makes numbers of it in Python (codes of groups, say).
    """
    if is_table(leaf):
        return any(_is_no_number(_column_type(column)) for column in table_columns(leaf))
    return isinstance(leaf, np.ndarray) and leaf.ndim > 0 and _is_no_number(leaf.dtype)


def is_table(leaf: Any) -> bool:
    """Whether the leaf is a table or a column of pandas, polars or pyarrow."""
    return _is_pandas(leaf) or _is_polars(leaf) or _is_arrow(leaf)


def is_sparse(leaf: Any) -> bool:
    """Whether the leaf is a sparse matrix or array of SciPy."""
    return _package(leaf) == "scipy" and hasattr(leaf, "tocsr") and hasattr(leaf, "toarray")


def whole_array(leaf: Any) -> np.ndarray:
    """All rows of an array, a table or a sparse matrix, as one dense array."""
    if _is_pandas(leaf):
        return _from_pandas(leaf)
    if is_sparse(leaf):
        return np.asarray(leaf.toarray())
    if is_table(leaf):
        columns = [column_array(column) for column in table_columns(leaf)]
        return np.stack(columns, axis=1) if is_frame(leaf) else columns[0]
    return np.asanyarray(leaf)


def is_frame(table: Any) -> bool:
    """Whether a table has columns (is not itself one column)."""
    return hasattr(table, "columns")


def column_names(table: Any) -> tuple[str, ...]:
    """The names of the columns of a data frame or an Arrow table, in order."""
    return tuple(table.column_names if _is_arrow(table) else table.columns)


def table_columns(table: Any, names: tuple[str, ...] | None = None) -> list[Any]:
    """The named columns of a table (all of them by default); a column is its own only column."""
    if not is_frame(table):
        return [table]
    if names is not None:
        return [table[name] for name in names]
    if _is_arrow(table):
        return list(table.columns)
    if _is_polars(table):
        return list(table.get_columns())
    return [table.iloc[:, j] for j in range(table.shape[1])]


def column_array(column: Any) -> np.ndarray:
    """One column as a vector, without a copy where the library allows it; nulls become NaN."""
    if _is_pandas(column):
        return _from_pandas(column)
    # Booleans with nulls would become Python objects.
    if _is_polars(column):
        has_null_flags = column.null_count() and column.dtype.to_python() is bool
        return np.asarray((column.cast(float) if has_null_flags else column).to_numpy())
    if column.null_count and str(column.type) == "bool":
        column = column.cast("int8")
    plain = hasattr(column, "chunks")
    return np.asarray(column.to_numpy() if plain else column.to_numpy(zero_copy_only=False))


def table_like(table: Any, array: np.ndarray) -> Any:
    """A table or a column of the same library, names and types that holds these numbers."""
    if _is_pandas(table):
        index = table.index if len(table) == len(array) else None
        if not is_frame(table):
            return type(table)(array, index=index, name=table.name).astype(table.dtype)
        frame = type(table)(array, index=index, columns=table.columns)
        return frame.astype(dict(zip(table.columns, table.dtypes, strict=True)))
    if not is_frame(table):
        return _column_like(table, array)
    columns = zip(column_names(table), table_columns(table), array.T, strict=True)
    held = {name: _column_like(column, vector) for name, column, vector in columns}
    return type(table).from_pydict(held) if _is_arrow(table) else type(table)(held)


def _column_like(column: Any, vector: np.ndarray) -> Any:
    if _is_polars(column):
        return type(column)(column.name, vector).cast(column.dtype)
    import pyarrow

    return pyarrow.array(vector).cast(column.type)


def _column_type(column: Any) -> Any:
    """NumPy's type, or pandas' own, of the values in a column."""
    return column.dtype if _is_pandas(column) else column_array(column[:0]).dtype


def _is_no_number(dtype: Any) -> bool:
    return dtype.kind in "OSTUMm" or getattr(dtype, "names", None) is not None


def _package(leaf: Any) -> str:
    return type(leaf).__module__.split(".")[0]


def _is_pandas(leaf: Any) -> bool:
    return _package(leaf) == "pandas" and hasattr(leaf, "to_numpy")


def _is_polars(leaf: Any) -> bool:
    return _package(leaf) == "polars" and hasattr(leaf, "to_numpy")


def _is_arrow(leaf: Any) -> bool:
    return _package(leaf) == "pyarrow" and (hasattr(leaf, "to_numpy") or hasattr(leaf, "columns"))


def _from_pandas(frame: Any) -> np.ndarray:
    dtypes = [frame.dtype] if hasattr(frame, "dtype") else list(frame.dtypes)
    array = np.asarray(frame.to_numpy())
    if array.dtype == object and all(dtype.kind in "biuf" for dtype in dtypes):
        # Nullable columns hold pandas.NA: NaN here, which validation then names.
        array = np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))
    return array
