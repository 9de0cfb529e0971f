"""Draws of given shapes with given correlations, by putting each column into another order."""

from __future__ import annotations

import numpy as np


def reordered(columns: np.ndarray, correlation: np.ndarray, seed: int) -> np.ndarray:
    """The columns (S, d), each in another order, so that they have these correlations.

    The order is that of a Gaussian of these correlations (Iman and Conover 1982): a Gaussian copula
    with the columns as its marginals.

    >>> rng = np.random.default_rng(0)
    >>> wanted = np.array([[1.0, 0.9], [0.9, 1.0]])
    >>> found = reordered(rng.normal(size=(4000, 2)), wanted, 0)
    >>> np.allclose(np.corrcoef(found.T), wanted, atol=0.01)
    True
    """
    count, size = columns.shape
    normal: np.ndarray = np.random.default_rng(seed).standard_normal((count, size))
    normal -= normal.mean(axis=0)
    if count > 2 * size:  # exactly uncorrelated, so that correlations by chance are not added
        normal = np.linalg.solve(np.linalg.cholesky(normal.T @ normal / count), normal.T).T
    normal = normal @ np.linalg.cholesky(correlation).T
    ranks = np.argsort(np.argsort(normal, axis=0), axis=0)
    return np.take_along_axis(np.sort(columns, axis=0), ranks, axis=0)
