"""What a corpus refuses, and what it says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from lowerbound.errors import (
    ArgumentError,
    CorpusError,
    CorpusTypeError,
    CountError,
    VocabularyError,
)
from lowerbound.topics.corpus import open_corpus

COUNTS = np.array([[2, 0, 1], [0, 3, 0], [1, 1, 4]])
WORDS = ["ant", "bee", "cat"]
FITTED = {"features": 3, "names": np.array(WORDS, dtype=object)}


def message(error, *arguments, **options):
    with pytest.raises(error) as caught:
        open_corpus(*arguments, **options)
    assert isinstance(caught.value, ArgumentError)
    return str(caught.value)


def with_entry(value, dtype=float):
    counts = COUNTS.astype(dtype)
    counts[1, 2] = value
    return counts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            -2,
            "Negative values in data passed as X: -2 for word 2{} in document 1.\n"
            "Expected whole numbers >= 0. Correct the entry, or pass the counts before they were "
            "centred or scaled.",
        ),
        (
            0.5,
            "X holds a fractional count: 0.5 for word 2{} in document 1.\n"
            "Expected whole numbers >= 0. Tf-idf weights and frequencies are not counts: use "
            "CountVectorizer in place of TfidfVectorizer.",
        ),
        (
            np.nan,
            "X holds NaN: nan for word 2{} in document 1.\n"
            "Expected whole numbers >= 0. A word that does not occur has count 0: fill missing "
            "entries with 0.",
        ),
        (
            np.inf,
            "X holds an infinite count: inf for word 2{} in document 1.\n"
            "Expected whole numbers >= 0. Correct the entry.",
        ),
        (
            2**24 + 2,
            "X holds a count above 2^24 = 16,777,216: 16777218 for word 2{} in document 1.\n"
            "Expected whole numbers >= 0. float32 does not hold such counts exactly: split the "
            "document.",
        ),
    ],
    ids=["negative", "fraction", "nan", "inf", "large"],
)
def test_what_is_not_a_count(value, text):
    counts = with_entry(value)
    for source in (counts, counts.astype(np.float32), sp.csr_array(counts), sp.coo_matrix(counts)):
        assert message(CountError, source) == text.format("")
    assert message(CountError, counts.tolist()) == text.format("")
    named = text.format(" ('cat')")
    assert message(CountError, counts, WORDS) == named
    for frame in (pd.DataFrame(counts, columns=WORDS), pl.DataFrame(counts, schema=WORDS)):
        assert message(CountError, frame) == named
    assert message(CountError, [[(0, 1)], [(1, 1), (2, value)]]) == text.format("")
    assert message(CountError, sp.csr_array(counts), what="Y") == text.format("").replace("X", "Y")


def test_entries_with_the_same_fault_are_counted():
    tfidf = sp.csr_array(COUNTS / 7)
    assert message(CountError, tfidf).splitlines()[0] == (
        "X holds a fractional count: 0.285714286 for word 0 in document 0, and 5 more such entries."
    )
    both = with_entry(-1)
    both[2] = [0.5, -1, 1]
    assert message(CountError, both).splitlines()[0] == (
        "Negative values in data passed as X: -1 for word 2 in document 1, and 1 more such entry."
    )


def test_missing_entries_of_a_frame():
    frame = pd.DataFrame({"ant": pd.array([1, None], dtype="Int64"), "bee": [1, 2]})
    assert message(CountError, frame).startswith(
        "X holds NaN: nan for word 0 ('ant') in document 1.\n"
    )
    assert message(CorpusError, np.ma.masked_equal(COUNTS, 3)) == (
        "X has 1 masked entry.\n"
        "Expected counts. A word that does not occur has count 0: X.filled(0), where that is what "
        "the mask means."
    )


RAW = (
    "Expected documents as lists of tokens, or counts. Split each into tokens, "
    "[text.split() for text in texts], or count the words with "
    "sklearn.feature_extraction.text.CountVectorizer().fit_transform(texts)."
)


def test_raw_text():
    assert message(CorpusError, "to be or not to be") == (
        f"X is a string that names no file: 'to be or not to be'.\n{RAW}"
    )
    texts = ["to be", "or not to be " * 20]
    for source in (texts, tuple(texts), np.array(texts), pd.Series(texts), pl.Series(texts)):
        assert message(CorpusError, source) == f"Document 0 of X is a string: 'to be'.\n{RAW}"
    assert message(CorpusError, [["to", "be"], texts[1]]) == (
        "Document 1 of X is a string: 'or not to be or not to be or not to be or not to be or n"
        f"....\n{RAW}"
    )


FORMS = (
    "Expected counts (a SciPy sparse matrix, a 2-D array, a data frame), a list of token lists, a "
    "list of bags of words [(id, count), ...], the path of .npz or .parquet files, or an object "
    "that iterates over documents."
)


@pytest.mark.parametrize(
    ("source", "kind"),
    [(3, "int"), (None, "NoneType"), ({"a": 1}, "dict"), ({"a"}, "set"), (len, None)],
)
def test_what_is_no_corpus(source, kind):
    found = message(CorpusTypeError, source)
    assert found == f"X is a {kind or type(source).__name__}.\n{FORMS}"
    with pytest.raises(TypeError):
        open_corpus(source)


@pytest.mark.parametrize(
    ("source", "shape", "dimensions"),
    [
        (np.arange(3), (3,), "1 dimension"),
        ([1, 2, 3], (3,), "1 dimension"),
        (pd.Series([1, 2]), (2,), "1 dimension"),
        (sp.coo_array(np.arange(3)), (3,), "1 dimension"),
        (np.ones((2, 2, 2)), (2, 2, 2), "3 dimensions"),
    ],
)
def test_arrays_that_are_not_two_dimensional(source, shape, dimensions):
    assert message(CorpusError, source) == (
        f"X is an array of {dimensions}, shape {shape}.\n"
        "Expected counts with one row per document and one column per word. Reshape your data: "
        "X.reshape(1, -1) is one document."
    )


def test_arrays_that_hold_no_numbers():
    end = (
        "Expected counts: whole numbers >= 0. Convert it to numbers, or pass documents as lists of "
        "tokens."
    )
    assert message(CorpusTypeError, COUNTS + 0j) == (
        f"X has dtype complex128 (Complex data not supported).\n{end}"
    )
    assert message(CorpusTypeError, COUNTS.astype(str)) == f"X has dtype <U21.\n{end}"
    objects = COUNTS.astype(object)
    objects[0, 0] = {"a": 1}
    assert message(CorpusTypeError, objects) == (
        "X has dtype object: float() argument must be a string or a real number, not 'dict'.\n"
        f"{end}"
    )
    assert message(CorpusTypeError, sp.csr_array(COUNTS + 0j)).startswith("X has dtype complex128")


def test_a_column_that_holds_no_numbers():
    text = (
        "Column 'text' of X has dtype object.\n"
        "Expected one column of counts per word. Leave the column out, or pass X['text'] alone if "
        "its entries are lists of tokens."
    )
    for frame in (
        pd.DataFrame({"ant": [1], "text": pd.Series(["a b"], dtype=object)}),
        pl.DataFrame({"ant": [1], "text": ["a b"]}),
    ):
        assert message(CorpusTypeError, frame) == text


def test_lists_of_numbers_of_different_lengths():
    assert message(CorpusError, [[1, 2, 3], [1]]) == (
        "X is a list of lists of numbers whose lengths differ.\n"
        "Expected one count for every word in each of them. Give word numbers as bags of words "
        "[(id, count), ...], or tokens as strings."
    )


def test_dense_arrays_that_ought_to_be_sparse():
    large = np.broadcast_to(np.int8(1), (10_000, 5_001))
    frame = pd.DataFrame(large, copy=False)
    for source in (large, frame):
        assert message(CorpusError, source) == (
            "X is dense, shape (10000, 5001): 50,010,000 numbers.\n"
            "Expected at most 50,000,000. Convert it to sparse rows: scipy.sparse.csr_array(X), "
            "better where the words are counted."
        )


def test_nothing_to_learn_from():
    none = (
        "X has 0 documents.\n"
        "Expected at least one. Check the selection or the files that it comes from."
    )
    for source in ([], np.zeros((0, 3)), sp.csr_array((0, 3)), pd.DataFrame(columns=WORDS)):
        assert message(CorpusError, source) == none
    assert message(CorpusError, np.zeros((0, 3)), features=3) == none
    zeros = (
        "X has 2 documents and no word.\n"
        "Expected at least one count above 0. Check how words were split and counted, and the "
        "vocabulary."
    )
    for source in (np.zeros((2, 3)), sp.csr_array((2, 3)), [[], []]):
        assert message(CorpusError, source) == zeros
    assert message(CorpusError, [["x"]], WORDS) == (
        "X has 1 document and no word: 1 token is not in the vocabulary ('x').\n"
        "Expected at least one count above 0. Check how words were split and counted, and the "
        "vocabulary."
    )
    assert message(CorpusError, np.zeros((12, 0))) == (
        "X has 0 feature(s) (shape=(12, 0)) while a minimum of 1 is required.\n"
        "Expected one column per word. Check how the words were chosen."
    )


def test_documents_of_no_known_form():
    tokens = "Expected a list of tokens (strings). "
    same = "Bring every document into the same form."
    assert message(CorpusTypeError, [["a"], {"a": 1}]) == (
        f"Document 1 of X is a dict.\n{tokens}{same}"
    )
    assert message(CorpusTypeError, [["a"], None]) == (
        f"Document 1 of X is a NoneType.\n{tokens}{same}"
    )
    assert message(CorpusTypeError, [["a"], sp.csr_array(COUNTS)]) == (
        f"Document 1 of X is a csr_array.\n{tokens}{same}"
    )
    drop = "Drop missing entries, and give all documents the same form."
    assert message(CorpusTypeError, [["a"], ["b", None]]) == (
        f"Document 1 of X holds None at place 1.\n{tokens}{drop}"
    )
    assert message(CorpusTypeError, [["a"], [(0, 1)]]) == (
        f"Document 1 of X holds (0, 1) at place 0.\n{tokens}{drop}"
    )
    assert message(CorpusTypeError, [[None]]) == (
        f"Document 0 of X holds None at place 0.\n{tokens}{drop}"
    )
    pairs = f"Expected a bag of words: a list of pairs (id, count), the id a whole number. {drop}"
    for bad in ((1, 2, 3), "a", (1.0, 2), (1, "2"), (1, None)):
        assert message(CorpusTypeError, [[(0, 1)], [], [(0, 1), bad]]) == (
            f"Document 2 of X holds {bad!r} at place 1.\n{pairs}"
        )


def test_a_sparse_matrix_that_contradicts_itself():
    matrix = sp.csr_array(COUNTS)
    matrix.indices = matrix.indices.copy()
    matrix.indices[2] = 9
    found = message(CorpusError, matrix)
    assert found.startswith("X is not a valid sparse matrix: ")
    assert found.endswith(
        "Expected word numbers below its number of columns. Check how its arrays were made: "
        "X.check_format() says more."
    )


def test_word_numbers_that_do_not_exist():
    assert message(VocabularyError, [[(0, 1)], [(3, 1)]], **FITTED) == (
        "Document 1 of X holds word number 3; there are 3 words.\n"
        "Expected numbers from 0 to 2. Make the bags of words with the vocabulary of the fit."
    )
    assert message(VocabularyError, [[(0, 1)], [(-1, 1)]]) == (
        "Document 1 of X holds word number -1.\n"
        "Expected numbers from 0 on. Leave out words that the vocabulary does not have."
    )
    for large in (2**31, 2**70):
        assert message(VocabularyError, [[(large, 1)]]).endswith(
            "Expected numbers below 2^31 - 1. Number the words that occur from 0 on."
        )


def test_matrices_of_another_width():
    for source in (
        COUNTS[:, :2],
        sp.csr_array(COUNTS[:, :2]),
        open_corpus(COUNTS[[0, 2], :2]).held,
    ):
        assert message(VocabularyError, source, **FITTED) == (
            "X has 2 features, but LatentDirichletAllocation is expecting 3 features as input.\n"
            "Expected one column for each word of the fit, in the same order. Count the words with "
            "the vocabulary of the fit."
        )
        assert message(VocabularyError, source, WORDS) == (
            "X has 2 columns; the vocabulary has 3 words.\n"
            "Expected one word per column, in the order of the columns. Pass the vocabulary that X "
            "was counted with."
        )


def test_tokens_and_columns_that_the_fit_does_not_know():
    assert message(VocabularyError, [["a"]], features=3) == (
        "X holds tokens; the words of the fit have numbers alone.\n"
        "Expected counts or bags of words, as in the fit. Or fit with names for the words: "
        "vocabulary=[...]."
    )
    frame = pd.DataFrame(COUNTS, columns=["x", "y", "z"])
    assert message(VocabularyError, frame, **FITTED) == (
        "No column of X ('x', 'y', 'z') is a word of the fit ('ant', 'bee', 'cat').\n"
        "Expected columns named by words. Count the words with the vocabulary of the fit."
    )


FORM = (
    "Expected a sequence of words (strings), a mapping of words to numbers or of numbers to words, "
    "or a gensim Dictionary."
)


@pytest.mark.parametrize(
    ("vocabulary", "text"),
    [
        (
            ["a", "b", "a"],
            "The word 'a' stands twice in vocabulary: at 0 and at 2.\n"
            "Expected each word once. Merge the two, or rename one.",
        ),
        (
            {0: "a", 1: "a", 2: "b"},
            "The word 'a' stands twice in vocabulary: at 0 and at 1.\n"
            "Expected each word once. Merge the two, or rename one.",
        ),
        (
            {"a": 0, "b": 2, "c": 3},
            "vocabulary has 3 words, and none has the number 1.\n"
            "Expected each number from 0 to 2 once. Number the words anew "
            "(Dictionary.compactify() in gensim).",
        ),
        (
            {"a": 0, "b": 0, "c": 1},
            "vocabulary has 3 words, and none has the number 2.\n"
            "Expected each number from 0 to 2 once. Number the words anew "
            "(Dictionary.compactify() in gensim).",
        ),
        ([], "vocabulary has 0 words.\nExpected at least one. Check how it was made."),
        ({}, "vocabulary has 0 words.\nExpected at least one. Check how it was made."),
        ("abc", f"vocabulary is a str.\n{FORM}"),
        (7, f"vocabulary is a int.\n{FORM}"),
        ({"a"}, f"vocabulary is a set, which has no order.\n{FORM}"),
        (["a", 1, "b"], f"vocabulary is a sequence that holds 1 at 1.\n{FORM}"),
        ({"a": "b"}, f"vocabulary is a dict that pairs 'a' with 'b'.\n{FORM}"),
    ],
    ids=str,
)
def test_vocabularies(vocabulary, text):
    assert message(VocabularyError, COUNTS, vocabulary) == text


def test_columns_with_one_name():
    frame = pd.DataFrame(COUNTS, columns=["a", "b", "a"])
    assert message(VocabularyError, frame) == (
        "The word 'a' stands twice in the columns of X: at 0 and at 2.\n"
        "Expected each word once. Merge the two, or rename one."
    )


def test_a_vocabulary_that_is_not_that_of_the_fit():
    assert open_corpus(COUNTS, WORDS, **FITTED).words.tolist() == WORDS
    end = "Expected the words of the fit. Leave vocabulary out, or fit again."
    assert message(VocabularyError, COUNTS, ["ant", "dog", "cat"], **FITTED) == (
        f"vocabulary has 'dog' at 1, where the fit has 'bee'.\n{end}"
    )
    assert message(VocabularyError, COUNTS, ["ant", "bee"], **FITTED) == (
        f"vocabulary has no word at 2, where the fit has 'cat'.\n{end}"
    )
    assert message(VocabularyError, COUNTS, WORDS, features=4) == (
        "vocabulary has 3 words; the fit has 4.\n"
        "Expected one name for each word of the fit. Pass the vocabulary of the fit."
    )
