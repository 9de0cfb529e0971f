"""Documents given one by one: lists of tokens, and bags of words [(id, count), ...]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from numbers import Integral, Real
from typing import Any, Final, Literal

import numpy as np

from lowerbound.errors import CorpusError, CorpusTypeError, VocabularyError
from lowerbound.model.inputs.leaves import is_frame, is_sparse, is_table
from lowerbound.topics.corpus.counts import (
    WORDS,
    from_dense,
    from_documents,
    from_frame,
    from_sparse,
    grouped,
)
from lowerbound.topics.corpus.tally import Tally
from lowerbound.topics.corpus.vocabulary import Vocabulary
from lowerbound.topics.documents import Documents

Kind = Literal["tokens", "bag", "counts", "chunk"]
LIKE: Final[dict[Kind, str]] = {
    "tokens": "a list of tokens (strings)",
    "bag": "a bag of words: a list of pairs (id, count), the id a whole number",
    "counts": "a list of counts, one for every word",
    "chunk": "a sparse matrix of counts, or Documents",
}
TOKENS: Final = frozenset({str, np.str_})
PAIRS: Final = frozenset({tuple, list})


def opened(item: Any, number: int, what: str) -> Any:
    """An item of a corpus: several documents as they are, or one as a list or a tuple."""
    if isinstance(item, list | tuple) or is_chunk(item):
        return item
    if isinstance(item, str | bytes):
        raise CorpusError.raw_text(what, str(item), number)
    if isinstance(item, Mapping | set | frozenset) or not hasattr(item, "__iter__"):
        raise CorpusTypeError.of_document(what, number, type(item).__name__, LIKE["tokens"])
    for method in ("tolist", "to_list", "to_pylist"):
        if hasattr(item, method):
            return getattr(item, method)()
    return list(item)


def kind_of(item: Any, number: int, what: str) -> Kind | None:
    """What an opened item of a corpus is; None for an empty document, which may be any."""
    if is_chunk(item):
        return "chunk"
    if isinstance(item, int | float | complex):  # an array without dimensions
        raise CorpusTypeError.of_document(what, number, type(item).__name__, LIKE["tokens"])
    if len(item) == 0:
        return None
    first = item[0]
    if isinstance(first, str):
        return "tokens"
    if isinstance(first, tuple | list) and len(first) == 2 and not isinstance(first[0], str):
        return "bag"
    if isinstance(first, int | float | complex | np.generic):
        return "counts"
    raise CorpusTypeError.of_entry(what, number, 0, first, LIKE["tokens"])


def is_chunk(item: Any) -> bool:
    """Whether an item holds several documents."""
    if isinstance(item, Documents) or is_sparse(item):
        return True
    return (is_table(item) and is_frame(item)) or (isinstance(item, np.ndarray) and item.ndim == 2)


def from_chunk(item: Any, known: Vocabulary | None, tally: Tally) -> Documents:
    """Several documents as counts."""
    if isinstance(item, Documents):
        return from_documents(item, known, tally)
    if is_sparse(item):
        return from_sparse(item, known, tally)
    if is_table(item):
        return from_frame(item, known, tally)[0]
    return from_dense(item, known, tally)


def runs(documents: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Documents in lists of `size`, the last of which may be shorter."""
    rest = iter(documents)
    while run := list(islice(rest, size)):
        yield run


def token_words(documents: Sequence[Any], tally: Tally) -> tuple[np.ndarray, list[str]]:
    """The sizes of documents, and their tokens one after another."""
    sizes, flat = _flat(documents, "tokens", tally)
    if not set(map(type, flat)) <= TOKENS:
        for place, token in enumerate(flat):
            if not isinstance(token, str):
                _refuse(sizes, flat, place, "tokens", tally)
    return sizes, flat


def from_tokens(documents: Sequence[Any], known: Vocabulary, tally: Tally) -> Documents:
    """Lists of tokens as counts; tokens that are not in the vocabulary are left out."""
    if known.words is None:
        raise VocabularyError.unnamed(tally.what)
    sizes, flat = token_words(documents, tally)
    words = np.fromiter(map(known.index.get, flat, repeat(-1)), np.int32, len(flat))
    return from_known(
        sizes, words, None, (flat[i] for i in np.flatnonzero(words < 0)), known, tally
    )


