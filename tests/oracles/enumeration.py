"""The log evidence of small discrete models by summing over every configuration."""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product

import numpy as np
from scipy.special import betaln, logsumexp

from tests.oracles.components import Component
from tests.oracles.expectations import dirichlet_log_normalizer


def configurations(K: int, n: int) -> Iterator[np.ndarray]:
    """Every vector of n assignments to K classes."""
    return (np.array(c) for c in product(range(K), repeat=n))


def log_sum(log_joint: Callable[[np.ndarray], float], K: int, n: int) -> float:
    """log sum_c exp log_joint(c) over all K^n configurations."""
    return float(logsumexp([log_joint(c) for c in configurations(K, n)]))


def partition_evidence(counts: np.ndarray, concentration: float | None) -> float:
    """log p(c) of assignments with these class counts (..., K), the weights integrated out."""
    if concentration is None:
        return float(-counts.sum() * np.log(counts.shape[-1]))
    prior = np.full(counts.shape[-1], concentration)
    return float(np.sum(dirichlet_log_normalizer(prior + counts) - dirichlet_log_normalizer(prior)))


def mixture(component: Component, x: np.ndarray, K: int, concentration: float | None) -> float:
    """log p(x) of a mixture of conjugate components."""

    @cache
    def rows(members: tuple[int, ...]) -> float:
        return component.evidence(x[list(members)]) if members else 0.0

    def log_joint(c: np.ndarray) -> float:
        groups = (tuple(np.flatnonzero(c == k).tolist()) for k in range(K))
        counts = np.bincount(c, minlength=K)
        return partition_evidence(counts, concentration) + sum(map(rows, groups))

    return log_sum(log_joint, K, len(x))


def topics(w: np.ndarray, K: int, V: int, eta: float, alpha: float) -> float:
    """log p(w) of latent Dirichlet allocation, documents of equal length in rows."""
    docs, words = w.shape
    d = np.repeat(np.arange(docs), words)

    def log_joint(z: np.ndarray) -> float:
        document_topic, topic_word = np.zeros((docs, K)), np.zeros((K, V))
        np.add.at(document_topic, (d, z), 1)
        np.add.at(topic_word, (z, w.ravel()), 1)
        return partition_evidence(document_topic, alpha) + partition_evidence(topic_word, eta)

    return log_sum(log_joint, K, w.size)


def _edges(k: np.ndarray, m: np.ndarray, y: np.ndarray, K: int, a: float, b: float) -> float:
    ones, zeros = np.zeros((K, K)), np.zeros((K, K))
    np.add.at(ones, (k, m), y)
    np.add.at(zeros, (k, m), 1 - y)
    return float(np.sum(betaln(a + ones, b + zeros) - betaln(a, b)))


def blockmodel(i, j, y, nodes: int, K: int, concentration: float, a: float, b: float) -> float:
    """log p(y) of a stochastic blockmodel with Beta(a, b) edge probabilities."""

    def log_joint(z: np.ndarray) -> float:
        weights = partition_evidence(np.bincount(z, minlength=K), concentration)
        return weights + _edges(z[i], z[j], y, K, a, b)

    return log_sum(log_joint, K, nodes)


def mixed_membership(
    i, j, y, nodes: int, K: int, concentration: float, a: float, b: float
) -> float:
    """log p(y) of a mixed-membership blockmodel with Beta(a, b) edge probabilities."""
    pairs = len(y)

    def log_joint(c: np.ndarray) -> float:
        send, receive = c[:pairs], c[pairs:]
        memberships = np.zeros((nodes, K))
        np.add.at(memberships, (i, send), 1)
        np.add.at(memberships, (j, receive), 1)
        weights = partition_evidence(memberships, concentration)
        return weights + _edges(send, receive, y, K, a, b)

    return log_sum(log_joint, K, 2 * pairs)
