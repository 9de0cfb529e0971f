"""Documents: slices, selections and joins are those of the rows of the matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowerbound.topics.corpus import open_corpus
from lowerbound.topics.documents import Documents, joined

COUNTS = np.array([[2, 0, 1, 0], [0, 0, 0, 0], [0, 3, 0, 0], [1, 1, 1, 5]], dtype=np.float32)


@pytest.fixture
def documents() -> Documents:
    return Documents(
        np.array([0, 2, 2, 3, 7]),
        np.array([0, 2, 1, 0, 1, 2, 3], dtype=np.int32),
        np.array([2, 1, 3, 1, 1, 1, 5], dtype=np.float32),
        4,
    )


def dense(documents: Documents) -> np.ndarray:
    return documents.matrix().toarray()


def test_matrix_is_the_counts(documents):
    np.testing.assert_array_equal(dense(documents), COUNTS)
    assert documents.matrix().shape == (4, 4)


def test_sizes(documents):
    assert len(documents) == 4
    assert documents.tokens == 14
    np.testing.assert_array_equal(documents.lengths, [3, 0, 3, 8])
    np.testing.assert_array_equal(documents.distinct, [2, 0, 1, 4])


def test_lengths_are_exact_where_float32_sums_are_not():
    counts = np.array([2**24, 1, 1], dtype=np.float32)
    documents = Documents(np.array([0, 3]), np.arange(3, dtype=np.int32), counts, 3)
    assert documents.tokens == documents.lengths[0] == 2**24 + 2


@pytest.mark.parametrize(("first", "last"), [(0, 4), (1, 3), (2, 2), (3, 4)])
def test_between_is_a_slice_of_rows_without_copies(documents, first, last):
    part = documents.between(first, last)
    np.testing.assert_array_equal(dense(part), COUNTS[first:last])
    assert part.starts[0] == 0
    if part.starts[-1]:
        assert np.shares_memory(part.counts, documents.counts)


@given(chosen=st.lists(st.integers(0, 3), max_size=6))
def test_take_is_a_selection_of_rows(chosen):
    documents = open_corpus(COUNTS[[0, 2, 3, 3]]).held
    part = documents.take(np.array(chosen, dtype=int))
    np.testing.assert_array_equal(dense(part), COUNTS[[0, 2, 3, 3]][np.array(chosen, dtype=int)])


def test_joined_is_rows_on_top_of_each_other(documents):
    parts = [documents.between(0, 1), documents.between(1, 1), documents.between(1, 4)]
    whole = joined(parts)
    np.testing.assert_array_equal(dense(whole), COUNTS)
    assert whole.starts.dtype == np.int64
