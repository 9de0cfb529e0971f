"""The words that exist: how many there are, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np

from lowerbound.errors import VocabularyError


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """`size` words, with names or without; `fitted` when a fit has fixed them."""

    size: int
    words: np.ndarray | None = None  # (V,) of str
    fitted: bool = False

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of each word."""
        return {} if self.words is None else {w: i for i, w in enumerate(self.words.tolist())}

    def name(self, word: int) -> str | None:
        """The name of a word, where it has one."""
        return None if self.words is None else str(self.words[word])


def state(vocabulary: Any, features: int | None, names: Any) -> Vocabulary | None:
    """The vocabulary that the user gave or a fit has fixed; None when the documents define it."""
    given = None if vocabulary is None else read_vocabulary(vocabulary)
    if features is None and names is None:
        return given
    fixed = None if names is None else read_vocabulary(names)
    if given is not None and fixed is not None:
        _require_equal(given, fixed)
    named_by = fixed or given
    size = named_by.size if features is None and named_by is not None else int(features or 0)
    if named_by is not None and named_by.size != size:
        raise VocabularyError.size(named_by.size, size)
    return Vocabulary(size, None if named_by is None else named_by.words, fitted=True)


def read_vocabulary(given: Any) -> Vocabulary:
    """Words in order, a mapping of words to numbers or back, or a gensim Dictionary."""
    for attribute in ("token2id", "id2token"):
        inside = getattr(given, attribute, None)
        if isinstance(inside, Mapping) and len(inside):
            return read_vocabulary(inside)
    if isinstance(given, Mapping):
        return _from_mapping(given)
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise VocabularyError.not_a_vocabulary(f"a {type(given).__name__}")
    if isinstance(given, set | frozenset):
        raise VocabularyError.not_a_vocabulary(f"a {type(given).__name__}, which has no order")
    return named(list(given), "vocabulary")


def named(words: Sequence[Any], where: str) -> Vocabulary:
    """A vocabulary of these words, in this order."""
    for place, word in enumerate(words):
        if not isinstance(word, str):
            kind = f"a sequence that holds {word!r} at {place}"
            raise VocabularyError.not_a_vocabulary(kind)
    index: dict[str, int] = {}
    for place, word in enumerate(words):
        if index.setdefault(word, place) != place:
            raise VocabularyError.duplicate(word, index[word], place, where)
    return from_distinct(words)


def from_distinct(words: Iterable[str]) -> Vocabulary:
    """A vocabulary of distinct words, in this order."""
    names = [str(word) for word in words]
    if not names:
        raise VocabularyError.empty()
    array = np.empty(len(names), dtype=object)  # one long word must not widen all others
    array[:] = names
    return Vocabulary(len(names), array)


def _from_mapping(given: Mapping[Any, Any]) -> Vocabulary:
    pairs = list(given.items())
    if not pairs:
        raise VocabularyError.empty()
    if not isinstance(pairs[0][0], str):
        pairs = [(word, number) for number, word in pairs]
    by_number: dict[int, str] = {}
    for word, number in pairs:
        if not isinstance(word, str) or not isinstance(number, Integral):
            kind = f"a {type(given).__name__} that pairs {word!r} with {number!r}"
            raise VocabularyError.not_a_vocabulary(kind)
        by_number[int(number)] = word
    for number in range(len(pairs)):
        if number not in by_number:
            raise VocabularyError.numbers(number, len(pairs))
    return named([by_number[number] for number in range(len(pairs))], "vocabulary")


def _require_equal(given: Vocabulary, fixed: Vocabulary) -> None:
    assert given.words is not None
    assert fixed.words is not None
    if given.size == fixed.size and bool(np.all(given.words == fixed.words)):
        return
    both = zip(given.words.tolist(), fixed.words.tolist(), strict=False)
    place = next((i for i, (a, b) in enumerate(both) if a != b), min(given.size, fixed.size))
    raise VocabularyError.differs(place, _at(given, place), _at(fixed, place))


def _at(vocabulary: Vocabulary, place: int) -> str:
    return "no word" if place >= vocabulary.size else f"'{vocabulary.name(place)}'"
