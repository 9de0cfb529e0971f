"""Errors of words and their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from lowerbound.errors.documents.corpora import CorpusError
from lowerbound.errors.roots import Words, case, told


class VocabularyError(CorpusError):
    """Words and word numbers do not fit together."""

    @case
    def width(cls, what: str, found: int, expected: int, *, fitted: bool) -> str:
        """A matrix has another number of columns than there are words."""
        if fitted:
            return (
                f"{what} has {found} features, but LatentDirichletAllocation is expecting "
                f"{expected} features as input.\n"
                "Expected one column for each word of the fit, in the same order. Count the words "
                "with the vocabulary of the fit."
            )
        return (
            f"{what} has {found} columns; the vocabulary has {expected} words.\n"
            "Expected one word per column, in the order of the columns. Pass the vocabulary that "
            f"{what} was counted with."
        )

    @told
    def chunk_width(cls, what: str, document: int, found: int, expected: int) -> None:
        """The chunk of {what} that starts at document {document} has {found} columns; the first has
        {expected}.

        Expected one column per word in every chunk. Count all of them with one vocabulary.
        """

    @told
    def identifier(cls, what: str, document: int, found: int, size: int) -> Words:
        """Document {document} of {what} holds word number {found}; there are {size} words.

        Expected numbers from 0 to {last}. Make the bags of words with the vocabulary of the fit.
        """
        return {"last": size - 1}

    @told
    def negative_identifier(cls, what: str, document: int, found: int) -> None:
        """Document {document} of {what} holds word number {found}.

        Expected numbers from 0 on. Leave out words that the vocabulary does not have.
        """

    @told
    def too_many(cls, what: str, found: int) -> None:
        """{what} has word number {found}.

        Expected numbers below 2^31 - 1. Number the words that occur from 0 on.
        """

    @told
    def unnamed(cls, what: str) -> None:
        """{what} holds tokens; the words of the fit have numbers alone.

        Expected counts or bags of words, as in the fit. Or fit with names for the words:
        vocabulary=[...].
        """

    @told
    def no_overlap(cls, what: str, columns: Sequence[str], words: Sequence[str]) -> None:
        """No column of {what} ({columns:listed}) is a word of the fit ({words:listed}).

        Expected columns named by words. Count the words with the vocabulary of the fit.
        """

    @told
    def duplicate(cls, word: str, first: int, second: int, where: str) -> None:
        """The word '{word}' stands twice in {where}: at {first} and at {second}.

        Expected each word once. Merge the two, or rename one.
        """

    @told
    def numbers(cls, missing: int, size: int) -> Words:
        """vocabulary has {size} words, and none has the number {missing}.

        Expected each number from 0 to {last} once. Number the words anew (Dictionary.compactify()
        in gensim).
        """
        return {"last": size - 1}

    @told
    def not_a_vocabulary(cls, kind: str) -> None:
        """vocabulary is {kind}.

        Expected a sequence of words (strings), a mapping of words to numbers or of numbers to
        words, or a gensim Dictionary.
        """

    @told
    def empty(cls) -> None:
        """vocabulary has 0 words.

        Expected at least one. Check how it was made.
        """

    @told
    def differs(cls, place: int, given: str, fitted: str) -> None:
        """vocabulary has {given} at {place}, where the fit has {fitted}.

        Expected the words of the fit. Leave vocabulary out, or fit again.
        """

    @told
    def size(cls, found: int, expected: int) -> None:
        """vocabulary has {found} words; the fit has {expected}.

        Expected one name for each word of the fit. Pass the vocabulary of the fit.
        """
