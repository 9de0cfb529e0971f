"""Corpora in Parquet files: one row per document, with lists of words and of their counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lowerbound.errors import CorpusError, CorpusFileError, VocabularyError
from lowerbound.errors.wording import first_line
from lowerbound.source.files_read import pyarrow
from lowerbound.topics.corpus.counts import grouped
from lowerbound.topics.corpus.streams import Stream
from lowerbound.topics.corpus.tally import Tally
from lowerbound.topics.corpus.vocabulary import Vocabulary, from_distinct
from lowerbound.topics.corpus.words import from_known, require_numbers
from lowerbound.topics.documents import Documents

ROWS = 16_384  # documents decoded at a time where the words are looked for


@dataclass(frozen=True)
class _Files:
    """Parquet files with a column 'words', of strings or of `numbers`, and perhaps 'counts'."""

    paths: Sequence[Path]
    footers: Sequence[Any]
    numbers: bool
    counted: bool


def stream_parquet(paths: Sequence[Path], known: Vocabulary | None, what: str) -> Stream:
    """Documents of Parquet files, by record batches; without a vocabulary it is found first."""
    files = _open(paths)
    count = sum(footer.num_rows for footer in files.footers)
    if count == 0:
        raise CorpusError.no_documents(what)
    if known is not None and known.words is None and not files.numbers:
        raise VocabularyError.unnamed(what)
    words = known or (_count_words(files, what) if files.numbers else _find_words(files, what))

    def read(size: int, tally: Tally) -> Iterator[Documents]:
        columns = ("words", "counts") if files.counted else ("words",)
        for path, batch in _batches(files, columns, size):
            yield _documents(path, batch, files, words, tally)

    return Stream(words, count, read)


def _documents(path: Path, batch: Any, files: _Files, words: Vocabulary, tally: Tally) -> Documents:
    sizes, entries = _lists(path, batch, "words", tally.documents)
    counts = None
    if files.counted:
        counted, values = _lists(path, batch, "counts", tally.documents)
        if not np.array_equal(counted, sizes):
            row = int(np.argmax(counted != sizes))
            number = tally.documents + row
            raise CorpusFileError.lengths(str(path), number, int(sizes[row]), int(counted[row]))
        counts = values.to_numpy(zero_copy_only=False)
    if files.numbers:
        numbers = entries.to_numpy(zero_copy_only=False)
        require_numbers(sizes, numbers, words, tally)
        ones = np.ones(len(numbers), dtype=np.int32)
        return grouped(sizes, numbers, ones if counts is None else counts, words, tally)
    encoded = entries.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    index = np.array([words.index.get(word, -1) for word in distinct], dtype=np.int32)
    places = encoded.indices.to_numpy(zero_copy_only=False)
    unknown = (word for word, number in zip(distinct, index, strict=True) if number < 0)
    return from_known(sizes, index[places], counts, unknown, words, tally)


def _find_words(files: _Files, what: str) -> Vocabulary:
    """All strings that occur, in alphabetical order."""
    found: set[str] = set()
    document = 0
    for path, batch in _batches(files, ("words",), ROWS):
        found.update(_lists(path, batch, "words", document)[1].unique().to_pylist())
        document += len(batch)
    if not found:
        raise CorpusError.no_tokens(what, document, 0, ())
    return from_distinct(sorted(found))


def _count_words(files: _Files, what: str) -> Vocabulary:
    """Word numbers up to the largest that occurs: as the footers say, or else as a pass finds."""
    tally = Tally(what)
    tops = [_footer_largest(footer) for footer in files.footers]
    if any(top is None for top in tops):
        tops = [-1]
        for path, batch in _batches(files, ("words",), ROWS):
            sizes, entries = _lists(path, batch, "words", tally.documents)
            numbers = entries.to_numpy(zero_copy_only=False)
            require_numbers(sizes, numbers, None, tally)
            tops.append(int(numbers.max(initial=-1)))
            tally.documents += len(batch)
    largest = max(top for top in tops if top is not None)
    if largest < 0:
        raise CorpusError.no_tokens(what, sum(f.num_rows for f in files.footers), 0, ())
    require_numbers(np.array([1]), np.array([largest]), None, tally)
    return Vocabulary(largest + 1)


def _footer_largest(footer: Any) -> int | None:
    """The largest word number of a file; None if its footer does not say."""
    largest = -1
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            if column.path_in_schema.split(".")[0] != "words":
                continue
            statistics = column.statistics
            if statistics is None or not statistics.has_min_max:
                return None
            largest = max(largest, int(statistics.max))
    return largest


def _lists(path: Path, batch: Any, column: str, first: int) -> tuple[np.ndarray, Any]:
    """The lengths of the lists of a column, and their entries one after another."""
    arrow = pyarrow()
    lists = batch.column(column)
    if lists.null_count:
        row = int(np.argmax(lists.is_null().to_numpy(zero_copy_only=False)))
        raise CorpusFileError.null(str(path), column, first + row)
    sizes = arrow.compute.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    entries = lists.flatten()
    if entries.null_count:
        place = int(np.argmax(entries.is_null().to_numpy(zero_copy_only=False)))
        row = int(np.searchsorted(np.cumsum(sizes), place, side="right"))
        raise CorpusFileError.null(str(path), column, first + row)
    if arrow.types.is_dictionary(entries.type):
        entries = entries.cast(entries.type.value_type)
    return sizes, entries


def _batches(files: _Files, columns: Sequence[str], size: int) -> Iterator[tuple[Path, Any]]:
    arrow = pyarrow()
    for path, footer in zip(files.paths, files.footers, strict=True):
        try:
            # Buffering ahead would hold whole row groups.
            with arrow.parquet.ParquetFile(path, metadata=footer, pre_buffer=False) as file:
                # One by one: Arrow cannot join the dictionaries of two row groups inside lists.
                for group in range(footer.num_row_groups):
                    for batch in file.iter_batches(size, [group], columns=list(columns)):
                        yield path, batch
        except (arrow.ArrowInvalid, OSError) as error:
            raise CorpusFileError.unreadable(str(path), first_line(error)) from error


def _open(paths: Sequence[Path]) -> _Files:
    """Read the footers: columns of one kind in all files."""
    arrow = pyarrow()
    footers = []
    for path in paths:
        try:
            footers.append(arrow.parquet.read_metadata(path))
        except (arrow.ArrowInvalid, OSError) as error:
            raise CorpusFileError.unreadable(str(path), first_line(error)) from error
    schemas = [footer.schema.to_arrow_schema() for footer in footers]
    counted = "counts" in schemas[0].names
    numbers = False
    for path, schema in zip(paths, schemas, strict=True):
        if "words" not in schema.names:
            raise CorpusFileError.no_column(str(path), schema.names)
        kind = _entry_type(schema.field("words").type)
        is_number, is_text = _is(kind, "is_integer"), _is(kind, *TEXT)
        if path == paths[0]:
            numbers = is_number
        if not is_number and not is_text:
            like = "lists of strings or of whole numbers"
            raise CorpusFileError.column_type(str(path), "words", schema.field("words").type, like)
        if is_number != numbers:
            like = f"lists of {'numbers' if numbers else 'strings'}, as in {paths[0]}"
            raise CorpusFileError.column_type(str(path), "words", schema.field("words").type, like)
        found = schema.field("counts").type if "counts" in schema.names else None
        if counted != (found is not None):
            like = f"a column 'counts' in all files or in none, as in {paths[0]}"
            raise CorpusFileError.column_type(str(path), "counts", found, like)
        if found is not None and not _is(_entry_type(found), "is_integer", "is_floating"):
            raise CorpusFileError.column_type(str(path), "counts", found, "lists of numbers")
    return _Files(paths, footers, numbers, counted)


TEXT = ("is_string", "is_large_string", "is_string_view")


def _entry_type(kind: Any) -> Any:
    """The type of the entries of a list type; None if it is no list type."""
    if not _is(kind, "is_list", "is_large_list", "is_fixed_size_list"):
        return None
    value = kind.value_type
    return value.value_type if _is(value, "is_dictionary") else value


def _is(kind: Any, *tests: str) -> bool:
    types = pyarrow().types
    return kind is not None and any(getattr(types, test)(kind) for test in tests)
