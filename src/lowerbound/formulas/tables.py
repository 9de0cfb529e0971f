"""Tables of a formula: pandas, polars, or a dict of arrays; columns checked, rows complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.errors import (
    ArgumentError,
    ColumnKindError,
    EmptyDataError,
    MissingRowsError,
    UnknownColumnError,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Rows:
    """The complete rows of a table, and how many were left out for which columns."""

    frame: pd.DataFrame
    total: int
    missing: dict[str, int]

    @property
    def dropped(self) -> int:
        """The number of rows that were left out."""
        return self.total - len(self.frame)


def is_table(value: Any) -> bool:
    """Whether a value is a table by itself: a frame, or a dict of columns."""
    return hasattr(value, "columns") or isinstance(value, Mapping)


def column_names(data: Any) -> list[str]:
    """The names of a table's columns."""
    return [str(name) for name in (data if isinstance(data, Mapping) else data.columns)]


def complete_rows(data: Any, columns: Iterable[str], wanted: str) -> Rows:
    """The named columns of a table as a pandas frame, without rows that lack a value."""
    frame = as_frame(data, columns, wanted)
    if not len(frame):
        raise EmptyDataError("data", (0, len(column_names(data))))
    lacking = frame.isna()
    missing = {str(name): int(count) for name, count in lacking.sum().items() if count}
    kept = frame[~lacking.any(axis=1)]
    if not len(kept):
        raise MissingRowsError.all(missing, len(frame))
    _check_finite(kept)
    return Rows(kept, len(frame), missing)


def new_rows(data: Any, columns: Iterable[str], wanted: str) -> pd.DataFrame:
    """The named columns of a table of new rows, each of which has to be complete."""
    frame = as_frame(data, columns, wanted)
    for name, lacking in frame.isna().items():
        if lacking.any():
            row = int(np.argmax(lacking.to_numpy()))
            raise MissingRowsError.new(str(name), row, int(lacking.sum()))
    _check_finite(frame)
    return frame


def as_frame(data: Any, columns: Iterable[str], wanted: str) -> pd.DataFrame:
    """The named columns of a table as a pandas frame; `wanted` says who wants them."""
    import pandas as pd

    if not is_table(data):
        raise ArgumentError(
            f"{wanted} got {type(data).__name__} for its data.\nExpected a table: a pandas or "
            "polars frame, or a dict of arrays by name."
        )
    known = column_names(data)
    found: dict[str, Any] = {}
    for name in sorted(columns):
        if name not in known:
            raise UnknownColumnError(name, known, wanted)
        found[name] = _series(data[name], name)
    lengths = {name: len(series) for name, series in found.items()}
    if len(set(lengths.values())) > 1:
        raise ArgumentError(
            f"{wanted} got columns of different lengths: "
            f"{', '.join(f'{name} {length}' for name, length in lengths.items())}.\n"
            "Expected one value a row."
        )
    return pd.DataFrame(found)


def _series(column: Any, name: str) -> pd.Series[Any]:
    """A column as a pandas series of numbers, truth values, categories or texts."""
    import pandas as pd

    if isinstance(column, pd.Series):
        series = column.reset_index(drop=True)
    elif type(column).__module__.startswith("polars"):
        series = _from_polars(column)
    else:
        array = np.ma.filled(column.astype(float), np.nan) if np.ma.isMA(column) else column
        array = np.asarray(array)
        if array.ndim != 1:
            raise ColumnKindError.unreadable(name, f"an array of shape {array.shape}")
        series = pd.Series(array)
    kind = series.dtype
    if isinstance(kind, pd.CategoricalDtype):
        return series
    if pd.api.types.is_bool_dtype(kind) and not series.isna().any():
        return series.astype(bool)
    if pd.api.types.is_complex_dtype(kind):
        raise ColumnKindError.unreadable(name, "complex numbers")
    if pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_bool_dtype(kind):
        plain = series.isna().any() or not pd.api.types.is_integer_dtype(kind)
        return series.astype(float if plain else np.int64)
    if pd.api.types.is_datetime64_any_dtype(kind) or pd.api.types.is_timedelta64_dtype(kind):
        raise ColumnKindError.unreadable(name, "dates or times")
    return series.astype(object)


def _from_polars(column: Any) -> pd.Series[Any]:
    import pandas as pd

    values = column.to_list()
    if str(column.dtype).startswith("Enum"):
        levels = list(column.dtype.categories)
        return pd.Series(pd.Categorical(values, categories=levels, ordered=True))
    if column.dtype.is_numeric():
        return pd.Series(column.to_numpy())
    if column.dtype.is_temporal():
        return pd.to_datetime(pd.Series(column.to_numpy()))
    return pd.Series(values, dtype=object if None in values or not values else None)


def _check_finite(frame: pd.DataFrame) -> None:
    for name in frame.columns:
        values = frame[name].to_numpy()
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values)))
            raise ColumnKindError.infinite(str(name), int(frame.index[row]), float(values[row]))


def check_texts(frame: pd.DataFrame, columns: Iterable[str]) -> None:
    """Texts are categories, unless half of them or more are numbers: then some are mistakes."""
    import pandas as pd

    for name in sorted(columns):
        if frame[name].dtype != object:
            continue
        numbers = pd.to_numeric(frame[name], errors="coerce").notna().to_numpy()
        if numbers.all():
            raise ColumnKindError.written(name)
        if 2 * numbers.sum() >= len(numbers):
            row = int(np.argmin(numbers))
            raise ColumnKindError.text(
                name, int(frame.index[row]), frame[name].iloc[row], int(numbers.sum()), len(numbers)
            )
