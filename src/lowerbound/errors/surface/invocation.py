"""Errors of the command line: files, options and folders that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowerbound.errors.roots import ArgumentError, case, told
from lowerbound.errors.wording import quoted


class CommandError(ArgumentError):
    """The command line names something that is not there, or that cannot be used."""

    @told
    def no_file(cls, path: str, what: str) -> None:
        """There is no file {path}.

        Expected {what}.
        """

    @told
    def no_import(cls, path: str, said: str, where: str) -> None:
        """{path} does not import: {said}{where}.

        Expected Python that defines the model.
        """

    @case
    def no_function(cls, path: str, name: str, known: Sequence[str]) -> str:
        """The file has no such function."""
        found = f"{name!r}" if name else "one function that is meant"
        return f"{path} has no function {found}; it defines {quoted(known)}.\nExpected {path}:name."

    @told
    def empty(cls, path: str) -> None:
        """{path} has no rows.

        Expected a table with a row of names and rows of values.
        """

    @told
    def unreadable(cls, path: str, said: str) -> None:
        """{path} cannot be read as a table: {said}.

        Expected a file .csv, .tsv, .parquet, .npz or .json.
        """

    @told
    def text(cls, column: str, argument: str, row: int, value: Any) -> None:
        """Column '{column}' holds text, {value:short} in row {row}, and argument '{argument}' takes
        numbers.

        Expected numbers. Correct the entry, or number the values of the column with --codes
        {column}.
        """

    @told
    def unfilled(cls, argument: str, model: str, columns: Sequence[str]) -> None:
        """Argument '{argument}' of {model} is no column of the data, which has {columns:listed}.

        Expected --column {argument}=NAME (or NAME,NAME for a matrix), or --arg {argument}=VALUE.
        """

    @told
    def unknown(cls, option: str, argument: str, model: str, known: Sequence[str]) -> None:
        """{option} is for '{argument}', and {model} has no such argument.

        Expected names among {known:joined}.
        """

    @told
    def option(cls, option: str, value: str, expected: str) -> None:
        """{option} got {value!r}.

        Expected {expected}.
        """

    @told
    def subject(cls, found: str) -> None:
        """The command has {found}.

        Expected a model and its data, model.py:model data.csv, or --formula "y ~ x + (1 | g)"
        data.csv.
        """

    @told
    def exists(cls, folder: str, remedy: str) -> None:
        """The folder {folder} is there already.

        {remedy}
        """

    @told
    def no_run(cls, folder: str, what: str) -> None:
        """{folder} holds no {what}.

        Expected a folder that `lowerbound fit --out` has made.
        """

    @told
    def model_unnamed(cls, folder: str, model: str, command: str) -> None:
        """The run in {folder} is of {model}, which a record cannot have executed.

        Expected its name: lowerbound {command} {folder} {model}.
        """

    @told
    def changed(cls, path: str, folder: str) -> None:
        """{path} is not what the run in {folder} was made from.

        Expected the same file: name it with --data, or fit again.
        """
