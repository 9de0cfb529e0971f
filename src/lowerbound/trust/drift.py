"""Short chains that start at draws of q: where they go is where the posterior is.

Many chains of Hamiltonian Monte Carlo at once. What their means and sds have moved by is a lower
bound on the error of q (TADDAA: Izzatullah, Yao, Huggins et al. 2023), and near the error itself
once they have forgotten where they began. They would take long to forget it in the coordinates
where q is standard: q may be narrow just where factors that it keeps apart hang together. So the
coordinates are stretched by the curvature of log p about the mean of q. The steps are taken on the
host: log p and its gradient are compiled already, and nothing else is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lowerbound.methods.chains.leapfrogs import Place, Slopes, trajectory
from lowerbound.methods.chains.units import Units
from lowerbound.result.verdicts import Drawn

CHAINS, TRAJECTORIES = 256, 24
FORGOTTEN = 8  # trajectories after which draws are kept
LENGTH = 1.5  # of a trajectory, where q is standard: a quarter of a turn
STEPS, MOST_STEPS = 6, 12  # in one: about so many, and at most
FEWEST = 32  # chains
ACCEPTED = 0.8  # the share that the step size is set to
APART = 0.5  # sds of q to either side of its mean, at which slopes tell the curvature
FLATTEST, STEEPEST = 0.01, 4.0  # curvature, of q's own, that coordinates are stretched by
SHARE = 0.25  # of the points, that slopes for the curvature may take


@dataclass(frozen=True, eq=False)
class Drifted:
    """Draws that chains came to, (N, d), and the share of proposals that they took."""

    vectors: np.ndarray
    chains: int
    accepted: float


def drifted(density: Slopes, drawn: Drawn, points: int, seed: int = 0) -> Drifted | None:
    """Where chains from the draws of q are after some trajectories.

    `density` gives log p and its gradient at rows, of about so many `points` in all; None where
    they are too few.
    """
    fine = np.isfinite(drawn.log_p) & np.isfinite(drawn.gradients).all(axis=1)
    chains = min(CHAINS, int(fine.sum()), points // (TRAJECTORIES * STEPS))
    if chains < FEWEST:
        return None
    rng = np.random.default_rng(seed)
    vectors, chosen = drawn.vectors[fine], np.flatnonzero(fine)[:chains]
    units = Units.of(vectors)
    if 2 * vectors.shape[1] <= SHARE * points and units.root.ndim == 2:
        units = _stretched(density, units)
    place = Place(drawn.vectors[chosen], drawn.log_p[chosen], drawn.gradients[chosen])
    size = 0.8 / vectors.shape[1] ** 0.25
    kept: list[np.ndarray] = []
    taken: list[float] = []
    for number in range(TRAJECTORIES):
        steps = max(1, min(MOST_STEPS, round(LENGTH * rng.uniform(0.7, 1.3) / size)))
        place, chances, _ = trajectory(density, place, units, size, steps, rng)
        share = float(chances.mean())
        if number < FORGOTTEN:
            size *= math.exp(1.2 * (share - ACCEPTED))
        else:
            kept.append(place.u)
            taken.append(share)
    return Drifted(np.concatenate(kept), chains, float(np.mean(taken)))


def _stretched(density: Slopes, units: Units) -> Units:
    """The units, wider where log p is flatter than q and narrower where it is steeper."""
    loc, root = units
    around = APART * root.T
    slopes = density(np.concatenate([loc + around, loc - around]))[1] @ root
    steps = len(root)
    curvature = (slopes[steps:] - slopes[:steps]) / (2.0 * APART)
    if not np.isfinite(curvature).all():
        return units
    values, axes = np.linalg.eigh(0.5 * (curvature + curvature.T))
    return Units(loc, root @ (axes / np.sqrt(np.clip(values, FLATTEST, STEEPEST))))
