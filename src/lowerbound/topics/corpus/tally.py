"""What one pass over a corpus met: whether there was anything to learn, and what to warn of."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from lowerbound.errors import CorpusError, EmptyDocumentsWarning, UnknownWordsWarning
from lowerbound.topics.documents import Documents


@dataclass
class Tally:
    """Running totals of a pass; `documents` is the number of the document that comes next."""

    what: str
    documents: int = 0
    empty: int = 0
    tokens: float = 0.0
    unknown: int = 0
    examples: dict[str, None] = field(default_factory=dict)  # an ordered set

    def add(self, part: Documents) -> Documents:
        """Count a part of the corpus, and give it back."""
        self.documents += len(part)
        self.empty += int((part.distinct == 0).sum())
        self.tokens += part.tokens
        return part

    def leave_out(self, count: int, words: Iterable[str]) -> None:
        """Count tokens that are not in the vocabulary; `words` are these, the first of them."""
        self.unknown += count
        missing = 5 - len(self.examples)
        if missing > 0:
            new = dict.fromkeys(word for word in words if word not in self.examples)
            self.examples.update(dict.fromkeys(islice(new, missing)))

    def close(self, *, fitted: bool, count: int | None = None, quiet: bool = False) -> None:
        """Raise if there is nothing to learn from, and warn of what was met, unless `quiet`.

        A `fitted` model describes empty documents too: by its prior.
        """
        if self.documents == 0:
            raise CorpusError.no_documents(self.what)
        if count is not None and count != self.documents:
            raise CorpusError.changed(self.what, self.documents, count)
        examples = tuple(self.examples)
        if self.tokens == 0 and not fitted:
            raise CorpusError.no_tokens(self.what, self.documents, self.unknown, examples)
        if quiet:
            return
        if self.unknown:
            warning = UnknownWordsWarning(self.what, self.unknown, examples)
            warnings.warn(warning, stacklevel=2)
        if self.empty:
            warnings.warn(EmptyDocumentsWarning(self.what, self.empty), stacklevel=2)
