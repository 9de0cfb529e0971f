"""The Dirichlet priors of documents and topics, and how to learn them from a fit.

Both are learned by maximising the same bound that the topics maximise, as functions of the prior
alone (Minka 2000, "Estimating a Dirichlet distribution").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.special import digamma, gammaln, polygamma

from lowerbound.topics.inference_steps import Rule

STEPS: Final = 100
DOCUMENTS: Final = 10_000  # that a prior is learned from, at most
SMALLEST: Final = 1e-4  # below, a prior of 16 bits of float is as good as none
LARGEST: Final = 1e3


@dataclass(frozen=True, eq=False)
class Priors:
    """theta_d ~ Dirichlet(document), beta_k ~ Dirichlet(topic)."""

    document: np.ndarray  # alpha (K,)
    topic: np.ndarray  # eta (1,) when all words share it, else (V,)

    def learned(
        self, rule: Rule, gamma: np.ndarray, topics: np.ndarray, *, document: bool, topic: bool
    ) -> Priors:
        """The priors that maximise the bound of some documents (gamma) and of the topics.

        Of the topics' prior, the common height of its elements is learned, not their shape.
        """
        new = self
        if document and len(gamma):
            gamma = gamma[:: -(-len(gamma) // DOCUMENTS)]
            new = replace(new, document=learn_document_prior(rule, gamma, self.document))
        if topic:
            new = replace(new, topic=self.topic * learn_topic_scale(rule, topics, self.topic))
        return new


def learn_document_prior(rule: Rule, gamma: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Alpha (K,) from q(theta_d) = Dirichlet(gamma_d), one row a document.

    Mean field: argmax of sum_d E_q[log p(theta_d | alpha)]. Collapsed: argmax of
    sum_d log p(counts N_d = gamma_d - alpha | alpha), by Minka's fixed point.
    """
    if rule == "mean field":
        totals = digamma(gamma.sum(axis=1))
        return from_mean_log((digamma(gamma) - totals[:, None]).mean(axis=0), prior)
    counts = np.maximum(gamma - prior, 0.0)
    return from_counts(counts, prior)


def learn_topic_scale(rule: Rule, topics: np.ndarray, prior: np.ndarray) -> float:
    """By what to multiply eta, given lambda (V, K)."""
    V = len(topics)
    eta = np.broadcast_to(prior, V)
    shape = eta / eta.sum()
    total = eta.sum()
    if rule == "mean field":
        logs = digamma(topics) - digamma(topics.sum(axis=0))
        target = float(shape @ logs.mean(axis=1))
        # psi(s) - sum_w shape_w psi(s shape_w) + target = 0 in log s
        for _ in range(STEPS):
            value = digamma(total) - shape @ digamma(total * shape) + target
            slope = polygamma(1, total) - (shape**2) @ polygamma(1, total * shape)
            move = np.clip(-value / (slope * total), -1.0, 1.0)
            total *= np.exp(move)
            if abs(move) < 1e-10:
                break
    else:
        counts = np.maximum(topics - eta[:, None], 0.0)
        sums = counts.sum(axis=0)
        for _ in range(STEPS):
            own = total * shape
            rises = digamma_rise(counts, own[:, None])
            top = float((rises * shape[:, None]).sum())
            down = (digamma(sums + total) - digamma(total)).sum()
            old, total = total, total * top / down
            if abs(np.log(total / old)) < 1e-3:
                break
    total = float(np.clip(total, SMALLEST * V, LARGEST * V))
    return total / float(eta.sum())


def dirichlet_divergence(parameters: np.ndarray, prior: np.ndarray) -> float:
    """KL(Dirichlet(row) || Dirichlet(prior)) in nats, summed over the rows (N, K)."""
    totals = parameters.sum(axis=1)
    logs = digamma(parameters) - digamma(totals)[:, None]
    own = gammaln(totals).sum() - gammaln(parameters).sum()
    given = len(parameters) * (gammaln(prior.sum()) - gammaln(prior).sum())
    return float(own - given + ((parameters - prior) * logs).sum())


def from_mean_log(target: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The Dirichlet whose E[log theta] is `target`, by Newton's method in O(K) a step.

    The gradient g_k = psi(sum alpha) - psi(alpha_k) + target_k has a Hessian that is diagonal plus
    rank one.
    """
    alpha = np.array(start, float)
    for _ in range(STEPS):
        gradient = digamma(alpha.sum()) - digamma(alpha) + target
        diagonal = -polygamma(1, alpha)
        corner = polygamma(1, alpha.sum())
        shift = (gradient / diagonal).sum() / (1 / corner + (1 / diagonal).sum())
        move = (gradient - shift) / diagonal
        step = 1.0
        while np.any(alpha - step * move <= 0):
            step /= 2
        alpha = alpha - step * move
        if np.abs(step * move).max() < 1e-10 * alpha.max():
            break
    return np.asarray(np.clip(alpha, SMALLEST, LARGEST))


def digamma_rise(counts: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """E[psi(N + prior)] - psi(prior), where N is whole and its mean is given.

    Expected counts are fractions, but what they are the means of is not: psi at the mean of a count
    that is mostly zero is far from the mean of psi, and makes a prior grow without end. N is taken
    to be one of the two whole numbers beside its mean, and psi(x + 1) = psi(x) + 1/x.
    """
    low = np.floor(counts)
    return np.asarray(digamma(low + prior) + (counts - low) / (low + prior) - digamma(prior))


def from_counts(counts: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The Dirichlet that makes multinomial counts (D, K) most probable, by Minka's fixed point."""
    alpha = np.array(start, float)
    lengths = counts.sum(axis=1)
    if not lengths.any():
        return alpha
    for _ in range(STEPS):
        down = (digamma(lengths + alpha.sum()) - digamma(alpha.sum())).sum()
        new = alpha * digamma_rise(counts, alpha).sum(axis=0) / down
        new = np.clip(new, SMALLEST, LARGEST)
        moved = np.abs(np.log(new / alpha)).max()
        alpha = new
        if moved < 1e-3:
            break
    return alpha
