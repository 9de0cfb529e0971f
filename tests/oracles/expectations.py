"""Moments, entropies and divergences of the families the oracles use, in NumPy float64."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import betaln, digamma, gammaln

LOG_2PI = float(np.log(2 * np.pi))


class Moments(NamedTuple):
    """Posterior mean and standard deviation of a site, elementwise."""

    mean: np.ndarray
    sd: np.ndarray


class Step(NamedTuple):
    """The ELBO after a sweep; by site, the moments, or the probabilities of a discrete site."""

    elbo: float
    sites: Mapping[str, Moments | np.ndarray]


def gamma_moments(a, rate) -> Moments:
    return Moments(a / rate, np.sqrt(a) / rate)


def beta_moments(a, b) -> Moments:
    mean = a / (a + b)
    return Moments(mean, np.sqrt(mean * (1 - mean) / (a + b + 1)))


def dirichlet_moments(concentration) -> Moments:
    total = concentration.sum(-1, keepdims=True)
    return beta_moments(concentration, total - concentration)


def gamma_log(a, rate):
    """E log z of a Gamma."""
    return digamma(a) - np.log(rate)


def dirichlet_log(concentration):
    """E log z of a Dirichlet, last axis."""
    return digamma(concentration) - digamma(concentration.sum(-1, keepdims=True))


def gamma_kl(a, rate, a0, rate0) -> float:
    terms = (
        (a - a0) * digamma(a) - gammaln(a) + gammaln(a0)
        + a0 * (np.log(rate) - np.log(rate0)) + a * (rate0 - rate) / rate
    )  # fmt: skip
    return float(np.sum(terms))


def normal_kl(m, variance, m0, variance0) -> float:
    ratio = variance / variance0
    return float(np.sum(0.5 * (ratio + (m - m0) ** 2 / variance0 - 1 - np.log(ratio))))


def gaussian_kl(m, V, m0, V0) -> float:
    """KL of two multivariate normals given by mean and covariance."""
    P0 = np.linalg.inv(V0)
    quadratic = (m - m0) @ P0 @ (m - m0) + np.trace(P0 @ V) - len(m)
    return float(0.5 * (quadratic + np.linalg.slogdet(V0)[1] - np.linalg.slogdet(V)[1]))


def beta_kl(a, b, a0, b0) -> float:
    log, log1m = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
    return float(np.sum((a - a0) * log + (b - b0) * log1m - betaln(a, b) + betaln(a0, b0)))


def dirichlet_log_normalizer(concentration):
    return gammaln(concentration).sum(-1) - gammaln(concentration.sum(-1))


def dirichlet_kl(concentration, concentration0) -> float:
    concentration0 = np.broadcast_to(concentration0, concentration.shape)
    cross = ((concentration - concentration0) * dirichlet_log(concentration)).sum(-1)
    normalizers = dirichlet_log_normalizer(concentration0) - dirichlet_log_normalizer(concentration)
    return float(np.sum(cross + normalizers))


def categorical_entropy(probs) -> float:
    return float(-np.sum(np.where(probs > 0, probs * np.log(np.maximum(probs, 1e-300)), 0.0)))
