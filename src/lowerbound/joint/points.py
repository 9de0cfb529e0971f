"""Points at which a derivation is compared with the program: random values of every site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lowerbound.joint.derive import Latent
from lowerbound.joint.multiaffine import Joint

# By how much the positive sites of one point after another are moved, in logarithms: a function of
# a scale may underflow, or overflow, at all scales but the smallest, or the largest.
MOVED = (0.0, 0.0, -1.5, 1.5, -3.0, 3.0, -0.75, 0.75, -5.0, 5.0)


def random_point(
    latent: Latent,
    rng: np.random.Generator,
    extras: Mapping[str, np.ndarray],
    moved: float = 0.0,
) -> np.ndarray:
    """A random point of a latent site's support, inside what the data allow.

    Values of a discrete site are given by their number; `moved` moves the log of positive ones.
    """
    shape = latent.shape
    match latent.domain:
        case "positive" | "polya_gamma" | "inverse_gaussian":
            return np.exp(moved + rng.normal(size=shape))
        case "unit":
            return rng.uniform(0.05, 0.95, size=shape)
        case "interval":
            return _between(latent.lower, latent.upper, rng, shape)
        case "simplex":
            return rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])
        case "matrix":
            root = rng.normal(size=shape)
            return root @ np.swapaxes(root, -1, -2) + np.eye(shape[-1])
        case "discrete":
            return rng.integers(len(np.asarray(latent.support_values)), size=shape)
        case "count" if "total" in extras:
            axis = next(a for a in range(len(shape)) if _without(shape, a) == extras["total"].shape)
            share = np.full(shape[axis], 1.0 / shape[axis])
            return np.moveaxis(rng.multinomial(extras["total"].astype(int), share), -1, axis) * 1.0
        case "count":
            return rng.poisson(2.0, size=shape) * 1.0
        case _ if "lower" in extras:
            away = np.abs(rng.normal(size=shape)) + 0.01
            above = np.isfinite(extras["lower"])
            return np.where(above, extras["lower"] + away, extras["upper"] - away)
    return rng.normal(size=shape)


def _between(
    lower: float, upper: float, rng: np.random.Generator, shape: tuple[int, ...]
) -> np.ndarray:
    if np.isfinite(lower) and np.isfinite(upper):
        return lower + (upper - lower) * rng.uniform(0.05, 0.95, size=shape)
    away = np.exp(rng.normal(size=shape))
    return lower + away if np.isfinite(lower) else upper - away


def _without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def extras_of(joint: Joint, data: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    """What the data say about the supports of latent sites, by site."""
    restricted = [block for block in joint.blocks if block.extras and block.kind != "free"]
    if not restricted:
        return {}
    arrays = joint.compress(data)
    return {
        site: {name: np.asarray(arrays[slot]) for name, slot in block.extras.items()}
        for block in restricted
        for site in block.sites
    }
