"""Corpora in files: shards of sparse counts, and Parquet files of lists."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from lowerbound.errors import (
    CorpusError,
    CorpusFileError,
    CountError,
    UnknownWordsWarning,
    VocabularyError,
)
from lowerbound.topics.corpus import open_corpus
from lowerbound.topics.documents import joined

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "text"
COUNTS = np.random.default_rng(1).integers(0, 3, (9, 4)) + np.eye(9, 4, dtype=int)
COUNTS[:, 1] += 1
WORDS = ["a", "b", "c", "d"]
NUMBERS = [np.repeat(np.arange(4), row)[::-1].tolist() for row in COUNTS]
TOKENS = [[WORDS[i] for i in document] for document in NUMBERS]
DISTINCT = [np.flatnonzero(row).tolist() for row in COUNTS]
COUNTED = [row[row > 0].tolist() for row in COUNTS]


def whole(corpus, size=2):
    return joined(list(corpus.batches(size))).matrix().toarray()


def message(error, call, *arguments, **options):
    with pytest.raises(error) as caught:
        call(*arguments, **options)
    return str(caught.value)


@pytest.fixture
def shards(tmp_path):
    """Three shards whose names are in the order of their documents."""
    folder = tmp_path / "shards"
    folder.mkdir()
    sp.save_npz(folder / "b.npz", sp.csr_array(COUNTS[3:7].astype(np.int16)))
    sp.save_npz(folder / "a.npz", sp.coo_array(COUNTS[:3]))
    sp.save_npz(folder / "c.npz", sp.csc_array(COUNTS[7:]))
    return folder


def test_shards_of_a_folder_come_by_name(shards):
    for source in (shards, str(shards), sorted(shards.iterdir()), [str(shards)]):
        corpus = open_corpus(source)
        assert corpus.held is None
        assert (corpus.count, corpus.vocabulary, corpus.words) == (9, 4, None)
        for size in (2, 9, 20):
            np.testing.assert_array_equal(whole(corpus, size), COUNTS)


def test_a_list_of_paths_keeps_its_order_and_one_file_is_a_corpus(shards):
    corpus = open_corpus([shards / "b.npz", shards / "a.npz"], WORDS)
    np.testing.assert_array_equal(whole(corpus), COUNTS[[3, 4, 5, 6, 0, 1, 2]])
    assert corpus.words.tolist() == WORDS
    np.testing.assert_array_equal(whole(open_corpus(str(shards / "a.npz"))), COUNTS[:3])


def test_entries_of_a_shard_are_read_when_their_turn_comes(shards):
    corpus = open_corpus(shards)
    (shards / "c.npz").unlink()
    assert len(next(corpus.batches(3))) == 3
    with pytest.raises(CorpusFileError, match=re.escape("c.npz cannot be read: ")):
        whole(corpus)


def test_shards_of_different_widths(shards):
    sp.save_npz(shards / "d.npz", sp.csr_array(COUNTS[:, :2]))
    assert message(CorpusFileError, open_corpus, shards) == (
        f"{shards / 'd.npz'} has 2 columns; {shards / 'a.npz'} has 4.\n"
        "Expected one column per word in every file. Count the words of all files with one "
        "vocabulary."
    )


def test_a_width_that_is_not_that_of_the_fit(shards):
    assert message(VocabularyError, open_corpus, shards, features=7).startswith(
        "X has 4 features, but LatentDirichletAllocation is expecting 7 features as input.\n"
    )


def test_a_fault_in_a_later_shard_is_named_by_document(shards):
    bad = COUNTS[7:].copy()
    bad[1, 2] = -3
    sp.save_npz(shards / "c.npz", sp.csr_array(bad))
    assert message(CountError, whole, open_corpus(shards, WORDS)).startswith(
        "Negative values in data passed as X: -3 for word 2 ('c') in document 8.\n"
    )


def test_files_that_are_not_what_their_names_say(tmp_path):
    text = tmp_path / "text.npz"
    text.write_text("to be or not to be")
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, format=np.array("csr"), shape=np.array([None], dtype=object))
    arrays = tmp_path / "arrays.npz"
    np.savez(arrays, counts=COUNTS)
    end = "Expected a file written by scipy.sparse.save_npz. Write it again, or leave it out."
    assert message(CorpusFileError, open_corpus, arrays) == (
        f"{arrays} cannot be read: its arrays are 'counts'.\n{end}"
    )
    assert message(CorpusFileError, open_corpus, text) == (
        f"{text} cannot be read: it is not an archive of arrays.\n{end}"
    )
    found = message(CorpusFileError, open_corpus, pickled)
    assert found.startswith(f"{pickled} cannot be read: ")
    assert "allow_pickle=False" in found
    assert found.endswith(end)
    parquet = tmp_path / "text.parquet"
    parquet.write_text("to be or not to be")
    assert message(CorpusFileError, open_corpus, parquet).endswith(
        "Expected a file written by a writer of Parquet. Write it again, or leave it out."
    )


def test_paths_that_lead_nowhere(tmp_path, shards):
    missing = str(tmp_path / "missing.npz")
    assert message(CorpusFileError, open_corpus, missing) == (
        f"There is no file or folder {missing}.\n"
        "Expected a .npz or .parquet file, or a folder of them. Check the path."
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    assert message(CorpusFileError, open_corpus, empty) == (
        f"The folder {empty} holds no file named *.npz or *.parquet.\n"
        "Expected at least one, at any depth. Check the path."
    )
    other = tmp_path / "words.txt"
    other.write_text("a b c")
    assert message(CorpusFileError, open_corpus, other) == (
        f"{other} is neither a .npz nor a .parquet file.\n"
        "Expected sparse counts written by scipy.sparse.save_npz, or a Parquet file with a column "
        "'words'. Convert the file."
    )
    pq.write_table(pa.table({"words": NUMBERS}), shards / "z.parquet")
    assert message(CorpusFileError, open_corpus, shards) == (
        f"The files are of two kinds: {shards / 'a.npz'}, {shards / 'z.parquet'}.\n"
        "Expected .npz files alone, or .parquet files alone. Pass a list of the paths to read."
    )


def write(folder, name="x.parquet", **columns):
    path = folder / name
    pq.write_table(pa.table(columns), path, row_group_size=4)
    return path


@pytest.mark.parametrize(
    "columns",
    [
        {"words": NUMBERS},
        {"words": DISTINCT, "counts": COUNTED},
        {"words": pa.array(DISTINCT, pa.large_list(pa.uint16())), "counts": COUNTED},
        {"words": DISTINCT, "counts": [list(map(float, c)) for c in COUNTED]},
    ],
    ids=["tokens", "counted", "large", "float"],
)
def test_parquet_of_word_numbers(tmp_path, columns):
    corpus = open_corpus(write(tmp_path, **columns))
    assert corpus.held is None
    assert (corpus.count, corpus.vocabulary, corpus.words) == (9, 4, None)
    for size in (2, 3, 20):
        np.testing.assert_array_equal(whole(corpus, size), COUNTS)


def test_the_largest_word_number_without_statistics(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"words": NUMBERS}), path, write_statistics=False)
    assert open_corpus(path).vocabulary == 4


TEXT = pa.array(TOKENS, pa.list_(pa.dictionary(pa.int32(), pa.string())))


@pytest.mark.parametrize(
    "columns",
    [
        {"words": TOKENS},
        {"words": TEXT},
        {"words": pa.array(TOKENS, pa.list_(pa.large_string())), "other": list(range(9))},
        {"words": [[WORDS[i] for i in d] for d in DISTINCT], "counts": COUNTED},
    ],
    ids=["tokens", "dictionary", "large", "counted"],
)
def test_parquet_of_strings(tmp_path, columns):
    path = write(tmp_path, **columns)
    corpus = open_corpus(path)
    assert corpus.words.tolist() == WORDS
    np.testing.assert_array_equal(whole(corpus), COUNTS)
    reversed_words = open_corpus(path, WORDS[::-1])
    np.testing.assert_array_equal(whole(reversed_words), COUNTS[:, ::-1])


def test_a_folder_of_parquet_files_and_unknown_words(tmp_path):
    write(tmp_path, "1.parquet", words=TOKENS[:4])
    write(tmp_path, "2.parquet", words=TOKENS[4:])
    np.testing.assert_array_equal(whole(open_corpus(tmp_path)), COUNTS)
    corpus = open_corpus(tmp_path, features=2, names=np.array(["b", "a"], dtype=object))
    unknown = int(COUNTS[:, 2:].sum())
    with pytest.warns(UnknownWordsWarning) as caught:
        found = whole(corpus)
    np.testing.assert_array_equal(found, COUNTS[:, [1, 0]])
    assert len(caught) == 1
    assert str(caught[0].message).startswith(f"{unknown} tokens of X are not in the vocabulary")


def test_parquet_columns_that_cannot_be_read(tmp_path):
    path = write(tmp_path, text=["a b"], n=[1])
    assert message(CorpusFileError, open_corpus, path) == (
        f"{path} has no column 'words'; its columns are 'text', 'n'.\n"
        "Expected a column 'words' of lists of strings or of word numbers, and beside it, if words "
        "are counted, 'counts'. Rename the columns."
    )
    path = write(tmp_path, words=["a b"])
    assert message(CorpusFileError, open_corpus, path) == (
        f"Column 'words' of {path} has type string.\n"
        "Expected lists of strings or of whole numbers. Write the column anew in all files."
    )
    path = write(tmp_path, words=[["a"]], counts=[["1"]])
    assert message(CorpusFileError, open_corpus, path).endswith(
        "Expected lists of numbers. Write the column anew in all files."
    )
    first = write(tmp_path, "0.parquet", words=[[1]])
    second = write(tmp_path, "1.parquet", words=[["a"]])
    assert message(CorpusFileError, open_corpus, [first, second]).endswith(
        f"Expected lists of numbers, as in {first}. Write the column anew in all files."
    )
    second = write(tmp_path, "1.parquet", words=[[1]], counts=[[1]])
    assert message(CorpusFileError, open_corpus, [first, second]).endswith(
        f"Expected a column 'counts' in all files or in none, as in {first}. Write the column anew "
        "in all files."
    )


def test_parquet_rows_that_cannot_be_read(tmp_path):
    nulls = (
        "Expected a list without nulls; a document without words is an empty list. Drop such rows "
        "or entries when the file is written."
    )
    path = write(tmp_path, words=[[1], [0], None])
    assert message(CorpusFileError, whole, open_corpus(path)) == (
        f"Column 'words' of {path} holds a null in document 2 of the corpus.\n{nulls}"
    )
    path = write(tmp_path, words=[[1], [], [0, None]])
    assert message(CorpusFileError, whole, open_corpus(path), 3) == (
        f"Column 'words' of {path} holds a null in document 2 of the corpus.\n{nulls}"
    )
    path = write(tmp_path, words=[[1], [0, 2]], counts=[[1], [5]])
    assert message(CorpusFileError, whole, open_corpus(path)) == (
        f"Document 1 of the corpus has 2 words and 1 counts   ({path}).\n"
        "Expected one count per word. Write the two columns anew."
    )
    path = write(tmp_path, words=[[1], [-1]])
    assert message(VocabularyError, whole, open_corpus(path)) == (
        "Document 1 of X holds word number -1.\n"
        "Expected numbers from 0 on. Leave out words that the vocabulary does not have."
    )
    path = write(tmp_path, words=[[1], [9]])
    assert message(VocabularyError, whole, open_corpus(path, features=3)).startswith(
        "Document 1 of X holds word number 9; there are 3 words.\n"
    )
    assert message(VocabularyError, open_corpus, write(tmp_path, words=[["a"]]), features=3) == (
        "X holds tokens; the words of the fit have numbers alone.\n"
        "Expected counts or bags of words, as in the fit. Or fit with names for the words: "
        "vocabulary=[...]."
    )


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_parquet_files_without_words(tmp_path, kind):
    none = write(tmp_path, words=pa.array([], pa.list_(kind)))
    assert message(CorpusError, open_corpus, none).startswith("X has 0 documents.\n")
    empty = write(tmp_path, words=pa.array([[], []], pa.list_(kind)))
    assert message(CorpusError, open_corpus, empty).startswith("X has 2 documents and no word.\n")


def test_without_pyarrow(tmp_path, monkeypatch):
    path = write(tmp_path, words=NUMBERS)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert message(ImportError, open_corpus, path) == (
        'Reading Parquet files needs pyarrow.\nInstall it: pip install "lowerbound[stream]".'
    )


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the shared texts are not beside the project")
def test_a_real_corpus_has_the_size_that_is_stated():
    stated = json.loads((FOLDER / "medium_debian_desc.meta.json").read_text())
    words = (FOLDER / "medium_debian_desc.vocab.txt").read_text().split()
    path = FOLDER / "medium_debian_desc.npz"
    held = open_corpus(sp.load_npz(path), words).held
    streamed = joined(list(open_corpus(path, words).batches(10_000)))
    for documents in (held, streamed):
        assert (len(documents), documents.vocabulary) == (stated["docs"], stated["V"])
        assert (len(documents.words), documents.tokens) == (stated["nnz"], stated["tokens"])
    np.testing.assert_array_equal(held.words, streamed.words)
    np.testing.assert_array_equal(held.counts, streamed.counts)
