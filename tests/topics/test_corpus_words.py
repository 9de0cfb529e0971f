"""Documents one by one: tokens and bags of words count as their matrix does."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowerbound.errors import EmptyDocumentsWarning, UnknownWordsWarning
from lowerbound.topics.corpus import open_corpus

TOKENS = [["bee", "ant", "bee"], ["cat"], ["ant", "cat", "cat"]]
COUNTS = [[1, 2, 0], [0, 0, 1], [1, 0, 2]]
BAGS = [[(1, 2), (0, 1)], [(2, 1)], [(0, 1), (2, 2)]]


def counts(corpus):
    return corpus.held.matrix().toarray().tolist()


@pytest.mark.parametrize(
    "source",
    [
        TOKENS,
        tuple(map(tuple, TOKENS)),
        [np.array(document) for document in TOKENS],
        [np.array(document, dtype=object) for document in TOKENS],
        pd.Series(TOKENS),
        pl.Series(TOKENS),
        np.array([*TOKENS, None], dtype=object)[:3],
        [iter(document) for document in TOKENS],
    ],
    ids=["lists", "tuples", "arrays", "objects", "pandas", "polars", "array", "iterators"],
)
def test_words_of_tokens_are_in_alphabetical_order(source):
    corpus = open_corpus(source)
    assert corpus.words.tolist() == ["ant", "bee", "cat"]
    assert counts(corpus) == COUNTS
    assert corpus.count == 3


@given(
    st.lists(st.lists(st.text(max_size=2), min_size=1, max_size=8), min_size=1, max_size=8),
)
def test_tokens_are_counted(documents):
    corpus = open_corpus(documents)
    assert corpus.words.tolist() == sorted({word for document in documents for word in document})
    for document, row in zip(documents, counts(corpus), strict=True):
        found = {word: n for word, n in zip(corpus.words, row, strict=True) if n}
        assert found == Counter(document)


@pytest.mark.parametrize(
    "source",
    [
        BAGS,
        [[list(pair) for pair in bag] for bag in BAGS],
        pd.Series(BAGS),
        [[(np.int32(w), np.float64(n)) for w, n in bag] for bag in BAGS],
    ],
    ids=["tuples", "lists", "pandas", "numpy"],
)
def test_bags_of_words(source):
    corpus = open_corpus(source)
    assert counts(corpus) == COUNTS
    assert corpus.words is None
    assert corpus.vocabulary == 3
    assert open_corpus(source, ["a", "b", "c", "d"]).vocabulary == 4


def test_subclasses_of_strings_and_pairs():
    class Token(str):
        __slots__ = ()

    class Pair(NamedTuple):
        word: int
        count: int

    assert counts(open_corpus([[Token(word) for word in d] for d in TOKENS])) == COUNTS
    assert counts(open_corpus([[Pair(*pair) for pair in bag] for bag in BAGS])) == COUNTS


def test_a_word_that_stands_twice_in_a_bag_is_summed_and_count_zero_is_no_word():
    corpus = open_corpus([[(1, 2), (1, 3), (0, 0)]])
    assert counts(corpus) == [[0, 5]]
    assert corpus.held.words.tolist() == [1]


class Dictionary(dict):
    """As gensim's: numbers to words when iterated over, words to numbers in `token2id`."""

    def __init__(self, words):
        super().__init__(enumerate(words))
        self.token2id = {word: number for number, word in enumerate(words)}
        self.id2token = {}  # filled only when first used


@pytest.mark.parametrize(
    "vocabulary",
    [Dictionary(["x", "y", "z"]), {0: "x", 2: "z", 1: "y"}, {"z": 2, "y": 1, "x": 0}],
    ids=["gensim", "numbers", "words"],
)
def test_a_vocabulary_names_word_numbers(vocabulary):
    assert open_corpus(BAGS, vocabulary).words.tolist() == ["x", "y", "z"]


def test_a_vocabulary_keeps_its_order_and_its_words_alone():
    with pytest.warns(UnknownWordsWarning) as caught:
        corpus = open_corpus([["a", "x", "b"], ["b", "y", "x"]], ["b", "a", "c"])
    assert counts(corpus) == [[1, 1, 0], [1, 0, 0]]
    assert corpus.words.tolist() == ["b", "a", "c"]
    assert [str(w.message) for w in caught] == [
        "3 tokens of X are not in the vocabulary and left out, e.g. 'x', 'y'."
    ]


def test_words_never_seen_at_the_fit_are_left_out_with_one_warning():
    names = np.array(["ant", "bee"], dtype=object)
    source = [["ant", "a"], list("bcdefg"), ["bee"]]
    with pytest.warns() as caught:
        corpus = open_corpus(source, features=2, names=names)
    assert counts(corpus) == [[1, 0], [0, 0], [0, 1]]
    assert [(w.category, str(w.message)) for w in caught] == [
        (
            UnknownWordsWarning,
            "7 tokens of X are not in the vocabulary and left out, e.g. 'a', 'b', 'c', 'd', 'e'.",
        ),
        (
            EmptyDocumentsWarning,
            "1 document of X has no words: its proportions are those of the prior.",
        ),
    ]


def test_empty_documents_may_stand_anywhere():
    for source in ([[], *TOKENS], [*TOKENS, []], [[], *BAGS]):
        with pytest.warns(EmptyDocumentsWarning):
            corpus = open_corpus(source)
        assert corpus.vocabulary == 3
        assert sorted(corpus.held.lengths) == [0, 1, 3, 3]
    with pytest.warns(EmptyDocumentsWarning):
        assert open_corpus([[], []], features=4).held.lengths.tolist() == [0, 0]
