"""What a corpus may be: everything that can be read as bags of words, checked and counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import numpy as np

from lowerbound.errors import CorpusError, CorpusTypeError
from lowerbound.model.inputs.leaves import is_frame, is_sparse, is_table
from lowerbound.topics.corpus.counts import from_dense, from_documents, from_frame, from_sparse
from lowerbound.topics.corpus.files import is_paths, stream_files
from lowerbound.topics.corpus.streams import (
    Stream,
    chunk_words,
    find_words,
    on_disk,
    one_chunk,
    recut,
    stream_items,
    stream_rows,
)
from lowerbound.topics.corpus.tally import Tally
from lowerbound.topics.corpus.vocabulary import Vocabulary, state
from lowerbound.topics.corpus.words import Kind, from_bags, from_tokens, kind_of, opened
from lowerbound.topics.documents import Documents, joined


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents to learn from, held in memory or read anew in every pass."""

    held: Documents | None  # all of them, when they are in memory
    vocabulary: int  # V
    words: np.ndarray | None = field(repr=False)  # (V,) of str, when the words have names
    count: int | None  # how many documents, when known before a pass
    what: str = field(repr=False)
    fitted: bool = field(repr=False)
    stream: Stream | None = field(repr=False)
    warned: Event = field(default_factory=Event, repr=False)  # set by the first complete pass

    def batches(self, size: int) -> Iterator[Documents]:
        """One pass in the order of the source, in batches of `size` documents.

        The last batch may be smaller. What a stream holds is checked as it is read; its first
        complete pass gives the warnings that documents in memory give when they are opened.
        """
        if self.held is not None:
            for low in range(0, len(self.held), size):
                yield self.held.between(low, min(low + size, len(self.held)))
            return
        yield from recut(self._parts(size), size)

    def _parts(self, size: int) -> Iterator[Documents]:
        assert self.stream is not None
        tally = Tally(self.what)
        for part in self.stream.read(size, tally):
            yield tally.add(part)
        quiet = self.warned.is_set()
        self.warned.set()
        tally.close(fitted=self.fitted, count=self.count, quiet=quiet)


def open_corpus(
    source: Any,
    vocabulary: Any = None,
    *,
    features: int | None = None,
    names: np.ndarray | None = None,
    what: str = "X",
) -> Corpus:
    """Find out what a corpus is, and check all of it that is in memory.

    `source` is counts (a SciPy sparse matrix of any format, a 2-D array, a data frame whose columns
    are words), a list of token lists or of bags of words [(id, count), ...], `Documents`, the path
    of .npz or .parquet files or of a folder of them, or an object that iterates over documents or
    chunks of them, again and again. Tokens without a `vocabulary` are numbered in alphabetical
    order. `features` and `names` are the words that a fit has fixed: tokens beyond them are left
    out, with a warning.

    >>> corpus = open_corpus([["to", "be", "or", "not", "to", "be"], ["to", "do"]])
    >>> corpus.words.tolist(), corpus.held.matrix().toarray().tolist()
    (['be', 'do', 'not', 'or', 'to'], [[2.0, 0.0, 1.0, 1.0, 2.0], [0.0, 1.0, 0.0, 0.0, 1.0]])
    """
    known = state(vocabulary, features, names)
    fitted = known is not None and known.fitted
    stream = _stream(source, known, what)
    if stream is not None:
        if stream.count == 0:
            raise CorpusError.no_documents(what)
        words = stream.known
        return Corpus(None, words.size, words.words, stream.count, what, fitted, stream)
    tally = Tally(what)
    held, words = _hold(source, known, tally)
    tally.add(held)
    tally.close(fitted=fitted)
    return Corpus(held, words.size, words.words, len(held), what, fitted, None)


def _stream(source: Any, known: Vocabulary | None, what: str) -> Stream | None:
    """The source as a stream; None if it is in memory."""
    if is_sparse(source):
        rows = source.format == "csr"
        mapped = rows and (on_disk(source.data) or on_disk(source.indices))
        return stream_rows(source, known, what) if mapped else None
    if is_paths(source):
        return stream_files(source, known, what)
    if isinstance(source, str | bytes):
        raise CorpusError.raw_text(what, str(source))
    if isinstance(source, Documents | list | tuple) or is_table(source):
        return None
    if hasattr(source, "__array__"):
        return None
    if isinstance(source, Mapping | set | frozenset) or not hasattr(source, "__iter__"):
        raise CorpusTypeError.of_corpus(what, type(source).__name__)
    return stream_items(source, known, what)


def _hold(source: Any, known: Vocabulary | None, tally: Tally) -> tuple[Documents, Vocabulary]:
    """All documents of a source in memory, and their words."""
    if isinstance(source, Documents):
        return _named(from_documents(source, known, tally), known)
    if is_sparse(source):
        return _named(from_sparse(source, known, tally), known)
    if is_table(source) and is_frame(source):
        found, words = from_frame(source, known, tally)
        return found, words or Vocabulary(found.vocabulary)
    if is_table(source):
        return _hold_items(opened(source, 0, tally.what), known, tally)
    if isinstance(source, list | tuple):
        return _hold_items(source, known, tally)
    array = np.asanyarray(source)
    if array.ndim == 1 and array.dtype.kind in "OUST":
        return _hold_items(array.tolist(), known, tally)
    return _named(from_dense(array, known, tally), known)


def _hold_items(
    items: Sequence[Any], known: Vocabulary | None, tally: Tally
) -> tuple[Documents, Vocabulary]:
    """The documents of a list: tokens, bags of words, rows of counts, or chunks."""
    what = tally.what
    if len(items) == 0:
        raise CorpusError.no_documents(what)
    kind: Kind | None = "counts"
    if not isinstance(items[0], int | float | complex | np.number | np.bool):
        if not all(isinstance(item, list | tuple) for item in items):
            items = [opened(item, number, what) for number, item in enumerate(items)]
        kinds = (kind_of(item, number, what) for number, item in enumerate(items))
        kind = next((found for found in kinds if found is not None), None)
    if kind == "counts":
        try:
            array = np.array(items)
        except ValueError as error:
            raise CorpusError.ragged(what) from error
        return _named(from_dense(array, known, tally), known)
    if kind == "chunk":
        return _hold_chunks(items, known, tally)
    if kind is None and known is None:
        raise CorpusError.no_tokens(what, len(items), 0, ())
    words = known or find_words(items, kind or "bag", what)[0]
    form = from_tokens if kind == "tokens" else from_bags
    return form(items, words, tally), words


def _hold_chunks(
    chunks: Sequence[Any], known: Vocabulary | None, tally: Tally
) -> tuple[Documents, Vocabulary]:
    words = known or chunk_words(chunks[0])
    parts, counting = [], Tally(tally.what, examples=tally.examples)
    for chunk in chunks:
        parts.append(counting.add(one_chunk(chunk, words, known, counting)))
    tally.unknown = counting.unknown
    return joined(parts), words


def _named(documents: Documents, known: Vocabulary | None) -> tuple[Documents, Vocabulary]:
    return documents, known or Vocabulary(documents.vocabulary)
