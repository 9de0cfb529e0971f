"""Fixed draws of a standard normal vector of many dimensions, fewer than its entries."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

_SOBOL_BELOW = 21_000  # dimensions that SciPy has Sobol numbers for


@lru_cache(maxsize=8)
def many_draws(count: int, dimension: int, seed: int) -> np.ndarray:
    """Quasi-Monte Carlo draws of N(0, I) in pairs e, -e, each entry with second moment 1.

    The last entries, where the globals are, have the best of the Sobol numbers. Draw 2i + 1 is the
    negative of draw 2i, so that a run of draws of even length has mean 0.
    """
    from scipy.special import ndtri
    from scipy.stats import qmc

    rng = np.random.default_rng(seed)
    half = max(count // 2, 1)
    if dimension <= _SOBOL_BELOW:
        bits = max(half - 1, 0).bit_length()
        points = qmc.Sobol(dimension, scramble=True, seed=rng).random_base2(bits)[:half]
        normal = ndtri(np.clip(points[:, ::-1], 1e-15, 1 - 1e-15))
    else:
        normal = rng.standard_normal((half, dimension))
    normal /= np.sqrt(np.mean(normal**2, axis=0))
    draws = np.stack([normal, -normal], axis=1).reshape(2 * half, dimension)
    draws.setflags(write=False)
    return draws
