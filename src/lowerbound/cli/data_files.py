"""Files of data: their tables, and the arguments of a model that columns become."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.cli.model_files import value_of
from lowerbound.errors import CommandError, UnknownColumnError
from lowerbound.errors.storage import needed
from lowerbound.errors.wording import first_line

if TYPE_CHECKING:
    import pandas as pd


def read_table(name: str) -> pd.DataFrame:
    """The table in a file, by its ending."""
    import pandas as pd

    path = Path(name)
    if not path.is_file():
        raise CommandError.no_file(name, "a table: .csv, .tsv, .parquet, .npz or .json")
    if not path.stat().st_size:
        raise CommandError.empty(name)
    ending = path.suffix.lower()
    try:
        if ending in (".csv", ".tsv", ".txt"):
            found = pd.read_csv(path, sep="," if ending == ".csv" else "\t")
        elif ending in (".parquet", ".pq"):
            with needed("Parquet files need pyarrow, which is not installed", "stream"):
                import pyarrow.parquet

            found = pyarrow.parquet.read_table(path).to_pandas()
        elif ending == ".npz":
            with np.load(path, allow_pickle=False) as stored:
                found = pd.DataFrame({key: stored[key] for key in stored.files})
        elif ending == ".json":
            found = pd.read_json(path)
        else:
            raise CommandError.unreadable(name, f"its ending is {ending!r}")
    except pd.errors.EmptyDataError:
        raise CommandError.empty(name) from None
    except (OSError, ValueError) as error:
        if isinstance(error, CommandError):
            raise
        raise CommandError.unreadable(name, first_line(error)) from error
    if not len(found):
        raise CommandError.empty(name)
    found.columns = [str(column) for column in found.columns]
    return found


def pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """Options of the form NAME=VALUE."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or not value:
            raise CommandError.option(option, text, "NAME=VALUE")
        found[name] = value
    return found


def arguments_of(
    model: Callable[..., Any],
    table: pd.DataFrame,
    given: Mapping[str, str],
    columns: Mapping[str, str],
    codes: Sequence[str] = (),
) -> dict[str, Any]:
    """The arguments of a model: what is given, columns by option, and columns of their names."""
    name = getattr(model, "__name__", "model")
    known = inspect.signature(model).parameters
    for option, names in (("--arg", given), ("--column", columns)):
        for argument in names:
            if argument not in known:
                raise CommandError.unknown(option, argument, name, tuple(known))
    found: dict[str, Any] = {}
    for argument, parameter in known.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if argument in given:
            found[argument] = value_of(given[argument])
        elif argument in columns:
            wanted = columns[argument].split(",")
            arrays = [_numbers(table, one, argument, codes) for one in wanted]
            found[argument] = arrays[0] if len(arrays) == 1 else np.column_stack(arrays)
        elif argument in table.columns:
            found[argument] = _numbers(table, argument, argument, codes)
        elif parameter.default is parameter.empty:
            raise CommandError.unfilled(argument, name, tuple(table.columns))
    return found


def _numbers(table: pd.DataFrame, column: str, argument: str, codes: Sequence[str]) -> np.ndarray:
    """A column as numbers; one of `codes` as the numbers of its values, in their order."""
    import pandas as pd

    if column not in table.columns:
        raise UnknownColumnError(column, tuple(table.columns), f"Argument '{argument}'")
    series = table[column]
    if column in codes:
        return np.unique(series.astype(str).to_numpy(), return_inverse=True)[1].astype(np.int64)
    if pd.api.types.is_numeric_dtype(series.dtype):
        return np.asarray(series.to_numpy())
    # What is missing is NaN; anything else that is no number is text.
    wrong = (pd.to_numeric(series, errors="coerce").isna() & series.notna()).to_numpy()
    row = int(np.argmax(wrong))
    raise CommandError.text(column, argument, row, series.iloc[row])