def from_known(
    sizes: np.ndarray,
    words: np.ndarray,
    counts: np.ndarray | None,
    unknown: Iterable[str],
    known: Vocabulary,
    tally: Tally,
) -> Documents:
    """Documents with these word numbers; -1 stands for an unknown word, of which some are named."""
    if counts is None:
        counts = np.ones(len(words), dtype=np.int32)
    if len(words) and words.min() < 0:
        keep = words >= 0
        left_out = counts[~keep]
        tally.leave_out(int(left_out[np.isfinite(left_out)].sum()), unknown)
        kept = np.concatenate([[0], np.cumsum(keep)])
        ends = np.concatenate([[0], np.cumsum(sizes)])
        sizes, words, counts = np.diff(kept[ends]), words[keep], counts[keep]
    return grouped(sizes, words, counts, known, tally)


def bag_words(
    documents: Sequence[Any], known: Vocabulary | None, tally: Tally
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sizes of bags of words, and their word numbers and counts one after another."""
    sizes, flat = _flat(documents, "bag", tally)
    if not (set(map(type, flat)) <= PAIRS and set(map(len, flat)) <= {2}):
        for place, entry in enumerate(flat):
            if not isinstance(entry, tuple | list) or len(entry) != 2:
                _refuse(sizes, flat, place, "bag", tally)
    words, counts = (np.array([entry[side] for entry in flat]) for side in (0, 1))
    if not flat:
        return sizes, np.zeros(0, np.int64), np.zeros(0)
    if words.dtype.kind not in "iu" or counts.dtype.kind not in "biuf":
        for place, (word, count) in enumerate(flat):
            if not isinstance(word, Integral) or not isinstance(count, Real):
                _refuse(sizes, flat, place, "bag", tally)
        words, counts = words.astype(float), counts.astype(float)  # whole numbers beyond 64 bits
    require_numbers(sizes, words, known, tally)
    return sizes, words.astype(np.int64), counts


def from_bags(documents: Sequence[Any], known: Vocabulary, tally: Tally) -> Documents:
    """Bags of words as counts."""
    sizes, words, counts = bag_words(documents, known, tally)
    return grouped(sizes, words, counts, known, tally)


def require_numbers(
    sizes: np.ndarray, words: np.ndarray, known: Vocabulary | None, tally: Tally
) -> None:
    """Raise at the first word number that does not exist."""
    if len(words) == 0:
        return
    size = WORDS if known is None else known.size
    if words.min() >= 0 and words.max() < size:
        return
    place = int(np.argmax((words < 0) | (words >= size)))
    found, document = int(words[place]), tally.documents + _document(sizes, place)
    if found < 0:
        raise VocabularyError.negative_identifier(tally.what, document, found)
    if known is None:
        raise VocabularyError.too_many(tally.what, found)
    raise VocabularyError.identifier(tally.what, document, found, known.size)


def _flat(documents: Sequence[Any], kind: Kind, tally: Tally) -> tuple[np.ndarray, list[Any]]:
    """The sizes of documents, all of one kind, and their entries one after another."""
    if not set(map(type, documents)) <= PAIRS:
        lists = []
        for number, document in enumerate(documents, tally.documents):
            lists.append(opened(document, number, tally.what))
            if not isinstance(lists[-1], list | tuple):
                name = type(document).__name__
                raise CorpusTypeError.of_document(tally.what, number, name, LIKE[kind])
        documents = lists
    sizes = np.fromiter(map(len, documents), np.int64, len(documents))
    return sizes, list(chain.from_iterable(documents))


def _refuse(sizes: np.ndarray, flat: list[Any], place: int, kind: Kind, tally: Tally) -> None:
    row = _document(sizes, place)
    inside = place - int(sizes[:row].sum())
    raise CorpusTypeError.of_entry(
        tally.what, tally.documents + row, inside, flat[place], LIKE[kind]
    )


def _document(sizes: np.ndarray, place: int) -> int:
    return int(np.searchsorted(np.cumsum(sizes), place, side="right"))
