"""Other software for topics, each as its own documentation would run it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp


def scikit_learn(
    counts: sp.csr_matrix, topics: int, passes: int, batch: int, alpha: float, eta: float
) -> tuple[np.ndarray, float, float]:
    """Online variational Bayes: topics (K, V), seconds and CPU-seconds."""
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        topics, learning_method="online", batch_size=batch, max_iter=passes, n_jobs=1,
        doc_topic_prior=alpha, topic_word_prior=eta, random_state=0, learning_offset=1.0,
    )  # fmt: skip
    began = time.perf_counter(), time.process_time()
    model.fit(counts)
    return model.components_, time.perf_counter() - began[0], time.process_time() - began[1]


def gensim(
    counts: sp.csr_matrix, topics: int, passes: int, batch: int, alpha: float, eta: float
) -> tuple[np.ndarray, float, float] | None:
    """The same algorithm in gensim; None where it is not installed."""
    try:
        from gensim.matutils import Sparse2Corpus
        from gensim.models import LdaModel
    except ImportError:
        print("gensim is not installed: left out")
        return None
    corpus = Sparse2Corpus(counts, documents_columns=False)
    names = {i: str(i) for i in range(counts.shape[1])}
    began = time.perf_counter(), time.process_time()
    model = LdaModel(
        corpus, topics, names, chunksize=batch, passes=passes, eval_every=None,
        alpha=[alpha] * topics, eta=eta, random_state=0, dtype=np.float32, decay=0.7, offset=1.0,
    )  # fmt: skip
    seconds = time.perf_counter() - began[0], time.process_time() - began[1]
    return model.get_topics(), *seconds


def tomotopy(
    counts: sp.csr_matrix, topics: int, workers: int, sweeps: int
) -> Iterator[tuple[np.ndarray, float, float]]:
    """Collapsed Gibbs sampling: topics, seconds and CPU-seconds after every `sweeps` sweeps.

    Only the sampler's own time counts, not the reading of the documents.
    """
    try:
        import tomotopy as tp
    except ImportError:
        print("tomotopy is not installed: left out")
        return
    model = tp.LDAModel(k=topics, seed=1)
    for row in range(counts.shape[0]):
        part = slice(counts.indptr[row], counts.indptr[row + 1])
        tokens = np.repeat(counts.indices[part], counts.data[part].astype(int))
        model.add_doc([str(word) for word in tokens])
    model.train(0)
    known = np.array([int(word) for word in model.used_vocabs])
    wall, cpu = 0.0, 0.0
    while True:
        began = time.perf_counter(), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.train(sweeps, workers=workers)
        wall += time.perf_counter() - began[0]
        cpu += time.process_time() - began[1]
        beta = np.full((topics, counts.shape[1]), 1e-12)
        for k in range(topics):
            beta[k, known] = model.get_topic_word_dist(k)
        yield beta, wall, cpu
