"""Errors and warnings of corpora: what a bag of words may be, and what was met instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowerbound.errors.roots import ArgumentError, LowerboundWarning, Words, case, told
from lowerbound.errors.wording import counted, listed, short

_FORMS = (
    "Expected counts (a SciPy sparse matrix, a 2-D array, a data frame), a list of token lists, a "
    "list of bags of words [(id, count), ...], the path of .npz or .parquet files, or an object "
    "that iterates over documents."
)


class CorpusError(ArgumentError):
    """A corpus cannot be read as bags of words."""

    @case
    def raw_text(cls, what: str, text: str, document: int | None = None) -> str:
        """A document is a string that is not split into words."""
        held = f"{what} is a string" if document is None else f"Document {document} of {what} is"
        held += " that names no file" if document is None else " a string"
        return (
            f"{held}: {short(text)}.\n"
            "Expected documents as lists of tokens, or counts. Split each into tokens, "
            "[text.split() for text in texts], or count the words with "
            "sklearn.feature_extraction.text.CountVectorizer().fit_transform(texts)."
        )

    @case
    def one_dimension(cls, what: str, shape: tuple[int, ...]) -> str:
        """An array is not two-dimensional."""
        return (
            f"{what} is an array of {len(shape)} dimension{'' if len(shape) == 1 else 's'}, "
            f"shape {shape}.\n"
            "Expected counts with one row per document and one column per word. Reshape your data: "
            f"{what}.reshape(1, -1) is one document."
        )

    @told
    def ragged(cls, what: str) -> None:
        """{what} is a list of lists of numbers whose lengths differ.

        Expected one count for every word in each of them. Give word numbers as bags of words [(id,
        count), ...], or tokens as strings.
        """

    @told
    def row_of_numbers(cls, what: str, document: int) -> None:
        """Document {document} of {what} is a list of numbers.

        Expected a list of tokens (strings), a bag of words [(id, count), ...], or a chunk of
        documents as a sparse matrix. Give counts as scipy.sparse.csr_array(rows).
        """

    @told
    def not_a_chunk(cls, what: str, document: int, kind: str) -> None:
        """{what} gave a {kind} after {document} documents; before, it gave chunks.

        Expected a sparse matrix of counts, or Documents, every time. Give every chunk the same
        form.
        """

    @told
    def too_dense(cls, what: str, shape: tuple[int, ...], most: int) -> Words:
        """{what} is dense, shape {shape}: {entries:,} numbers.

        Expected at most {most:,}. Convert it to sparse rows: scipy.sparse.csr_array({what}), better
        where the words are counted.
        """
        return {"entries": shape[0] * shape[1]}

    @told
    def no_documents(cls, what: str) -> None:
        """{what} has 0 documents.

        Expected at least one. Check the selection or the files that it comes from.
        """

    @case
    def no_tokens(cls, what: str, documents: int, unknown: int, examples: Sequence[str]) -> str:
        """All documents are empty."""
        cause = (
            f": {_tokens(unknown)} {_are(unknown)} not in the vocabulary ({listed(examples)})"
            if unknown
            else ""
        )
        return (
            f"{what} has {counted(documents, 'document', 'documents')} and no word{cause}.\n"
            "Expected at least one count above 0. Check how words were split and counted, and the "
            "vocabulary."
        )

    @told
    def no_columns(cls, what: str, documents: int) -> None:
        """{what} has 0 feature(s) (shape=({documents}, 0)) while a minimum of 1 is required.

        Expected one column per word. Check how the words were chosen.
        """

    @told
    def used_up(cls, what: str, kind: str) -> None:
        """{what} is a {kind}, which can be read only once.

        Expected an object that can be iterated again for every pass: a list, or a class whose
        __iter__ starts afresh. Or use partial_fit chunk by chunk.
        """

    @told
    def changed(cls, what: str, found: int, count: int) -> None:
        """A pass over {what} gave {found} documents; it has {count}.

        Expected the same documents in every pass. Let __iter__ start afresh, and __len__ be the
        number of documents.
        """

    @told
    def not_valid(cls, what: str, reason: str) -> None:
        """{what} is not a valid sparse matrix: {reason}.

        Expected word numbers below its number of columns. Check how its arrays were made:
        {what}.check_format() says more.
        """

    @told
    def masked(cls, what: str, count: int) -> Words:
        """{what} has {entries}.

        Expected counts. A word that does not occur has count 0: {what}.filled(0), where that is
        what the mask means.
        """
        return {"entries": counted(count, "masked entry", "masked entries")}


class CorpusTypeError(CorpusError, TypeError):
    """The corpus, a document or a token is of a type that means nothing here."""

    @case
    def of_corpus(cls, what: str, kind: str) -> str:
        """The corpus itself."""
        return f"{what} is a {kind}.\n{_FORMS}"

    @case
    def of_numbers(cls, what: str, dtype: str, reason: str = "") -> str:
        """An array does not hold real numbers."""
        found = f"{what} has dtype {dtype}"
        if dtype.startswith("complex"):
            found += " (Complex data not supported)"
        return (
            f"{found}{': ' if reason else ''}{reason}.\n"
            "Expected counts: whole numbers >= 0. Convert it to numbers, or pass documents as "
            "lists of tokens."
        )

    @told
    def of_column(cls, what: str, column: Any, dtype: str) -> None:
        """Column {column!r} of {what} has dtype {dtype}.

        Expected one column of counts per word. Leave the column out, or pass {what}[{column!r}]
        alone if its entries are lists of tokens.
        """

    @told
    def of_document(cls, what: str, document: int, kind: str, like: str) -> None:
        """Document {document} of {what} is a {kind}.

        Expected {like}. Bring every document into the same form.
        """

    @told
    def of_entry(cls, what: str, document: int, place: int, value: Any, like: str) -> None:
        """Document {document} of {what} holds {value:short} at place {place}.

        Expected {like}. Drop missing entries, and give all documents the same form.
        """


class CountError(CorpusError):
    """A count is not a whole number from 0 to `most`; `more` other entries are like it."""

    def __init__(
        self,
        what: str,
        document: int,
        word: int,
        name: str | None,
        value: float,
        more: int,
        most: int,
    ) -> None:
        where = f"word {word}" if name is None else f"word {word} ('{name}')"
        shown = f"{value:.9g}" if abs(value) < 1e9 else f"{value:g}"
        found = f"{shown} for {where} in document {document}"
        if more:
            found += f", and {more:,} more such entr{'y' if more == 1 else 'ies'}"
        if value != value:
            text = f"{what} holds NaN"
            advice = "A word that does not occur has count 0: fill missing entries with 0."
        elif abs(value) == float("inf"):
            text = f"{what} holds an infinite count"
            advice = "Correct the entry."
        elif value < 0:
            text = f"Negative values in data passed as {what}"
            advice = "Correct the entry, or pass the counts before they were centred or scaled."
        elif value > most:
            text = f"{what} holds a count above 2^{most.bit_length() - 1} = {most:,}"
            advice = "float32 does not hold such counts exactly: split the document."
        else:
            text = f"{what} holds a fractional count"
            advice = (
                "Tf-idf weights and frequencies are not counts: use CountVectorizer in place of "
                "TfidfVectorizer."
            )
        super().__init__(f"{text}: {found}.\nExpected whole numbers >= 0. {advice}")


class EmptyDocumentsWarning(LowerboundWarning):
    """Some documents have no words."""

    def __init__(self, what: str, count: int) -> None:
        one = count == 1
        subject = "1 document" if one else f"{count:,} documents"
        super().__init__(
            f"{subject} of {what} {'has' if one else 'have'} no words: "
            f"{'its' if one else 'their'} proportions are those of the prior."
        )


class UnknownWordsWarning(LowerboundWarning):
    """Some tokens are not in the vocabulary and were left out."""

    def __init__(self, what: str, count: int, examples: Sequence[str]) -> None:
        super().__init__(
            f"{_tokens(count)} of {what} {_are(count)} not in the vocabulary and "
            f"left out, e.g. {listed(examples)}."
        )


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count:,} tokens"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
