"""The evidence from draws of a posterior and of a normal law: bridge sampling.

Meng & Wong 1996, "Simulating ratios of normalizing constants via a simple identity"; the normal law
is that of one half of the draws, and the other half is compared with it.
"""

from __future__ import annotations

import math

import numpy as np

from lowerbound.methods.chains.leapfrogs import Slopes

TURNS, CLOSE = 200, 1e-8
TINY = 1e-300


def log_evidence(
    slopes: Slopes, chains: np.ndarray, values: np.ndarray, effective: float, count: int
) -> tuple[float, float]:
    """The log integral of exp L, and its standard error.

    chains: (c, n, k), and L at them. effective: how many independent draws they are worth. count:
    draws of the normal law at which L is looked at, a multiple of c.
    """
    half = chains.shape[1] // 2
    first, second = chains[:, :half].reshape(-1, chains.shape[2]), chains[:, half:]
    second = second.reshape(-1, chains.shape[2])
    centre = first.mean(axis=0)
    root = np.linalg.cholesky(
        np.cov(first.T).reshape(len(centre), -1) + 1e-12 * np.eye(len(centre))
    )
    rng = np.random.default_rng(0)
    drawn = centre + rng.normal(size=(count, len(centre))) @ root.T
    parts = np.split(drawn, np.arange(len(chains), count, len(chains)))
    at_drawn = np.concatenate([slopes(some)[0] for some in parts])
    at_drawn = np.where(np.isfinite(at_drawn), at_drawn, -math.inf)

    def log_normal(u: np.ndarray) -> np.ndarray:
        inside = np.linalg.solve(root, (u - centre).T)
        volume = float(np.log(np.diag(root)).sum()) + 0.5 * len(centre) * math.log(2.0 * math.pi)
        density: np.ndarray = -0.5 * (inside**2).sum(axis=0) - volume
        return density

    ratios = values[:, half:].ravel() - log_normal(second)
    others = at_drawn - log_normal(drawn)
    share = 0.5 * effective / (0.5 * effective + count)
    found = float(np.median(ratios))
    for _ in range(TURNS):
        above, below = _bridge(ratios, others, found, share)
        move = math.log(max(float(above.mean()), TINY) / max(float(below.mean()), TINY))
        found += move
        if abs(move) < CLOSE:
            break
    above, below = _bridge(ratios, others, found, share)
    spread = above.var() / (above.mean() ** 2 * count)
    spread += below.var() / (below.mean() ** 2 * max(0.5 * effective, 1.0))
    return found, math.sqrt(float(spread))


def _bridge(
    ratios: np.ndarray, others: np.ndarray, found: float, share: float
) -> tuple[np.ndarray, np.ndarray]:
    """What draws of the normal law say of the evidence, over `found`, and those of the posterior.

    Of the optimal bridge 1 / (s p + (1 - s) q) between the two densities.
    """
    drawn, own = (np.exp(np.clip(one - found, -700.0, 300.0)) for one in (others, ratios))
    return drawn / (share * drawn + 1.0 - share), 1.0 / (share * own + 1.0 - share)
