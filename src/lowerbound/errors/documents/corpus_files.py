"""Errors of corpora in files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowerbound.errors.documents.corpora import CorpusError
from lowerbound.errors.roots import Words, told
from lowerbound.errors.rows import PathError


class CorpusFileError(CorpusError, PathError):
    """A file does not hold documents that can be read."""

    files, pattern = ".npz or .parquet", "*.npz or *.parquet"

    @told
    def other_kind(cls, path: str) -> None:
        """{path} is neither a .npz nor a .parquet file.

        Expected sparse counts written by scipy.sparse.save_npz, or a Parquet file with a column
        'words'. Convert the file.
        """

    @told
    def two_kinds(cls, first: str, second: str) -> None:
        """The files are of two kinds: {first}, {second}.

        Expected .npz files alone, or .parquet files alone. Pass a list of the paths to read.
        """

    @told
    def unreadable(cls, path: str, reason: str) -> Words:
        """{path} cannot be read: {reason}.

        Expected a file written by {writer}. Write it again, or leave it out.
        """
        return {
            "writer": "scipy.sparse.save_npz" if path.endswith(".npz") else "a writer of Parquet"
        }

    @told
    def widths(cls, first: str, expected: int, path: str, found: int) -> None:
        """{path} has {found} columns; {first} has {expected}.

        Expected one column per word in every file. Count the words of all files with one
        vocabulary.
        """

    @told
    def no_column(cls, path: str, known: Sequence[str]) -> None:
        """{path} has no column 'words'; its columns are {known:quoted}.

        Expected a column 'words' of lists of strings or of word numbers, and beside it, if words
        are counted, 'counts'. Rename the columns.
        """

    @told
    def column_type(cls, path: str, column: str, kind: Any, like: str) -> None:
        """Column '{column}' of {path} has type {kind}.

        Expected {like}. Write the column anew in all files.
        """

    @told
    def null(cls, path: str, column: str, document: int) -> None:
        """Column '{column}' of {path} holds a null in document {document} of the corpus.

        Expected a list without nulls; a document without words is an empty list. Drop such rows or
        entries when the file is written.
        """

    @told
    def lengths(cls, path: str, document: int, words: int, counts: int) -> None:
        """Document {document} of the corpus has {words} words and {counts} counts   ({path}).

        Expected one count per word. Write the two columns anew.
        """
