"""Halves of documents: they add up to the whole and are dealt in turn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lowerbound.topics.documents import Documents
from lowerbound.topics.looks.completion_split import split_tokens


def documents(counts: np.ndarray) -> Documents:
    rows, words = np.nonzero(counts)
    starts = np.concatenate([[0], np.cumsum((counts > 0).sum(axis=1))])
    values = counts[rows, words].astype(np.float32)
    return Documents(starts.astype(np.int64), words.astype(np.int32), values, counts.shape[1])


def dense(part: Documents) -> np.ndarray:
    return part.matrix().toarray()


@given(
    counts=arrays(
        np.int64, st.tuples(st.integers(0, 6), st.integers(1, 5)), elements=st.integers(0, 4)
    ),
    seed=st.integers(0, 100),
)
def test_halves_add_up_and_the_first_is_never_smaller(counts, seed):
    whole = documents(counts)
    first, second = split_tokens(whole, seed)
    np.testing.assert_array_equal(dense(first) + dense(second), counts)
    difference = first.lengths - second.lengths
    np.testing.assert_array_equal(difference, whole.lengths % 2)
    for half in (first, second):
        assert (half.counts > 0).all()
        assert (half.words.dtype, half.counts.dtype) == (np.int32, np.float32)
        assert half.starts.dtype == np.int64


def test_a_function_of_the_seed():
    whole = documents(np.random.default_rng(0).integers(0, 4, (50, 30)))
    again = [dense(split_tokens(whole, seed)[0]) for seed in (3, 3, 4)]
    np.testing.assert_array_equal(again[0], again[1])
    assert not np.array_equal(again[0], again[2])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_token_is_as_likely_in_the_first_half(seed):
    """Of n tokens, m of one word, the first half holds a hypergeometric number of them.

    With n = 7 and m = 3 its mean is 3 * 4/7 and its variance 3 * 4/7 * 3/7 * 4/6. The mean over
    20,000 documents is within 5 standard errors: false failures below 1e-6 a seed.
    """
    counts = np.tile([3, 1, 1, 2], (20_000, 1))
    first = dense(split_tokens(documents(counts), seed)[0])
    error = np.sqrt(3 * 4 / 7 * 3 / 7 * 4 / 6 / len(counts))
    assert abs(first[:, 0].mean() - 12 / 7) < 5 * error
    assert np.ptp(first[:, 0]) == 3  # 0, ..., 3 all occur


def test_no_documents():
    first, second = split_tokens(documents(np.zeros((0, 3), dtype=int)), 0)
    assert len(first) == len(second) == 0
