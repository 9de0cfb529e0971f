"""Draws of a standard normal vector that are kept fixed while a bound is maximised."""

from __future__ import annotations

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=32)
def normal_draws(count: int, dimension: int, seed: int) -> np.ndarray:
    """Quasi-Monte Carlo draws e of N(0, I), whitened: their mean is 0 and their covariance I.

    Scrambled Sobol points, in antithetic pairs: with whitening, averages of every polynomial of
    degree two or three are exact. `count` is even and more than twice the dimension.
    """
    from scipy.special import ndtri
    from scipy.stats import qmc

    half = count // 2
    assert count == 2 * half > 2 * dimension, (count, dimension)
    rng = np.random.default_rng(seed)
    bits = max(half - 1, 1).bit_length()
    points = qmc.Sobol(dimension, scramble=True, seed=rng).random_base2(bits)[:half]
    normal = ndtri(np.clip(points, 1e-15, 1 - 1e-15))
    normal = _white(normal)
    draws = np.concatenate([normal, -normal])
    draws.setflags(write=False)
    return draws


@lru_cache(maxsize=32)
def cubature(dimension: int, seed: int) -> np.ndarray:
    """The 2d points of the spherical rule of degree three, +-sqrt(d) along random axes."""
    rng = np.random.default_rng(seed)
    axes, triangle = np.linalg.qr(rng.standard_normal((dimension, dimension)))
    axes = np.sqrt(dimension) * axes * np.sign(np.diag(triangle))
    points = np.concatenate([axes, -axes])
    points.setflags(write=False)
    return points


def _white(normal: np.ndarray) -> np.ndarray:
    """The rows with second moment I exactly, moved as little as that takes."""
    values, vectors = np.linalg.eigh(normal.T @ normal / len(normal))
    white: np.ndarray = normal @ ((vectors / np.sqrt(values)) @ vectors.T)
    return white
