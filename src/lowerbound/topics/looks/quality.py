"""Judging topics: whether their words belong together, and whether each topic earns its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lowerbound.errors import ArgumentError, SettingError
from lowerbound.topics.documents import Documents
from lowerbound.topics.looks.divergence import divergence_from, means, near

DUPLICATE: Final = 0.1  # bits
PRIOR_LIKE: Final = 0.1  # bits
IDLE: Final = 0.1  # of an equal share of the tokens
TOGETHER: Final = 2000  # words whose co-occurrences are counted at a time


def top_words(components: np.ndarray, n: int) -> np.ndarray:
    """The n most probable words of each topic, (K, n); of equal ones those with smaller numbers."""
    components = np.asarray(components)
    K, V = components.shape
    if not 1 <= n <= V:
        over = f" for topics over {V} words"
        raise SettingError("top_words", "n", n, f"a number from 1 to {V}", over)
    found = np.empty((K, n), dtype=np.int64)
    bounds = np.partition(components, V - n, axis=1)[:, V - n]
    for k, (row, bound) in enumerate(zip(components, bounds, strict=True)):
        reached = np.flatnonzero(row >= bound)
        found[k] = reached[np.argsort(-row[reached], kind="stable")[:n]]
    return found


def coherence(components: np.ndarray, documents: Documents, n_words: int = 10) -> np.ndarray:
    """How much more often than by chance a topic's top words meet in a document, (K,) in [-1, 1].

    The mean over pairs of the top words of normalised pointwise mutual information (Bouma 2009;
    for topics, Lau, Newman and Baldwin 2014),

        NPMI(i, j) = log[p(i, j) / (p(i) p(j))] / -log p(i, j),

    with p the share of the documents (those that have words) which hold the word, or both words.
    Words that never meet count -1, also those that `documents` do not hold; words that all
    documents hold count 1, which are the limits.
    """
    if n_words < 2:
        expected = "2 or more: it is a mean over pairs"
        raise SettingError("coherence", "n_words", n_words, expected)
    holding = int(np.count_nonzero(documents.distinct))
    if not holding:
        raise ArgumentError(
            f"coherence got {len(documents)} documents, none with a word.\n"
            "Expected documents in which words can meet: those of the fit, or others alike."
        )
    words = top_words(components, n_words)
    size = max(1, TOGETHER // n_words)
    parts = [words[first : first + size] for first in range(0, len(words), size)]
    met = np.concatenate([_meetings(part, documents) for part in parts]) / holding
    alone = np.diagonal(met, axis1=1, axis2=2)
    first, second = np.triu_indices(n_words, 1)
    both, chance = met[:, first, second], alone[:, first] * alone[:, second]
    scores = np.where(both == 0, -1.0, 1.0)
    partly = (both > 0) & (both < 1)
    scores[partly] = np.log(both[partly] / chance[partly]) / -np.log(both[partly])
    mean: np.ndarray = scores.mean(axis=1)
    return mean


def _meetings(words: np.ndarray, documents: Documents) -> np.ndarray:
    """In how many documents words meet: (topics, n, n) for words (topics, n), by a sparse product.

    Only entries of these words are kept; the product is words by words, never documents by words.
    """
    from scipy.sparse import csr_array

    union, places = np.unique(words, return_inverse=True)
    places = places.reshape(words.shape)
    column = np.full(documents.vocabulary, -1, dtype=np.int32)
    column[union] = np.arange(len(union), dtype=np.int32)
    columns = column[documents.words]
    kept = columns >= 0
    starts = np.concatenate([[0], np.cumsum(kept)])[documents.starts]
    ones = np.ones(int(starts[-1]), dtype=np.int32)
    holds = csr_array((ones, columns[kept], starts), shape=(len(documents), len(union)))
    counts = (holds.T @ holds).toarray()
    meetings: np.ndarray = counts[places[:, :, None], places[:, None, :]].astype(np.float64)
    return meetings


def diversity(components: np.ndarray, n_words: int = 25) -> float:
    """The share of distinct words among the top words of all topics (Dieng, Ruiz and Blei 2020).

    1 means that no two topics have a top word in common, 1 / K that all have the same.
    """
    words = top_words(components, n_words)
    return len(np.unique(words)) / words.size


def duplicates(
    components: np.ndarray, threshold: float = DUPLICATE
) -> list[tuple[int, int, float]]:
    """Pairs of topics (j, k, bits) that say the same, the closest first.

    Their Jensen-Shannon divergence is below `threshold` bits: one word tells less than that, out of
    1 bit, about which of the two it came from.
    """
    if not 0 <= threshold <= 1:
        expected = "bits from 0 (the same topic) to 1 (no word in common)"
        raise SettingError("duplicates", "threshold", threshold, expected)
    return near(means(components), threshold)


def dead(
    components: np.ndarray, weights: np.ndarray, prior: float | np.ndarray = 0.0
) -> np.ndarray:
    """The numbers of the topics that are not in use.

    Such a topic has less than a tenth of an equal share 1 / K of the tokens (`weights`, (K,)), and
    says no more than its prior Dirichlet(eta) does (`prior`, a number or (V,)): either at least
    half of lambda is eta, sum_w (lambda_w - eta_w) <= sum_w eta_w, or E[beta] is less than 0.1 bits
    (Jensen-Shannon) from the prior's mean, as of a topic that never left a diffuse start.
    """
    components = np.asarray(components, dtype=np.float64)
    K, V = components.shape
    weights = np.asarray(weights)
    if weights.shape != (K,):
        raise ArgumentError(
            f"dead got weights of shape {weights.shape} for {K} topics.\n"
            f"Expected the share of each topic, shape ({K},)."
        )
    eta = np.broadcast_to(np.asarray(prior, dtype=np.float64), (V,))
    idle = np.flatnonzero(weights < IDLE / K)
    held = components[idle].sum(axis=1) - eta.sum()
    flat = eta / eta.sum() if eta.sum() > 0 else np.full(V, 1 / V)
    alike = divergence_from(means(components[idle]), flat) < PRIOR_LIKE
    unused: np.ndarray = idle[(held <= eta.sum()) | alike]
    return unused


@dataclass(frozen=True, eq=False)
class Quality:
    """How good a set of topics is; its text reads as advice."""

    coherence: np.ndarray  # (K,) NPMI of the top words
    diversity: float
    duplicates: tuple[tuple[int, int, float], ...]  # among topics in use: j, k, bits
    dead: np.ndarray  # numbers of topics
    words: tuple[tuple[str, ...], ...]  # a few top words of each topic, to know it by

    def __str__(self) -> str:
        return "\n".join([*self._figures(), *self._advice()])

    def _named(self, k: int) -> str:
        return f"topic {k} ({', '.join(self.words[k])})"

    def _figures(self) -> list[str]:
        K = len(self.coherence)
        best, worst = int(np.argmax(self.coherence)), int(np.argmin(self.coherence))
        lines = [
            f"{_count(K, 'topic')}: coherence {self.coherence.mean():.2f} on average (NPMI: 0 is "
            f"chance, 1 the most), {self.diversity:.0%} of the top words distinct."
        ]
        if K > 1:
            lines += [
                f"Most coherent: {self._named(best)}, {self.coherence[best]:.2f}.",
                f"Least coherent: {self._named(worst)}, {self.coherence[worst]:.2f}.",
            ]
        return lines

    def _advice(self) -> list[str]:
        lines, shown = [], 3
        if self.duplicates:
            pairs = [
                f"{j} and {k} ({', '.join(self.words[j])}; {bits:.2f} bits apart)"
                for j, k, bits in self.duplicates[:shown]
            ]
            says = "pair of topics says" if len(self.duplicates) == 1 else "pairs of topics say"
            lines.append(
                f"{len(self.duplicates)} {says} the same: {_listed(pairs, self.duplicates)}; "
                "consider fewer topics."
            )
        if len(self.dead):
            names = [str(k) for k in self.dead[: 4 * shown]]
            lines.append(
                f"{_count(len(self.dead), 'topic')} not in use: {_listed(names, self.dead)}; "
                f"{len(self.coherence) - len(self.dead)} topics would do."
            )
        below = np.setdiff1d(np.flatnonzero(self.coherence < 0), self.dead)
        if len(below):
            names = [str(k) for k in below[: 4 * shown]]
            lines.append(
                f"The top words of {_count(len(below), 'topic')} seldom meet in these documents "
                f"(coherence below 0): {_listed(names, below)}; read them with care."
            )
        return lines or ["No two topics say the same, and all are in use."]


def quality(
    components: np.ndarray,
    weights: np.ndarray,
    prior: float | np.ndarray,
    documents: Documents,
    names: Sequence[str] | np.ndarray | None = None,
) -> Quality:
    """Coherence, diversity, duplicates and dead topics of q(beta) = Dirichlet(lambda), (K, V).

    weights: shares of tokens (K,). prior: eta. documents: where top words are to meet; best those
    of the fit. names: the words (V,).
    """
    V = np.shape(components)[1]
    unused = dead(components, weights, prior)
    few = top_words(components, min(3, V))
    return Quality(
        coherence=coherence(components, documents, min(10, V)),
        diversity=diversity(components, min(25, V)),
        duplicates=tuple(
            pair for pair in duplicates(components) if not np.isin(pair[:2], unused).any()
        ),
        dead=unused,
        words=tuple(
            tuple(f"word {w}" if names is None else str(names[w]) for w in row) for row in few
        ),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _listed(shown: Sequence[str], all_of_them: Sequence[object] | np.ndarray) -> str:
    more = len(all_of_them) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
