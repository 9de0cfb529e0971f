"""Topics for other programs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from lowerbound.errors import ArgumentError
from lowerbound.topics.fitted_topics import (
    TopicModel,
    check_fitted,
    empty_documents_accepted,
    opened,
    word_names,
)
from lowerbound.topics.looks.divergence import means

BATCH: Final = 65536  # documents


def pyldavis(model: TopicModel, X: Any) -> dict[str, Any]:
    """The arguments of `pyLDAvis.prepare`: a fitted model and documents X, as its fit takes them.

    topic_term_dists is E[beta] (K, V), doc_topic_dists E[theta] (D, K), doc_lengths (D,) and
    term_frequency (V,) are the counts of X, vocab (V,) the words, "word 17" where they have no
    names. Documents without words are left out: pyLDAvis divides by lengths.

        pyLDAvis.display(pyLDAvis.prepare(**pyldavis(model, X), sort_topics=False, start_index=0))
    """
    check_fitted("export.pyldavis", model, "transform")
    shares, lengths = [], []
    frequency = np.zeros(model.components_.shape[1])
    with empty_documents_accepted():
        for batch in opened(model, X).batches(BATCH):
            kept = batch.take(np.flatnonzero(batch.distinct))
            if len(kept):
                shares.append(np.asarray(model.transform(kept), dtype=np.float64))
                lengths.append(kept.lengths.astype(np.int64))
                frequency += np.bincount(kept.words, kept.counts, minlength=len(frequency))
    if not shares:
        raise ArgumentError(
            "export.pyldavis got documents without a word of the model's vocabulary.\n"
            "Expected at least one document with words: those of the fit, or others alike."
        )
    theta = np.concatenate(shares)
    return {
        "topic_term_dists": means(model.components_),
        "doc_topic_dists": theta / theta.sum(axis=1, keepdims=True),
        "doc_lengths": np.concatenate(lengths),
        "vocab": [str(word) for word in word_names(model)],
        "term_frequency": frequency.astype(np.int64),
    }
