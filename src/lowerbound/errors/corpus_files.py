"""Errors of corpora in files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowerbound.errors.corpora import CorpusError
from lowerbound.errors.rows import PathError
from lowerbound.errors.wording import quoted


class CorpusFileError(CorpusError, PathError):
    """A file does not hold documents that can be read."""

    files, pattern = ".npz or .parquet", "*.npz or *.parquet"

    @classmethod
    def other_kind(cls, path: str) -> CorpusFileError:
        """A file is of no known kind."""
        return cls(
            f"{path} is neither a .npz nor a .parquet file.\n"
            "Expected sparse counts written by scipy.sparse.save_npz, or a Parquet file with a "
            "column 'words'. Convert the file."
        )

    @classmethod
    def two_kinds(cls, first: str, second: str) -> CorpusFileError:
        """Files of both kinds stand together."""
        return cls(
            f"The files are of two kinds: {first}, {second}.\n"
            "Expected .npz files alone, or .parquet files alone. Pass a list of the paths to read."
        )

    @classmethod
    def unreadable(cls, path: str, reason: str) -> CorpusFileError:
        """A file cannot be read as what its name says."""
        writer = "scipy.sparse.save_npz" if path.endswith(".npz") else "a writer of Parquet"
        return cls(
            f"{path} cannot be read: {reason}.\n"
            f"Expected a file written by {writer}. Write it again, or leave it out."
        )

    @classmethod
    def widths(cls, first: str, expected: int, path: str, found: int) -> CorpusFileError:
        """Two files have different numbers of words."""
        return cls(
            f"{path} has {found} columns; {first} has {expected}.\n"
            "Expected one column per word in every file. Count the words of all files with one "
            "vocabulary."
        )

    @classmethod
    def no_column(cls, path: str, known: Sequence[str]) -> CorpusFileError:
        """A Parquet file has no column of words."""
        return cls(
            f"{path} has no column 'words'; its columns are {quoted(known)}.\n"
            "Expected a column 'words' of lists of strings or of word numbers, and beside it, if "
            "words are counted, 'counts'. Rename the columns."
        )

    @classmethod
    def column_type(cls, path: str, column: str, kind: Any, like: str) -> CorpusFileError:
        """A column of a Parquet file is of another type."""
        return cls(
            f"Column '{column}' of {path} has type {kind}.\n"
            f"Expected {like}. Write the column anew in all files."
        )

    @classmethod
    def null(cls, path: str, column: str, document: int) -> CorpusFileError:
        """A document, or an entry of one, is null."""
        return cls(
            f"Column '{column}' of {path} holds a null in document {document} of the corpus.\n"
            "Expected a list without nulls; a document without words is an empty list. Drop such "
            "rows or entries when the file is written."
        )

    @classmethod
    def lengths(cls, path: str, document: int, words: int, counts: int) -> CorpusFileError:
        """A document has another number of counts than of words."""
        return cls(
            f"Document {document} of the corpus has {words} words and {counts} counts   ({path}).\n"
            "Expected one count per word. Write the two columns anew."
        )
