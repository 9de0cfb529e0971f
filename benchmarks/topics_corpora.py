"""Corpora of the topic benchmarks, and the one judge of all topics, ours and the peers'."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

TEXT = Path(__file__).parents[2] / "shared" / "data" / "text"
PRIOR = 0.1  # of theta, in the judge; fixed before anything was fitted


@dataclass(frozen=True)
class Corpus:
    """Counts to learn from, and held-out documents in two halves."""

    name: str
    train: sp.csr_matrix
    shown: sp.csr_matrix
    foretold: sp.csr_matrix
    words: list[str] | None

    def judged(self, topics: np.ndarray) -> float:
        """Nats per token of the second halves, topics (K, V) with any row sums."""
        return completion(topics / topics.sum(axis=1, keepdims=True), self.shown, self.foretold)


def read(name: str) -> Corpus | None:
    """A corpus of real text; its last rows are held out, as its meta.json says."""
    path = TEXT / f"{name}.npz"
    if not path.exists():
        print(f"{name} is not in {TEXT.name}/: left out")
        return None
    counts = sp.load_npz(path).tocsr()
    held_out = json.loads((TEXT / f"{name}.meta.json").read_text())["ntest"]
    words = (TEXT / f"{name}.vocab.txt").read_text().split()
    shown, foretold = halves(counts[-held_out:])
    return Corpus(name, counts[:-held_out], shown, foretold, words)


def synthetic(documents: int, vocabulary: int, topics: int, length: int, seed: int = 0) -> Corpus:
    """Documents drawn from latent Dirichlet allocation."""
    rng = np.random.default_rng(seed)
    held_out = 2000
    beta = rng.dirichlet(np.full(vocabulary, 0.02), topics)
    edges = np.cumsum(beta, axis=1)
    lengths = rng.poisson(length, documents + held_out) + 5
    owners = np.repeat(np.arange(len(lengths)), lengths)
    theta = np.cumsum(rng.dirichlet(np.full(topics, 0.1), len(lengths)), axis=1)
    z = np.empty(len(owners), np.int32)
    words = np.empty(len(owners), np.int32)
    for low in range(0, len(owners), 1 << 18):
        part = slice(low, low + (1 << 18))
        z[part] = (rng.random((len(owners[part]), 1)) > theta[owners[part]]).sum(axis=1)
    z = np.minimum(z, topics - 1)
    for k in range(topics):
        own = np.flatnonzero(z == k)
        words[own] = np.searchsorted(edges[k], rng.random(len(own)) * edges[k, -1])
    shape = (len(lengths), vocabulary)
    ones = np.ones(len(owners), np.float32)
    counts = sp.coo_matrix((ones, (owners, words)), shape=shape).tocsr()
    shown, foretold = halves(counts[-held_out:])
    name = f"synthetic {documents:,} documents, V = {vocabulary:,}"
    return Corpus(name, counts[:-held_out], shown, foretold, None)


def halves(counts: sp.csr_matrix, seed: int = 0) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Each document's tokens in random order, dealt in turn to two halves."""
    rng = np.random.default_rng(seed)
    times = counts.data.astype(int)
    owners = np.repeat(np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr)), times)
    words = np.repeat(counts.indices, times)
    order = np.lexsort((rng.random(len(words)), owners))
    owners, words = owners[order], words[order]
    starts = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=counts.shape[0]))])
    first = (np.arange(len(words)) - starts[owners]) % 2 == 0
    return tuple(
        sp.coo_matrix((np.ones(w.sum()), (owners[w], words[w])), shape=counts.shape).tocsr()
        for w in (first, ~first)
    )  # type: ignore[return-value]


def completion(beta: np.ndarray, shown: sp.csr_matrix, foretold: sp.csr_matrix) -> float:
    """The mean log probability of tokens, theta ∝ PRIOR + sum_w n_w phi_w, phi ∝ theta beta."""
    by_word = np.ascontiguousarray(beta.T.astype(np.float32))
    documents, K = shown.shape[0], len(beta)
    owners = np.repeat(np.arange(documents), np.diff(shown.indptr))
    rows = by_word[shown.indices]
    theta = np.full((documents, K), 1 / K, np.float32)
    lengths = np.asarray(shown.sum(axis=1)).reshape(-1, 1)
    pick = sp.csr_matrix((np.ones(len(owners), np.float32), np.arange(len(owners)), shown.indptr))
    for _ in range(100):
        chance = np.einsum("ek,ek->e", rows, theta[owners])
        counts = theta * (pick @ (rows * (shown.data / chance)[:, None].astype(np.float32)))
        new = ((counts + PRIOR) / (lengths + K * PRIOR)).astype(np.float32)
        moved = np.abs(new - theta).mean()
        theta = new
        if moved < 1e-5:
            break
    owners = np.repeat(np.arange(documents), np.diff(foretold.indptr))
    chance = np.einsum("ek,ek->e", by_word[foretold.indices], theta[owners])
    return float((foretold.data * np.log(chance)).sum() / foretold.data.sum())
