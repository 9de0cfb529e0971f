"""Hyperparameters told relative to others, where the prior of one has the scale of another.

A number t_j of location m and scale e^w, both set by hyperparameters before it, makes a funnel of
their density: the summit is where the scale is zero. If what the data say of t_j is a normal law
around a place a with precision i, then given the others it is normal, too, with

    share k = i e^2w / (1 + i e^2w),  mean m + k (a - m),  sd e^w / sqrt(1 + i e^2w),

and r_j = (t_j - mean) / sd is standard whatever m and w are. For i = 0 that is a site that is not
centred, and for large i nearly one that is (Papaspiliopoulos, Roberts & Skold 2007). m and w are
affine in t.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

EXACT = 1e-7  # relative error of what is taken for affine
SOME = 1e-6  # the least slope that is one
SPREAD = 0.6  # of the standard normals that locations and scales are looked at with


@dataclass(frozen=True, eq=False)
class Relative:
    """The map from r to t (k,): m = levels t + level, w = widths t + width; told i, and place a.

    levels, widths: (k, k), of numbers that come before. Numbers whose widths are all zero are told
    as they are: all that is theirs is zero.
    """

    levels: Any
    level: Any
    widths: Any
    width: Any
    told: Any
    place: Any

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Relative:
        """From arrays by name."""
        return cls(**{one.name: parameters[one.name] for one in fields(cls)})

    def arrays(self) -> dict[str, Any]:
        """All of it by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def members(self) -> np.ndarray:
        """Which numbers are told relative to others."""
        return np.asarray(np.asarray(self.widths).any(axis=1))

    def outward(self, r: Any, depth: int | None = None) -> Any:
        """The numbers t of r (..., k).

        depth: how many numbers lean on each other in a row, where that cannot be seen.
        """
        t = r
        for _ in range(self.depth if depth is None else depth):
            mean, log_sd = self._law(t)
            t = mean + _exp(log_sd) * r
        return t

    def inward(self, t: Any) -> Any:
        """The coordinates r of t (..., k)."""
        mean, log_sd = self._law(t)
        return (t - mean) * _exp(-log_sd)

    def log_volume(self, t: Any) -> Any:
        """Log |dt/dr| at t (..., k)."""
        return self._law(t)[1].sum(axis=-1)

    @cached_property
    def depth(self) -> int:
        """How many numbers lean on each other in a row."""
        leans = np.asarray(self.levels).astype(bool) | np.asarray(self.widths).astype(bool)
        reached, count = leans, 0
        while reached.any():
            reached, count = (reached.astype(int) @ leans) > 0, count + 1
        return count

    def prior(self, t: Any) -> tuple[Any, Any]:
        """The locations m and the log scales w of the priors at t."""
        return t @ self.levels.T + self.level, t @ self.widths.T + self.width

    def variance(self, t: np.ndarray) -> np.ndarray:
        """The variances that prior and data leave at t, given the others."""
        found: np.ndarray = np.exp(2.0 * self._law(t)[1])
        return found

    def _law(self, t: Any) -> tuple[Any, Any]:
        """Means and log sds given the numbers before."""
        level, log_scale = self.prior(t)
        said = self.told * _exp(2.0 * log_scale)
        mean = level + said / (1.0 + said) * (self.place - level)
        return mean, log_scale - 0.5 * _log1p(said)


def _exp(x: Any) -> Any:
    return np.exp(x) if isinstance(x, np.ndarray) else jnp.exp(x)


def _log1p(x: Any) -> Any:
    return np.log1p(x) if isinstance(x, np.ndarray) else jnp.log1p(x)


def relative_of(prior: Callable[[np.ndarray], np.ndarray], before: np.ndarray) -> Relative | None:
    """Read locations and scales off quantiles of the prior; None where no scale is set by others.

    prior: rows of t for rows of standard normals. before: (k,), how many numbers come before the
    site of each number.
    """
    k = len(before)
    rng = np.random.default_rng(4)
    count = 3 * k + 12
    levels, widths = np.zeros((k, k)), np.zeros((k, k))
    level, width = np.zeros(k), np.zeros(k)
    normal = SPREAD * rng.standard_normal((count, k))
    looked_at = [j for j in range(k) if before[j]]
    rows = [_with(normal, j, x) for j in looked_at for x in (0.0, 1.0, -1.0, 0.5)]
    if not rows:
        return None
    seen = prior(np.concatenate(rows)).reshape(len(looked_at), 4, count, k)
    for j, (middle, up, down, half) in zip(looked_at, seen, strict=True):
        known = middle[:, : before[j]]
        scale = up[:, j] - middle[:, j]
        with np.errstate(all="ignore"):
            shape = np.stack([one[:, j] - middle[:, j] for one in (down, half)]) / scale
        if not (
            np.isfinite(shape).all() and (scale > 0).all() and np.ptp(shape, axis=1).max() < EXACT
        ):
            continue
        by_level, by_width = _affine(known, middle[:, j]), _affine(known, np.log(scale))
        if by_level is None or by_width is None or not abs(by_width[:-1]).max() > SOME:
            continue
        levels[j, : before[j]], level[j] = by_level[:-1], by_level[-1]
        widths[j, : before[j]], width[j] = by_width[:-1], by_width[-1]
    if not widths.any():
        return None
    return Relative(levels, level, widths, width, np.zeros(k), np.zeros(k))


def _with(normal: np.ndarray, number: int, value: float) -> np.ndarray:
    found = normal.copy()
    found[:, number] = value
    return found


def _affine(known: np.ndarray, values: np.ndarray) -> np.ndarray | None:
    """Slopes and a constant by which values follow from what is known; None where they do not."""
    if not (np.isfinite(known).all() and np.isfinite(values).all()):
        return None
    design = np.concatenate([known, np.ones((len(known), 1))], axis=1)
    found: np.ndarray = np.linalg.lstsq(design, values, rcond=None)[0]
    if abs(design @ found - values).max() > EXACT * (1.0 + abs(values).max()):
        return None
    found[:-1] = np.where(abs(found[:-1]) > SOME, found[:-1], 0.0)
    return found
