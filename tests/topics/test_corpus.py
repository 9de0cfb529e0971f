"""Counts in memory: every form of the same matrix gives the same documents."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lowerbound.errors import EmptyDocumentsWarning, UnknownWordsWarning
from lowerbound.topics.corpus import open_corpus
from lowerbound.topics.documents import Documents

COUNTS = np.array([[2, 0, 1], [0, 3, 0], [1, 1, 4]])
WORDS = ["ant", "bee", "cat"]
FRAME = pd.DataFrame(COUNTS, columns=WORDS)
FORMATS = ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"]


def assert_counts(corpus, expected=COUNTS):
    """Canonical documents that hold these counts."""
    held = corpus.held
    np.testing.assert_array_equal(held.matrix().toarray(), expected)
    dtypes = (held.starts.dtype, held.words.dtype, held.counts.dtype)
    assert dtypes == (np.int64, np.int32, np.float32)
    assert (held.counts > 0).all()
    rows = np.repeat(np.arange(len(held)), held.distinct)
    assert (np.diff(rows * held.vocabulary + held.words) > 0).all()
    assert corpus.count == len(held) == len(expected)
    assert corpus.vocabulary == held.vocabulary == np.shape(expected)[1]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("container", ["array", "matrix"])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32, np.float64])
def test_sparse_formats(kind, container, dtype):
    matrix = getattr(sp, f"{kind}_{container}")(COUNTS.astype(dtype))
    assert_counts(open_corpus(matrix))


@pytest.mark.parametrize(
    "source",
    [
        COUNTS,
        COUNTS.astype(np.float16),
        COUNTS.astype(np.longdouble),
        COUNTS.astype(object),
        np.ma.masked_array(COUNTS),
        np.asfortranarray(COUNTS),
        COUNTS.tolist(),
        tuple(map(tuple, COUNTS.tolist())),
        [sp.csr_array(COUNTS[:2]), sp.csr_array(COUNTS[2:])],
        open_corpus(COUNTS).held,
        [open_corpus(COUNTS[:1]).held, open_corpus(COUNTS[1:]).held],
        [np.array(row) for row in COUNTS],
        pd.DataFrame(COUNTS),
    ],
    ids=lambda source: type(source).__name__,
)
def test_other_forms_without_names(source):
    corpus = open_corpus(source)
    assert_counts(corpus)
    assert corpus.words is None


@pytest.mark.parametrize(
    "frame",
    [
        FRAME,
        FRAME.astype("Int64"),
        FRAME.astype(pd.SparseDtype(int, 0)),
        pl.DataFrame(COUNTS, schema=WORDS),
        pa.table(dict(zip(WORDS, COUNTS.T, strict=True))),
        [FRAME[:2], FRAME[2:]],
    ],
    ids=["pandas", "nullable", "sparse", "polars", "arrow", "chunks"],
)
def test_columns_of_a_frame_are_words(frame):
    corpus = open_corpus(frame)
    assert_counts(corpus)
    assert corpus.words.tolist() == WORDS


def test_an_array_of_true_and_false_counts_ones():
    assert_counts(open_corpus(COUNTS > 0), COUNTS > 0)


@given(
    entries=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 200)), min_size=1
    ),
    kind=st.sampled_from(["coo", "csr", "csc"]),
)
def test_duplicates_are_summed_and_zeros_dropped(entries, kind):
    """uint8 entries whose sums pass 255, in any order."""
    rows, columns, values = np.array(entries).T
    expected = np.ones((3, 4), dtype=int)
    np.add.at(expected, (rows, columns), values)
    rows = np.concatenate([rows, np.repeat(np.arange(3), 4)])
    columns = np.concatenate([columns, np.tile(np.arange(4), 3)])
    values = np.concatenate([values, np.ones(12, int)]).astype(np.uint8)
    if kind == "coo":
        matrix = sp.coo_array((values, (rows, columns)), shape=(3, 4))
    else:
        major, minor, size = (rows, columns, 3) if kind == "csr" else (columns, rows, 4)
        order = np.argsort(major, kind="stable")
        starts = np.searchsorted(major[order], np.arange(size + 1))
        make = sp.csr_array if kind == "csr" else sp.csc_array
        matrix = make((values[order], minor[order], starts), shape=(3, 4))
    before = matrix.copy()
    assert_counts(open_corpus(matrix), expected)
    np.testing.assert_array_equal(matrix.data, before.data)


def test_rows_of_our_types_are_not_copied_nor_changed():
    matrix = sp.csr_array(COUNTS.astype(np.float32))
    matrix.indices, matrix.indptr = (a.astype(np.int32) for a in (matrix.indices, matrix.indptr))
    held = open_corpus(matrix).held
    assert np.shares_memory(held.counts, matrix.data)
    assert np.shares_memory(held.words, matrix.indices)
    for indices in ([0, 1], [1, 0]):
        arrays = (
            np.array([0, 5], np.float32),
            np.array(indices, np.int32),
            np.array([0, 2], np.int32),
        )
        explicit = sp.csr_array(arrays, shape=(1, 2))
        assert_counts(open_corpus(explicit), explicit.toarray())
        np.testing.assert_array_equal(explicit.data, [0, 5])
        np.testing.assert_array_equal(explicit.indices, indices)


def test_flags_that_are_out_of_date_are_not_believed():
    matrix = sp.csr_array(COUNTS)
    assert matrix.has_canonical_format
    matrix.indices[:2] = matrix.indices[:2][::-1].copy()
    assert_counts(open_corpus(matrix), matrix.toarray())


@pytest.mark.parametrize("source", [COUNTS, sp.csr_array(COUNTS), open_corpus(COUNTS).held])
@pytest.mark.parametrize(
    "vocabulary",
    [
        WORDS,
        tuple(WORDS),
        np.array(WORDS),
        pd.Series(WORDS),
        pd.Index(WORDS),
        pl.Series(WORDS),
        {"cat": 2, "ant": np.int64(0), "bee": 1},
        {2: "cat", 1: "bee", 0: "ant"},
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_vocabulary_names_the_columns(source, vocabulary):
    assert open_corpus(source, vocabulary).words.tolist() == WORDS


def test_a_vocabulary_orders_the_columns_of_a_frame():
    corpus = open_corpus(FRAME, ["cat", "ant", "bee", "dog"])
    assert_counts(corpus, np.column_stack([COUNTS[:, [2, 0, 1]], np.zeros(3)]))
    assert corpus.words.tolist() == ["cat", "ant", "bee", "dog"]
    renamed = open_corpus(FRAME, ["x", "y", "z"])
    assert_counts(renamed)
    assert renamed.words.tolist() == ["x", "y", "z"]


def test_a_frame_after_the_fit_is_matched_by_name():
    names = np.array(["bee", "ant", "dog"], dtype=object)
    with pytest.warns(UnknownWordsWarning) as caught:
        corpus = open_corpus(FRAME, features=3, names=names)
    assert_counts(corpus, np.column_stack([COUNTS[:, 1], COUNTS[:, 0], [0, 0, 0]]))
    assert [str(w.message) for w in caught] == [
        "5 tokens of X are not in the vocabulary and left out, e.g. 'cat'."
    ]


def test_batches_are_consecutive_rows():
    corpus = open_corpus(COUNTS)
    parts = [part.matrix().toarray().tolist() for part in corpus.batches(2)]
    assert parts == [COUNTS[:2].tolist(), COUNTS[2:].tolist()]
    assert [len(part) for part in corpus.batches(10)] == [3]


@given(counts=arrays(np.int64, (4, 3), elements=st.integers(0, 2**24)))
def test_counts_up_to_the_largest_are_exact(counts):
    counts[:, 0] += counts.sum(axis=1) == 0  # no document is empty
    np.testing.assert_array_equal(open_corpus(counts).held.matrix().toarray(), counts)


def test_empty_documents_are_kept_with_one_warning():
    counts = np.array([[0, 0], [1, 2], [0, 0]])
    with pytest.warns(EmptyDocumentsWarning) as caught:
        corpus = open_corpus(sp.csr_array(counts))
    assert_counts(corpus, counts)
    assert [str(w.message) for w in caught] == [
        "2 documents of X have no words: their proportions are those of the prior."
    ]
    with pytest.warns(EmptyDocumentsWarning) as caught:
        open_corpus(counts[:2], what="documents")
    assert str(caught[0].message) == (
        "1 document of documents has no words: its proportions are those of the prior."
    )


def test_after_the_fit_all_documents_may_be_empty():
    with pytest.warns(EmptyDocumentsWarning):
        corpus = open_corpus(np.zeros((2, 3)), features=3)
    assert isinstance(corpus.held, Documents)
    assert_counts(corpus, np.zeros((2, 3)))


def test_jax_arrays_and_other_arrays():
    import jax.numpy as jnp

    class Arrayed:
        def __array__(self, dtype=None, copy=None):
            return np.array(COUNTS, dtype=dtype)

    assert_counts(open_corpus(jnp.array(COUNTS)))
    assert_counts(open_corpus(Arrayed()))
