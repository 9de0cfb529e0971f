"""Errors of data that are read a minibatch at a time, and of the paths to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from lowerbound.errors.roots import ArgumentError, Words, case, told
from lowerbound.errors.wording import entry_of


class BatchSizeError(ArgumentError):
    """The minibatches asked for cannot be drawn from so many rows, or in that order."""


class MinibatchError(ArgumentError):
    """A program, or a call, whose rows cannot be taken some at a time."""

    @told
    def no_such_plate(cls, method: str, plate: str, known: Sequence[str]) -> None:
        """{method} got plate='{plate}', which holds no observed site.

        Expected one of the plates of the observations: {known:quoted}.
        """

    @told
    def which_plate(cls, method: str, sizes: Mapping[str, int]) -> Words:
        """{method} cannot tell which plate holds the rows: {named} could both be the local one.

        Say which: lb.{method}(plate="{first}").
        """
        return {
            "named": " and ".join(f"'{name}' ({size})" for name, size in sizes.items()),
            "first": next(iter(sizes)),
        }

    @told
    def no_plate(cls, method: str, lengths: Mapping[str, int]) -> Words:
        """{method} found no rows: no plate of the observations is as long as an argument; leading
        dimensions are {lengths}.

        Put the observed sites into a numpyro.plate with one member for each row of the data.
        """
        return {"lengths": _lengths(lengths)}

    @told
    def no_argument(cls, size: int, plate: str | None, lengths: Mapping[str, int]) -> Words:
        """No argument has one entry for each of the {size} rows of plate '{plate}'; leading
        dimensions are {lengths}.

        Expected data arrays with the rows along their first axis.
        """
        return {"lengths": _lengths(lengths)}

    @told
    def inspected(cls, arguments: Sequence[str]) -> None:
        """The model inspects the values of {arguments:joined} in Python, so every batch of rows
        would be another program.

        Expected operations that JAX can trace; or use method=lb.CAVI().
        """

    @told
    def one_size(cls, total: int, count: int, reason: str, plate: str, argument: str) -> None:
        """The model fits its {total} rows, but not a batch of {count}: {reason}

        Expected every size to follow from the data: write numpyro.plate("{plate}",
        len({argument})).
        """

    @told
    def plate_size(cls, count: int, plate: str, size: int | None, argument: str) -> Words:
        """On a batch of {count} rows, plate '{plate}' is {found}.

        Expected one member for each entry along the first axis of the data: write
        numpyro.plate("{plate}", len({argument})).
        """
        return {"found": "absent" if size is None else f"of size {size}"}

    @case
    def follows_rows(cls, site: str, plate: str | None, shapes: Mapping[int, Any], at: str) -> str:
        """A site outside the plate has a shape that follows the rows; `shapes` by their number."""
        found = ", ".join(
            f"{shape} for {count}{' rows' if not number else ''}"
            for number, (count, shape) in enumerate(shapes.items())
        )
        return (
            f"Site '{site}' is outside plate '{plate}', but its shape follows the rows: {found}   "
            f"({at})\nPut it into the plate, or use method=lb.CAVI()."
        )

    @told
    def local_start(cls, method: str, site: str) -> None:
        """{method} got init for '{site}', which is local: it is solved anew in every batch.

        Expected values of global sites.
        """

    @told
    def too_few(cls, count: int, missing: Sequence[str]) -> Words:
        """A batch has {count} rows, and entries are missing in {missing:joined}.

        Expected batches of at least {least} rows, from which the sites with missing entries can be
        told. Use a larger batch_size.
        """
        return {"least": len(missing) + 1}

    @told
    def uneven(cls, method: str, size: int, devices: int) -> Words:
        """{method} got batch_size={size} for {devices} devices.

        Expected a multiple of {devices}, as many rows on each device. Use batch_size={next_size}.
        """
        return {"next_size": -(-size // devices) * devices}

    @told
    def coupled(cls, site: str) -> None:
        """The rows of the local site '{site}' are coupled, so a batch of them cannot be fitted
        without the others.

        Use method=lb.CAVI().
        """

    @told
    def missing_of_several(cls, site: str) -> None:
        """Site '{site}' has missing entries that are not those of one argument.

        Expected a masked array that the site observes as it is; or use method=lb.CAVI().
        """


def _lengths(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {length}" for name, length in lengths.items()) or "none"


class RowError(ArgumentError):
    """A row that was read holds NaN, a null or an infinite value."""

    @told
    def of_argument(
        cls, argument: str, index: tuple[int, ...], value: float, shape: tuple[int, ...]
    ) -> Words:
        """Row {index[0]} of argument '{argument}' holds {value}: {entry}, shape {shape}.

        Expected finite numbers. Drop the row, or mark missing entries with
        numpy.ma.masked_invalid({argument}).
        """
        return {"entry": entry_of(argument, index)}

    @told
    def of_file(cls, column: str, path: str, row: int, value: str) -> None:
        """Column '{column}' of {path} holds {value} in row {row}.

        Expected finite numbers. Drop such rows when the file is written, or fill them in.
        """


class PathError(ArgumentError):
    """A path leads to nothing that can be read; a subclass says which files could."""

    files: ClassVar[str]
    pattern: ClassVar[str]

    @case
    def no_file(cls, path: str) -> str:
        """A path does not exist."""
        expected = f"a {cls.files} file, or a folder of them. Check the path."
        return f"There is no file or folder {path}.\nExpected {expected}"

    @case
    def empty_folder(cls, path: str) -> str:
        """A folder has no file of a kind that is read."""
        expected = "at least one, at any depth. Check the path."
        return f"The folder {path} holds no file named {cls.pattern}.\nExpected {expected}"


class StreamError(PathError):
    """A stream of rows cannot be read as it is."""

    files, pattern = "Parquet", "*.parquet"

    @told
    def used_up(cls, kind: str, argument: str | None = None) -> Words:
        """{what} is a {kind}, which can be read only once.

        Expected something that can be read again for every epoch. Pass an object whose __iter__
        starts afresh (a list of batches, or a class with __iter__) to lb.stream(batches,
        total=...).
        """
        return {"what": "The source" if argument is None else f"Argument '{argument}'"}

    @told
    def no_total(cls, kind: str) -> None:
        """The source is a {kind} of batches whose number of rows is not known.

        Expected the number of rows of one pass. State it: lb.stream(batches, total=...).
        """

    @told
    def not_a_source(cls, kind: str) -> None:
        """The source is a {kind}.

        Expected the path of a Parquet file or of a folder of them, a list of paths, a table of
        pandas, polars or pyarrow, or something that iterates over batches.
        """

    @told
    def wrong_total(cls, label: str, found: int, total: int, *, more: bool = False) -> Words:
        """A pass over {label} gave {rows} rows; total={total} was stated.

        Expected the same rows in every pass. State the number of rows of one pass,
        lb.stream(batches, total=...), and let every pass give all of them.
        """
        return {"rows": f"more than {total}" if more else f"{found}"}

    @told
    def wrong_batch(cls, label: str, number: int, found: str, expected: str) -> None:
        """Batch {number} of {label} gives {found}.

        Expected {expected}. Give every batch the same columns, types and row shapes, one row per
        observation.
        """

    @told
    def all_at_once(cls, argument: str, total: int, label: str) -> None:
        """Argument '{argument}' is a stream of {total} rows from {label}; this method needs all of
        its rows at once.

        Expected an array. Read the stream a minibatch at a time, method=lb.SVI(batch_size=...), or
        pass its rows as an array.
        """

    @told
    def other_rows(cls, argument: str, total: int, rows: Sequence[str]) -> None:
        """Argument '{argument}' is a stream of {total} rows that are not those of the minibatches
        ({rows:joined}).

        Expected an array for an argument that every minibatch needs whole. Pass it as an array.
        """

    @told
    def no_columns(cls, label: str) -> None:
        """No column of {label} was chosen.

        Expected the columns of each argument of the model, e.g. lb.stream(source, x=["a", "b"],
        y="target").
        """

    @told
    def unknown_column(cls, column: str, label: str, known: Sequence[str]) -> None:
        """There is no column '{column}' in {label}.

        Expected one of its columns: {known:quoted}. Correct the name in lb.stream(...).
        """

    @told
    def column_type(cls, column: str, label: str, kind: Any) -> None:
        """Column '{column}' of {label} has type {kind}.

        Expected floats, integers or booleans. Write it as numbers, e.g. categories as codes, or
        choose another column.
        """

    @told
    def schemas(cls, column: str, first: str, kind: Any, other: str, found: Any) -> Words:
        """Column '{column}' has type {kind} in {first}; {other} {difference}.

        Expected all files to have the same columns and types. Rewrite the files that differ, or
        leave them out by passing a list of paths.
        """
        return {"difference": "has no such column" if found is None else f"has type {found}"}

    @told
    def not_parquet(cls, path: str, reason: str) -> None:
        """{path} cannot be read as Parquet: {reason}.

        Expected Parquet files. Convert other formats, e.g.
        pandas.read_csv(...).to_parquet("rows.parquet").
        """

    @told
    def no_rows(cls, label: str) -> None:
        """{label} holds no rows.

        Expected at least one. Check how it was written.
        """

    @told
    def changed(cls, path: str, reason: str) -> None:
        """{path} changed while it was read: {reason}.

        Expected the same rows in every epoch. Write new data to a new file, and fit again.
        """

    @told
    def many_processes(cls, label: str, parts: int) -> None:
        """{label} is read in order, so {parts} processes cannot divide its rows.

        Expected arrays, tables or Parquet files, of which each process reads its own share. Write
        the rows to Parquet files.
        """
