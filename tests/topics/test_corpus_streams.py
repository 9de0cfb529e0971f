"""Streams: every pass gives the documents in order, in batches of any size."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from lowerbound.errors import (
    CorpusError,
    EmptyDocumentsWarning,
    UnknownWordsWarning,
    VocabularyError,
)
from lowerbound.topics.corpus import open_corpus
from lowerbound.topics.corpus.streams import recut
from lowerbound.topics.documents import joined

RNG = np.random.default_rng(0)
COUNTS = RNG.integers(0, 3, (11, 5)) + np.eye(11, 5, dtype=int)
COUNTS[:, 0] += 1
WORDS = ["a", "b", "c", "d", "e"]
TOKENS = [[WORDS[i] for i in np.repeat(np.arange(5), row)] for row in COUNTS]
BAGS = [[(int(i), int(row[i])) for i in np.flatnonzero(row)] for row in COUNTS]
PIECES = [COUNTS[:4], COUNTS[4:4], COUNTS[4:5], COUNTS[5:]]


@dataclass
class Again:
    """Iterates again and again; counts its passes."""

    items: Any
    passes: list[int] = field(default_factory=list)

    def __iter__(self):
        self.passes.append(0)
        yield from self.items


class Sized(Again):
    def __len__(self):
        return len(self.items)


def whole(corpus, size):
    parts = list(corpus.batches(size))
    assert [len(part) for part in parts[:-1]] == [size] * (len(parts) - 1)
    assert 0 < len(parts[-1]) <= size
    return joined(parts).matrix().toarray()


@pytest.mark.parametrize("size", [1, 3, 11, 100])
@pytest.mark.parametrize(
    ("source", "count", "named"),
    [
        (Again(TOKENS), 11, True),  # the pass that finds the words counts the documents
        (Again(BAGS), 11, False),
        (Again([sp.csr_array(piece) for piece in PIECES]), None, False),
        (Again([sp.coo_array(piece) for piece in PIECES]), None, False),
        (Again([open_corpus(COUNTS[:7]).held, open_corpus(COUNTS[7:]).held]), None, False),
        (Again([pd.DataFrame(piece, columns=WORDS) for piece in PIECES]), None, True),
    ],
    ids=["tokens", "bags", "csr", "coo", "Documents", "frames"],
)
def test_every_pass_gives_the_documents_in_order(source, count, named, size):
    corpus = open_corpus(source)
    assert corpus.held is None
    assert (corpus.vocabulary, corpus.count) == (5, count)
    assert (corpus.words is not None) == named
    for _ in range(2):
        np.testing.assert_array_equal(whole(corpus, size), COUNTS)


@pytest.mark.parametrize("items", [TOKENS, BAGS], ids=["tokens", "bags"])
def test_the_length_is_the_count_and_a_vocabulary_saves_a_pass(items):
    source = Sized(items)
    corpus = open_corpus(source, WORDS)
    assert corpus.count == 11
    assert corpus.words.tolist() == WORDS
    assert len(source.passes) == 1  # a look at the first document
    unsized = open_corpus(Again(items), WORDS)
    assert unsized.count is None
    np.testing.assert_array_equal(whole(unsized, 4), COUNTS)


def test_the_length_of_a_stream_of_chunks_is_not_that_of_documents():
    assert open_corpus(Sized([sp.csr_array(COUNTS)])).count is None


@given(
    sizes=st.lists(st.integers(0, 5), max_size=6),
    size=st.integers(1, 7),
)
def test_recut_keeps_documents_and_order(sizes, size):
    ends = np.cumsum([0, *sizes])
    total = int(ends[-1])
    documents = open_corpus(np.arange(1, total + 2)[:, None]).held
    parts = [documents.between(low, high) for low, high in pairwise(ends)]
    cut = list(recut(parts, size))
    assert [len(part) for part in cut] == [size] * (total // size) + [total % size] * (
        total % size > 0
    )
    assert [n for part in cut for n in part.counts.tolist()] == list(range(1, total + 1))


def test_rows_on_disk_are_read_by_slices(tmp_path):
    matrix = sp.csr_array(COUNTS.astype(np.float32))
    arrays = {}
    for name, dtype in [("data", np.float32), ("indices", np.int32), ("indptr", np.int32)]:
        np.save(tmp_path / f"{name}.npy", getattr(matrix, name).astype(dtype))
        arrays[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    mapped = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(11, 5))
    corpus = open_corpus(mapped, WORDS)
    assert corpus.held is None
    assert (corpus.count, corpus.vocabulary, corpus.words.tolist()) == (11, 5, WORDS)
    for size in (2, 11):
        np.testing.assert_array_equal(whole(corpus, size), COUNTS)
    with pytest.raises(VocabularyError, match="X has 5 features"):
        open_corpus(mapped, features=4)


def test_warnings_come_once_at_the_end_of_the_first_pass():
    source = Again([[], *TOKENS, [], ["x", "y"]])
    corpus = open_corpus(source, WORDS)
    batches = corpus.batches(2)
    next(batches)
    with pytest.warns() as caught:
        list(batches)
    assert [(w.category, str(w.message)) for w in caught] == [
        (
            UnknownWordsWarning,
            "2 tokens of X are not in the vocabulary and left out, e.g. 'x', 'y'.",
        ),
        (
            EmptyDocumentsWarning,
            "3 documents of X have no words: their proportions are those of the prior.",
        ),
    ]
    assert sum(len(part) for part in corpus.batches(3)) == 14  # silent: warnings are errors here


def test_faults_are_named_by_document_at_the_batch():
    bags = [*BAGS, [(1, 2), (7, 1)]]
    batches = open_corpus(Again(bags), WORDS).batches(4)
    assert [len(next(batches)), len(next(batches))] == [4, 4]
    with pytest.raises(VocabularyError) as caught:
        next(batches)
    assert str(caught.value) == (
        "Document 11 of X holds word number 7; there are 5 words.\n"
        "Expected numbers from 0 to 4. Make the bags of words with the vocabulary of the fit."
    )
    counts = COUNTS.astype(float)
    counts[9, 3] = 0.25
    chunks = Again([sp.csr_array(counts[:5]), sp.csr_array(counts[5:])])
    with pytest.raises(CorpusError, match=r"0\.25 for word 3 \('d'\) in document 9\."):
        list(open_corpus(chunks, WORDS).batches(2))


def test_chunks_of_another_width():
    corpus = open_corpus(Again([sp.csr_array(COUNTS), sp.csr_array(COUNTS[:, :3])]))
    with pytest.raises(VocabularyError) as caught:
        list(corpus.batches(4))
    assert str(caught.value) == (
        "The chunk of X that starts at document 11 has 3 columns; the first has 5.\n"
        "Expected one column per word in every chunk. Count all of them with one vocabulary."
    )


def test_a_document_among_chunks():
    corpus = open_corpus(Again([sp.csr_array(COUNTS), TOKENS[0]]))
    with pytest.raises(CorpusError) as caught:
        list(corpus.batches(4))
    assert str(caught.value) == (
        "X gave a list after 11 documents; before, it gave chunks.\n"
        "Expected a sparse matrix of counts, or Documents, every time. Give every chunk the same "
        "form."
    )


def test_a_pass_of_another_length():
    source = Sized(list(TOKENS))
    corpus = open_corpus(source, WORDS)
    source.items.pop()
    with pytest.raises(CorpusError) as caught:
        list(corpus.batches(4))
    assert str(caught.value) == (
        "A pass over X gave 10 documents; it has 11.\n"
        "Expected the same documents in every pass. Let __iter__ start afresh, and __len__ be the "
        "number of documents."
    )


ONCE = (
    ", which can be read only once.\n"
    "Expected an object that can be iterated again for every pass: a list, or a class whose "
    "__iter__ starts afresh. Or use partial_fit chunk by chunk."
)


@pytest.mark.parametrize(
    ("source", "kind"),
    [((d for d in TOKENS), "generator"), (iter(TOKENS), "list_iterator"), (map(str, ()), "map")],
)
def test_an_iterator_is_used_up(source, kind):
    with pytest.raises(CorpusError) as caught:
        open_corpus(source)
    assert str(caught.value) == f"X is a {kind}{ONCE}"


@pytest.mark.parametrize(
    ("items", "text"),
    [
        (
            [],
            "X has 0 documents.\n"
            "Expected at least one. Check the selection or the files that it comes from.",
        ),
        (
            [[], []],
            "X has 2 documents and no word.\n"
            "Expected at least one count above 0. Check how words were split and counted, and the "
            "vocabulary.",
        ),
        (
            [[], [1, 0, 2]],
            "Document 1 of X is a list of numbers.\n"
            "Expected a list of tokens (strings), a bag of words [(id, count), ...], or a chunk of "
            "documents as a sparse matrix. Give counts as scipy.sparse.csr_array(rows).",
        ),
    ],
    ids=["none", "empty", "numbers"],
)
def test_streams_that_hold_nothing_to_read(items, text):
    with pytest.raises(CorpusError) as caught:
        open_corpus(Again(items))
    assert str(caught.value) == text


def test_a_stream_without_a_word_is_found_at_the_end_of_a_pass():
    corpus = open_corpus(Again([["x"], ["y", "x"]]), WORDS)
    with pytest.raises(CorpusError) as caught:
        list(corpus.batches(1))
    assert str(caught.value) == (
        "X has 2 documents and no word: 3 tokens are not in the vocabulary ('x', 'y').\n"
        "Expected at least one count above 0. Check how words were split and counted, and the "
        "vocabulary."
    )
