"""The steps of latent Dirichlet allocation, one document at a time, in float64.

What the interface leaves open is said here: when a document stops, where a rule that leaves the
word's own token out takes its first phi from, and which counts a sweep of CVB0 sees.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln

from lowerbound.topics.documents import Documents


class Local(NamedTuple):
    gamma: np.ndarray
    statistics: np.ndarray
    bound: float
    iterations: float


def corpus(
    seed: int, sizes: list[int], vocabulary: int, *, concentration: float = 0.3, longest: int = 4
) -> Documents:
    """Documents with so many distinct words each; words are unevenly frequent."""
    rng = np.random.default_rng(seed)
    frequency = rng.dirichlet(np.full(vocabulary, concentration)) + 1e-6
    frequency /= frequency.sum()
    words = [
        np.sort(rng.choice(vocabulary, size=size, replace=False, p=frequency)) for size in sizes
    ]
    entries = int(np.sum(sizes))
    return Documents(
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.concatenate([np.zeros(0, int), *words]).astype(np.int32),
        rng.integers(1, longest + 1, size=entries).astype(np.float32),
        vocabulary,
    )


def documents_of(documents: Documents):
    """The words and the counts of each document."""
    for first, last in zip(documents.starts[:-1], documents.starts[1:], strict=True):
        yield documents.words[first:last], documents.counts[first:last].astype(float)


def weights(topics: np.ndarray, rule: str) -> np.ndarray:
    """B (V, K), from lambda (V, K)."""
    if rule == "mean field":
        return np.exp(digamma(topics) - digamma(topics.sum(0)))
    return topics / topics.sum(0)


def blend(topics, statistics, prior, step: float, scale: float) -> np.ndarray:
    """(1 - step) lambda + step (eta + scale * statistics), eta (V,) or (1,)."""
    return (1 - step) * topics + step * (np.asarray(prior)[:, None] + scale * statistics)


def default_start(documents: Documents, prior: np.ndarray) -> np.ndarray:
    """gamma_k = alpha_k + n_d / K."""
    return prior + documents.lengths[:, None] / len(prior)


def topics_of_words(gamma, rows, rule: str, previous=None) -> np.ndarray:
    """phi (words, K) of one document, from its gamma and the rows B[w].

    "collapsed" leaves the word's own token out where a previous phi says where it is. Gamma at the
    start comes without one: the first phi is then that of "mean".
    """
    if rule == "mean field":
        values = np.exp(digamma(gamma) - digamma(gamma.sum())) * rows
    elif rule == "collapsed" and previous is not None:
        values = (gamma - previous) * rows
    else:
        values = gamma * rows
    return values / values.sum(1, keepdims=True)


def local(
    weights: np.ndarray,
    documents: Documents,
    prior: np.ndarray,
    start: np.ndarray | None = None,
    *,
    rule: str = "mean field",
    iterations: int = 100,
    tolerance: float = 1e-3,
) -> Local:
    """Each document until the mean change of its gamma is below the tolerance (eq:lda_phi and on).

    An iteration computes phi of all words from one gamma, then gamma from all phi. The statistics
    are of one more phi, computed from the final gamma. A document counts the iteration that finds
    it unchanged; so does an empty one, whose first gamma is alpha.
    """
    gammas = np.array(default_start(documents, prior) if start is None else start, float)
    statistics = np.zeros_like(weights)
    bound, used = 0.0, []
    for d, (words, counts) in enumerate(documents_of(documents)):
        gamma, rows, phi, done = gammas[d], weights[words], None, 0
        for _ in range(iterations):
            phi = topics_of_words(gamma, rows, rule, phi)
            change, gamma = gamma, prior + counts @ phi
            change = np.mean(np.abs(gamma - change))
            done += 1
            if change < tolerance:
                break
        gammas[d] = gamma
        used.append(done)
        statistics[words] += counts[:, None] * topics_of_words(gamma, rows, rule, phi)
        if rule == "mean field":
            bound += document_bound(gamma, rows, counts, prior)
    return Local(gammas, statistics, bound, float(np.mean(used)) if used else 0.0)


def local_in_turn(weights, documents: Documents, prior, start, iterations: int, tolerance: float):
    """CVB0 within a document, its words one after another: each sees the changes of those before.

    The first phi is that of "mean"; the statistics are of the last phi.
    """
    gammas = np.array(default_start(documents, prior) if start is None else start, float)
    statistics, used = np.zeros_like(weights), []
    for d, (words, counts) in enumerate(documents_of(documents)):
        rows, done = weights[words], 0
        phi = topics_of_words(gammas[d], rows, "mean")
        if iterations:
            gammas[d] = prior + counts @ phi
        for _ in range(iterations):
            moved = 0.0
            for e, n in enumerate(counts):
                new = (gammas[d] - phi[e]) * rows[e]
                change = n * (new / new.sum() - phi[e])
                phi[e] += change / n
                gammas[d] += change
                moved += np.abs(change).sum()
            done += 1
            if moved < tolerance * len(prior):
                break
        used.append(done)
        statistics[words] += counts[:, None] * phi
    return Local(gammas, statistics, 0.0, float(np.mean(used)))


def document_bound(gamma, rows, counts, prior) -> float:
    """E[log p(words, z | theta)] + H(z) - KL(q(theta) || p(theta)), with the best phi.

    The first two are sum_w n_w log sum_k exp(E log theta_k) B[w, k]: t has its normaliser here.
    """
    log_theta = digamma(gamma) - digamma(gamma.sum())
    likelihood = counts @ np.log(rows @ np.exp(log_theta))
    kl = gammaln(gamma.sum()) - gammaln(gamma).sum() - gammaln(prior.sum()) + gammaln(prior).sum()
    return float(likelihood - kl - (gamma - prior) @ log_theta)


def word_counts(documents: Documents, phi: np.ndarray) -> np.ndarray:
    """N_wk (V, K) of phi (entries, K)."""
    counts = np.zeros((documents.vocabulary, phi.shape[1]))
    np.add.at(counts, documents.words, documents.counts[:, None] * phi)
    return counts


def document_counts(documents: Documents, phi: np.ndarray) -> np.ndarray:
    """N_dk (D, K) of phi (entries, K)."""
    counts = np.zeros((len(documents), phi.shape[1]))
    np.add.at(
        counts,
        np.repeat(np.arange(len(documents)), documents.distinct),
        documents.counts[:, None] * phi,
    )
    return counts


def reassigned(
    documents: Documents, phi: np.ndarray, prior: np.ndarray, eta: np.ndarray, batch: int
) -> np.ndarray:
    """One sweep of CVB0 in batches: all phi of a batch see the counts from before the batch."""
    phi = np.array(phi, float)
    eta = np.broadcast_to(eta, documents.vocabulary)
    for first in range(0, len(documents), batch):
        of_words = word_counts(documents, phi)
        of_documents = document_counts(documents, phi)
        totals = of_words.sum(0)
        new = phi.copy()
        for d in range(first, min(first + batch, len(documents))):
            for i in range(documents.starts[d], documents.starts[d + 1]):
                w = documents.words[i]
                new[i] = _without_own(
                    of_documents[d], of_words[w], totals, phi[i], prior, eta[w], eta.sum()
                )
        phi = new
    return phi


def reassigned_in_place(
    documents: Documents, phi: np.ndarray, prior: np.ndarray, eta: np.ndarray
) -> np.ndarray:
    """One sweep of CVB0 entry after entry: each phi sees the counts of all others, new or old."""
    phi = np.array(phi, float)
    eta = np.broadcast_to(eta, documents.vocabulary)
    of_words, of_documents = word_counts(documents, phi), document_counts(documents, phi)
    totals = of_words.sum(0)
    for d in range(len(documents)):
        for i in range(documents.starts[d], documents.starts[d + 1]):
            w = documents.words[i]
            new = _without_own(
                of_documents[d], of_words[w], totals, phi[i], prior, eta[w], eta.sum()
            )
            moved = documents.counts[i] * (new - phi[i])
            of_documents[d] += moved
            of_words[w] += moved
            totals += moved
            phi[i] = new
    return phi


def _without_own(of_document, of_word, totals, own, prior, eta, eta_sum) -> np.ndarray:
    values = (of_document - own + prior) * (of_word - own + eta) / (totals - own + eta_sum)
    return values / values.sum()
