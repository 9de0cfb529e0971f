"""Numbers on the scales of their sites: where means and sds are read, and are put right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowerbound.family.densities.unconstrained import elementwise, is_identity
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.rewrite.warped import warp_name, warp_of

STEPS = 60
CLOSE = 1e-8  # relative errors of mean and sd
LONGEST = 1.0  # step of a log sd, or of a mean in sds

Map = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class OwnScales:
    """w(u): the sites' own numbers where each is a function of one u, u itself elsewhere."""

    parts: tuple[tuple[slice, Map], ...]

    @classmethod
    def of(cls, coordinates: Coordinates, data: Mapping[str, Any]) -> OwnScales:
        """Read the supports, and the tables of warped sites among the data."""
        parts = []
        flat = {warp_name(n): np.asarray(warp_of(n, data)) for n in coordinates.warped}
        flat = {n: table.reshape(-1, *table.shape[-2:]) for n, table in flat.items()}
        for site in coordinates.shapes:
            transform = None
            if site not in coordinates.noncentred:
                transform = coordinates.transform(site, flat)
            single = None if transform is None else elementwise(transform)
            if single is not None and not is_identity(single):
                parts.append((coordinates.part(site), single))
        return cls(tuple(parts))

    def __call__(self, vectors: Any) -> Any:
        """The numbers w of rows u; both are arrays of JAX, or of NumPy."""
        if isinstance(vectors, np.ndarray):
            found = vectors.copy()
            for part, single in self.parts:
                found[..., part] = np.asarray(single(vectors[..., part]))
            return found
        for part, single in self.parts:
            vectors = vectors.at[..., part].set(single(vectors[..., part]))
        return vectors

    def matched(
        self,
        unit: np.ndarray,
        weights: np.ndarray,
        first: np.ndarray,
        mean: np.ndarray,
        sd: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Levels a and widths b of u = a + b e for which w has these means and sds.

        unit: e (S, d), of mean 0 and variance 1 under the weights (S,). first: a to start from.
        Where no a and b do, they are those of w as it is near the level.
        """
        level, width = mean.copy(), sd.copy()
        for part, single in self.parts:
            goal = _Goal(single, unit[:, part], weights, mean[part], sd[part])
            level[part], width[part] = goal.met_from(first[part])
        return level, width


@dataclass(frozen=True, eq=False)
class _Goal:
    """Means and sds that w is to have."""

    single: Map
    unit: np.ndarray
    weights: np.ndarray
    mean: np.ndarray
    sd: np.ndarray

    def errors(self, a: np.ndarray, log_b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of the mean in sds, and of the log of the sd."""
        values = np.asarray(self.single(a + np.exp(log_b) * self.unit), float)
        centre = self.weights @ values
        spread = np.sqrt(self.weights @ np.square(values - centre))
        return (centre - self.mean) / self.sd, np.log(spread / self.sd)

    def met_from(self, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Newton's steps in (a, log b) for the mean and the log of the sd."""
        single, errors = self.single, self.errors
        h = 1e-5
        slope = (np.asarray(single(first + h)) - np.asarray(single(first - h))) / (2 * h)
        start = np.log(np.maximum(self.sd / np.abs(slope), 1e-300))
        a, log_b = first.copy(), start.copy()
        with np.errstate(all="ignore"):
            for _ in range(STEPS):
                shift, spread = errors(a, log_b)
                if max(np.abs(shift).max(initial=0), np.abs(spread).max(initial=0)) < CLOSE:
                    break
                b = np.exp(log_b)
                by_a = [
                    (p - q) / (2 * h)
                    for p, q in zip(errors(a + h * b, log_b), errors(a - h * b, log_b), strict=True)
                ]
                by_b = [
                    (p - q) / (2 * h)
                    for p, q in zip(errors(a, log_b + h), errors(a, log_b - h), strict=True)
                ]
                volume = by_a[0] * by_b[1] - by_a[1] * by_b[0]
                move = -(by_b[1] * shift - by_b[0] * spread) / volume
                widen = -(by_a[0] * spread - by_a[1] * shift) / volume
                longest = np.maximum(np.maximum(np.abs(move), np.abs(widen)) / LONGEST, 1.0)
                a, log_b = a + move * b / longest, log_b + widen / longest
            shift, spread = errors(a, log_b)
            fine = (np.abs(shift) < 1e-3) & (np.abs(spread) < 1e-3)
        return np.where(fine, a, first), np.exp(np.where(fine, log_b, start))
