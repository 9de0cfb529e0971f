"""Short chains that start at draws of q: where they go is where the posterior is.

Many chains of Hamiltonian Monte Carlo at once, in the coordinates where q is standard. What their
means and sds have moved by is a lower bound on the error of q (TADDAA: Izzatullah, Yao, Huggins et
al. 2023), and near the error itself once they have forgotten where they began. The steps are taken
on the host: log p and its gradient are compiled already, and nothing else is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lowerbound.result.verdicts import Drawn

CHAINS, TRAJECTORIES = 256, 24
FORGOTTEN = 8  # trajectories after which draws are kept
LENGTH = 1.5  # of a trajectory, where q is standard: a quarter of a turn
STEPS, MOST_STEPS = 6, 12  # in one: about so many, and at most
FEWEST = 32  # chains
ACCEPTED = 0.8  # the share that the step size is set to
DRAWS_PER_NUMBER = 3  # for a full metric

Density = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Drifted:
    """Draws that chains came to, (N, d), and the share of proposals that they took."""

    vectors: np.ndarray
    chains: int
    accepted: float


def drifted(density: Density, drawn: Drawn, points: int, seed: int = 0) -> Drifted | None:
    """Where chains from the draws of q are after some trajectories.

    `density` gives log p and its gradient at rows, of about so many `points` in all; None where
    they are too few.
    """
    fine = np.isfinite(drawn.log_p) & np.isfinite(drawn.gradients).all(axis=1)
    chains = min(CHAINS, int(fine.sum()), points // (TRAJECTORIES * STEPS))
    if chains < FEWEST:
        return None
    rng = np.random.default_rng(seed)
    scaled, back = _standard(drawn.vectors[fine])
    chosen = np.flatnonzero(fine)[:chains]
    u, log_p = drawn.vectors[chosen], drawn.log_p[chosen]
    gradient = scaled(drawn.gradients[chosen])
    count, dimension = u.shape
    size = 0.8 / dimension**0.25
    kept: list[np.ndarray] = []
    taken: list[float] = []
    for number in range(TRAJECTORIES):
        momentum = rng.standard_normal((count, dimension))
        steps = max(1, min(MOST_STEPS, round(LENGTH * rng.uniform(0.7, 1.3) / size)))
        before = log_p - 0.5 * (momentum**2).sum(axis=1)
        new, new_gradient, new_log_p = u, gradient, log_p
        p = momentum
        for _ in range(steps):
            p = p + 0.5 * size * new_gradient
            new = new + size * back(p)
            new_log_p, slope = density(new)
            new_gradient = scaled(slope)
            p = p + 0.5 * size * new_gradient
        after = new_log_p - 0.5 * (p**2).sum(axis=1)
        after = np.where(np.isfinite(after) & np.isfinite(new_gradient).all(axis=1), after, -np.inf)
        accept = np.log(rng.uniform(size=count)) < after - before
        u = np.where(accept[:, None], new, u)
        gradient = np.where(accept[:, None], new_gradient, gradient)
        log_p = np.where(accept, new_log_p, log_p)
        share = float(np.minimum(1.0, np.exp(np.minimum(after - before, 0.0))).mean())
        if number < FORGOTTEN:
            size *= math.exp(1.2 * (share - ACCEPTED))
        else:
            kept.append(u)
            taken.append(share)
    return Drifted(np.concatenate(kept), count, float(np.mean(taken)))


def _standard(
    vectors: np.ndarray,
) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]:
    """The maps of gradients into, and of steps out of, the coordinates where q is standard."""
    count, dimension = vectors.shape
    sds = vectors.std(axis=0)
    if count >= DRAWS_PER_NUMBER * dimension:
        try:
            root = np.linalg.cholesky(np.atleast_2d(np.cov(vectors.T)))
            return lambda g: g @ root, lambda p: p @ root.T
        except np.linalg.LinAlgError:
            pass
    return lambda g: g * sds, lambda p: p * sds
