"""Gaussians of u as NumPy sees them: root of the covariance, draws, log density.

For the few draws that a fit is judged by nothing is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

MOST = 200  # numbers of a Gaussian of low rank whose covariance is factored


def root_of(parameters: Mapping[str, Any]) -> np.ndarray | None:
    """A root of the covariance: (d, d), or (d,) where it is diagonal.

    None of precisions, of rows by themselves, and of large covariances of low rank.
    """
    if "scale_tril" in parameters:
        return np.asarray(parameters["scale_tril"], float)
    if "scale" not in parameters:
        return None
    scale = np.asarray(parameters["scale"], float)
    if "factor" not in parameters:
        return scale
    if len(scale) > MOST:
        return None
    factor = np.asarray(parameters["factor"], float)
    root: np.ndarray = np.linalg.cholesky(np.diag(scale**2) + factor @ factor.T)
    return root


def draws_of(
    parameters: Mapping[str, Any], seed: int, count: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Draws of u, one per row, and log q at each; None where the root is not known."""
    root, loc = root_of(parameters), np.asarray(parameters["loc"], float)
    if root is None:
        return None
    noise = np.random.default_rng(seed).standard_normal((count, len(loc)))
    wide = np.abs(root if root.ndim == 1 else np.diagonal(root))
    constant = 0.5 * len(loc) * math.log(2 * math.pi) + np.log(wide).sum()
    log_q: np.ndarray = -0.5 * (noise**2).sum(axis=1) - constant
    return loc + (noise * root if root.ndim == 1 else noise @ root.T), log_q
