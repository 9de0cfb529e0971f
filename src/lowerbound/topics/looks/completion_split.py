"""Halves of documents: what a document shows, and what is to be foretold of it."""

from __future__ import annotations

import numpy as np

from lowerbound.topics.documents import Documents


def split_tokens(documents: Documents, seed: int) -> tuple[Documents, Documents]:
    """Deal the tokens of each document, in random order, in turn to two halves.

    The first half takes places 0, 2, 4, ... of the order and is never the smaller one. Documents
    keep their numbers; a half of one may be empty. The order is a function of the seed.
    """
    rng = np.random.default_rng(seed)
    entries = np.repeat(np.arange(len(documents.words)), documents.counts.astype(np.int64))
    lengths = documents.lengths.astype(np.int64)
    owners = np.repeat(np.arange(len(documents)), lengths)
    # By document, and within it by chance: one key to sort, a stable sort to be the same anywhere.
    keys = owners.astype(np.uint64) << 32 | rng.integers(2**32, size=len(owners), dtype=np.uint64)
    dealt = entries[np.argsort(keys, kind="stable")]
    starts = np.cumsum(lengths) - lengths
    first = (np.arange(len(entries)) - np.repeat(starts, lengths)) % 2 == 0
    counts = np.bincount(dealt[first], minlength=len(documents.words)).astype(np.float32)
    return _kept(documents, counts), _kept(documents, documents.counts - counts)


def _kept(documents: Documents, counts: np.ndarray) -> Documents:
    """The same documents with other counts, without the words whose count is 0."""
    keep = counts > 0
    before = np.concatenate([[0], np.cumsum(keep)]).astype(np.int64)
    starts = before[documents.starts]
    return Documents(starts, documents.words[keep], counts[keep], documents.vocabulary)
