"""How well topics foretell words: the score of documents that were not learned from.

Document completion: the tokens of each document are dealt in random order to two halves
(`split_tokens`). The first half gives theta by the rule "mean", gamma = alpha + sum_w n_w phi_w
with phi_wk ∝ gamma_k E[beta_kw], and the score is the mean over all tokens of the second halves of

    log sum_k E[theta_k] E[beta_kw]        nats per token
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lowerbound.topics.documents import Documents
from lowerbound.topics.inference_steps import Engine
from lowerbound.topics.looks.completion_split import split_tokens

ITERATIONS: Final = 100
TOLERANCE: Final = 1e-3
CHUNK: Final = 1 << 15  # entries scored at a time


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Documents whose halves are shown and foretold."""

    engine: Engine
    shown: Any  # packed
    foretold: Documents

    def score(self, topics: Any, prior: np.ndarray) -> float:
        """Nats per token under lambda (V, K), as the engine keeps it, and alpha (K,)."""
        weights = self.engine.weights(topics, "mean")
        found = self.engine.local(
            weights, self.shown, prior, rule="mean", iterations=ITERATIONS, tolerance=TOLERANCE
        )
        gamma = self.engine.fetch(found.gamma)
        theta = gamma / gamma.sum(axis=1, keepdims=True)
        means = self.engine.fetch(topics)
        return score_words(self.foretold, theta, means / means.sum(axis=0))


def hold_out(engine: Engine, documents: Documents, seed: int) -> HeldOut:
    """Split documents into halves, once and for all scores that are to be compared."""
    shown, foretold = split_tokens(documents, seed)
    return HeldOut(engine, engine.pack(shown), foretold)


def score_words(foretold: Documents, theta: np.ndarray, beta: np.ndarray) -> float:
    """The mean log probability of tokens under theta (D, K) and beta (V, K)."""
    if not foretold.tokens:
        return float("nan")
    owners = np.repeat(np.arange(len(foretold)), foretold.distinct)
    total = 0.0
    for low in range(0, len(owners), CHUNK):
        part = slice(low, low + CHUNK)
        chance = np.einsum("ek,ek->e", theta[owners[part]], beta[foretold.words[part]])
        total += float(foretold.counts[part] @ np.log(chance))
    return total / foretold.tokens
