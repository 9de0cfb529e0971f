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
    assert count == 2 * (count // 2) > 2 * dimension, (count, dimension)
    normal = _white(_sobol(count // 2, dimension, seed))
    draws = np.concatenate([normal, -normal])
    draws.setflags(write=False)
    return draws


@lru_cache(maxsize=8)
def block_draws(count: int, dimension: int, block: int, seed: int) -> np.ndarray:
    """The same for a Gaussian of independent blocks of entries: each block is white by itself.

    `count` is even and more than twice the size of a block; it need not grow with the dimension.
    """
    assert count == 2 * (count // 2) > 2 * block, (count, block)
    normal = _sobol(count // 2, dimension, seed).reshape(count // 2, dimension // block, block)
    second = np.einsum("srk,srl->rkl", normal, normal) / len(normal)
    values, vectors = np.linalg.eigh(second)
    white = np.einsum("rij,rj,rkj->rik", vectors, 1.0 / np.sqrt(values), vectors)
    normal = np.einsum("srk,rkl->srl", normal, white).reshape(count // 2, dimension)
    draws = np.concatenate([normal, -normal])
    draws.setflags(write=False)
    return draws


def _sobol(half: int, dimension: int, seed: int) -> np.ndarray:
    """Scrambled Sobol points as normal numbers; plain random ones where the sequence ends."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    rng = np.random.default_rng(seed)
    if dimension > qmc.Sobol.MAXDIM:
        return rng.standard_normal((half, dimension))
    bits = max(half - 1, 1).bit_length()
    points = qmc.Sobol(dimension, scramble=True, seed=rng).random_base2(bits)[:half]
    normal: np.ndarray = ndtri(np.clip(points, 1e-15, 1 - 1e-15))
    return normal


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


def draw_seed(seed: int, stage: int) -> int:
    """The seed of the draws of one stage of a fit."""
    return int(np.random.SeedSequence([abs(int(seed)), stage]).generate_state(1)[0])
