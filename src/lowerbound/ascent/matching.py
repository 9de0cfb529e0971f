"""Batch and match: the Gaussian whose score agrees with that of log p (Cai et al. 2024)."""

from __future__ import annotations

import numpy as np


def matched(
    loc: np.ndarray, root: np.ndarray, vectors: np.ndarray, gradients: np.ndarray, rate: float
) -> tuple[np.ndarray, np.ndarray]:
    """The closed-form step from N(loc, root root') for draws `vectors` and scores `gradients`.

    It minimises the covariance-weighted Fisher divergence over the draws, plus KL to the present
    Gaussian over `rate`: the covariance S solves S U S + S = V. The new root is lower triangular.
    """
    share = rate / (1.0 + rate)
    mean, score = vectors.mean(axis=0), gradients.mean(axis=0)
    around, scatter = vectors - mean, gradients - score
    gap = loc - mean
    U = rate * scatter.T @ scatter / len(vectors) + share * np.outer(score, score)
    V = root @ root.T + rate * around.T @ around / len(vectors) + share * np.outer(gap, gap)
    L = np.linalg.cholesky(V)
    values, vectors_ = np.linalg.eigh(L.T @ U @ L)
    small = 2.0 / (1.0 + np.sqrt(1.0 + 4.0 * np.maximum(values, 0.0)))
    half = L @ (vectors_ * np.sqrt(small))
    covariance = half @ half.T
    new = loc / (1.0 + rate) + share * (covariance @ score + mean)
    return new, np.linalg.cholesky(covariance)
