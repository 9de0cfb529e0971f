"""Corpora that are read anew in every pass: objects that iterate, and sparse rows on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowerbound.errors import CorpusError, VocabularyError
from lowerbound.topics.corpus.counts import from_rows, require_real, require_width
from lowerbound.topics.corpus.tally import Tally
from lowerbound.topics.corpus.vocabulary import Vocabulary, from_distinct, named
from lowerbound.topics.corpus.words import (
    Kind,
    bag_words,
    from_bags,
    from_chunk,
    from_tokens,
    kind_of,
    opened,
    runs,
    token_words,
)
from lowerbound.topics.documents import Documents, joined

RUN = 4096  # documents taken at a time where the words are looked for


@dataclass(frozen=True, eq=False)
class Stream:
    """Documents that can be read again: `read(size, tally)` is one pass, in parts of any size.

    The tally says what number the next document has, and notes tokens that are left out; whoever
    reads adds the parts to it.
    """

    known: Vocabulary
    count: int | None
    read: Callable[[int, Tally], Iterator[Documents]]


def recut(parts: Iterable[Documents], size: int) -> Iterator[Documents]:
    """The same documents in batches of `size`, the last of which may be smaller."""
    waiting: list[Documents] = []
    have = 0
    for part in parts:
        low = 0
        while have + len(part) - low >= size:
            high = low + size - have
            waiting.append(part.between(low, high))
            yield joined(waiting) if len(waiting) > 1 else waiting[0]
            waiting, have, low = [], 0, high
        if low < len(part):
            waiting.append(part.between(low, len(part)))
            have += len(part) - low
    if waiting:
        yield joined(waiting) if len(waiting) > 1 else waiting[0]


def stream_rows(matrix: Any, known: Vocabulary | None, what: str) -> Stream:
    """Compressed sparse rows whose arrays are mapped from disk, read by slices."""
    starts = np.asarray(matrix.indptr)
    count, width = (int(n) for n in matrix.shape)
    words = known or Vocabulary(width)
    require_real(matrix.dtype, what)
    require_width((count, width), known, what)

    def read(size: int, tally: Tally) -> Iterator[Documents]:
        for first in range(0, count, size):
            last = min(first + size, count)
            low, high = starts[first], starts[last]
            entries = matrix.indices[low:high], matrix.data[low:high]
            shape = (last - first, width)
            yield from_rows(starts[first : last + 1] - low, *entries, shape, words, tally)

    return Stream(words, count, read)


def on_disk(array: Any) -> bool:
    """Whether an array, or one that it is a view of, is mapped from a file."""
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


def stream_items(source: Any, known: Vocabulary | None, what: str) -> Stream:
    """An object that iterates over documents or over chunks of them, again and again."""
    if iter(source) is source:
        raise CorpusError.used_up(what, type(source).__name__)
    kind, first, seen = _first_kind(source, what)
    if kind == "chunk":
        return _stream_chunks(source, first, known)
    count = len(source) if hasattr(source, "__len__") else None
    if kind is None:
        if known is None:
            raise CorpusError.no_tokens(what, seen, 0, ())
        kind = "bag"
    if known is None:
        known, count = find_words(source, kind, what)
    words = known

    def read(size: int, tally: Tally) -> Iterator[Documents]:
        form = from_tokens if kind == "tokens" else from_bags
        for run in runs(source, size):
            yield form(run, words, tally)

    return Stream(words, count, read)


def find_words(source: Iterable[Any], kind: Kind, what: str) -> tuple[Vocabulary, int]:
    """The vocabulary of documents and their number, found in one pass.

    Tokens are numbered in alphabetical order, as scikit-learn's CountVectorizer does; word numbers
    exist up to the largest that occurs.
    """
    tally = Tally(what)
    tokens: set[str] = set()
    largest = -1
    for run in runs(source, RUN):
        if kind == "tokens":
            tokens.update(token_words(run, tally)[1])
        else:
            largest = max(largest, int(bag_words(run, None, tally)[1].max(initial=-1)))
        tally.documents += len(run)
    if kind == "tokens":
        return from_distinct(sorted(tokens)), tally.documents
    return Vocabulary(largest + 1), tally.documents


def width_of(chunk: Any) -> int:
    """The number of words of a chunk."""
    return int(chunk.vocabulary if isinstance(chunk, Documents) else chunk.shape[1])


def chunk_words(chunk: Any) -> Vocabulary:
    """The words of a chunk: the names of its columns, where it has them."""
    names = list(getattr(chunk, "columns", ()))
    if names and all(isinstance(name, str) for name in names):
        return named(names, "the columns of the first chunk")
    return Vocabulary(width_of(chunk))


def _first_kind(source: Iterable[Any], what: str) -> tuple[Kind | None, Any, int]:
    """The kind of the first item that is not an empty document, the item, and how many came."""
    number = -1
    for number, given in enumerate(source):
        item = opened(given, number, what)
        kind = kind_of(item, number, what)
        if kind == "counts":
            raise CorpusError.row_of_numbers(what, number)
        if kind is not None:
            return kind, item, number + 1
    if number < 0:
        raise CorpusError.no_documents(what)
    return None, None, number + 1


def _stream_chunks(source: Any, first: Any, known: Vocabulary | None) -> Stream:
    words = known or chunk_words(first)

    def read(size: int, tally: Tally) -> Iterator[Documents]:
        for chunk in source:
            yield one_chunk(chunk, words, known, tally)

    return Stream(words, None, read)


def one_chunk(chunk: Any, words: Vocabulary, known: Vocabulary | None, tally: Tally) -> Documents:
    """The documents of a chunk, whose words are those of the first one unless `known` before."""
    number = tally.documents
    item = opened(chunk, number, tally.what)
    if kind_of(item, number, tally.what) != "chunk":
        raise CorpusError.not_a_chunk(tally.what, number, type(chunk).__name__)
    if known is None and words.words is None and width_of(item) != words.size:
        raise VocabularyError.chunk_width(tally.what, number, width_of(item), words.size)
    return from_chunk(item, words, tally)
