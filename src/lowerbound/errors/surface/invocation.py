"""Errors of the command line: files, options and folders that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowerbound.errors.roots import ArgumentError, case
from lowerbound.errors.wording import listed, quoted, short


class CommandError(ArgumentError):
    """The command line names something that is not there, or that cannot be used."""

    @case
    def no_file(cls, path: str, what: str) -> str:
        """A path leads to no file."""
        return f"There is no file {path}.\nExpected {what}."

    @case
    def no_import(cls, path: str, said: str, where: str) -> str:
        """The file of a model raises when it is imported."""
        return f"{path} does not import: {said}{where}.\nExpected Python that defines the model."

    @case
    def no_function(cls, path: str, name: str, known: Sequence[str]) -> str:
        """The file has no such function."""
        found = f"{name!r}" if name else "one function that is meant"
        return f"{path} has no function {found}; it defines {quoted(known)}.\nExpected {path}:name."

    @case
    def empty(cls, path: str) -> str:
        """A file of data has no rows."""
        return f"{path} has no rows.\nExpected a table with a row of names and rows of values."

    @case
    def unreadable(cls, path: str, said: str) -> str:
        """A file of data is no table."""
        return (
            f"{path} cannot be read as a table: {said}.\n"
            "Expected a file .csv, .tsv, .parquet, .npz or .json."
        )

    @case
    def text(cls, column: str, argument: str, row: int, value: Any) -> str:
        """A column of text for an argument of the model."""
        return (
            f"Column '{column}' holds text, {short(value)} in row {row}, and argument '{argument}' "
            f"takes numbers.\nExpected numbers. Correct the entry, or number the values of the "
            f"column with --codes {column}."
        )

    @case
    def unfilled(cls, argument: str, model: str, columns: Sequence[str]) -> str:
        """An argument of the model is given by nothing."""
        return (
            f"Argument '{argument}' of {model} is no column of the data, which has "
            f"{listed(columns)}.\nExpected --column {argument}=NAME (or NAME,NAME for a matrix), "
            f"or --arg {argument}=VALUE."
        )

    @case
    def unknown(cls, option: str, argument: str, model: str, known: Sequence[str]) -> str:
        """An option is for an argument that the model does not have."""
        return (
            f"{option} is for '{argument}', and {model} has no such argument.\n"
            f"Expected names among {', '.join(known)}."
        )

    @case
    def option(cls, option: str, value: str, expected: str) -> str:
        """An option has no meaning."""
        return f"{option} got {value!r}.\nExpected {expected}."

    @case
    def subject(cls, found: str) -> str:
        """What is to be fitted is not said, or said twice."""
        return (
            f"The command has {found}.\nExpected a model and its data, model.py:model data.csv, or "
            '--formula "y ~ x + (1 | g)" data.csv.'
        )

    @case
    def exists(cls, folder: str, remedy: str) -> str:
        """A folder to be written is there already."""
        return f"The folder {folder} is there already.\n{remedy}"

    @case
    def no_run(cls, folder: str, what: str) -> str:
        """A folder holds no run."""
        return f"{folder} holds no {what}.\nExpected a folder that `lowerbound fit --out` has made."

    @case
    def model_unnamed(cls, folder: str, model: str, command: str) -> str:
        """The model of a run has to be named again: nothing else is executed."""
        return (
            f"The run in {folder} is of {model}, which a record cannot have executed.\n"
            f"Expected its name: lowerbound {command} {folder} {model}."
        )

    @case
    def changed(cls, path: str, folder: str) -> str:
        """The data are not those of the fit."""
        return (
            f"{path} is not what the run in {folder} was made from.\n"
            "Expected the same file: name it with --data, or fit again."
        )
