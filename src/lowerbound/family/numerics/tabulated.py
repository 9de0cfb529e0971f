"""Independent scalars whose log densities are linear between equally spaced knots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Tabulated:
    """A density of s in R^k: axis i has knots low_i + step_i j, and no mass beyond them.

    low, step: (k,). log_density: (k, knots), normalised.

    >>> knots = np.linspace(-8.0, 8.0, 513)
    >>> normal = Tabulated.of(knots[:1], knots[1:2] - knots[:1], -0.5 * knots[None] ** 2)
    >>> round(float(normal.quantile(np.array([[0.975]]))[0, 0]), 2)
    1.96
    """

    low: np.ndarray
    step: np.ndarray
    log_density: np.ndarray

    @classmethod
    def of(cls, low: np.ndarray, step: np.ndarray, log_density: np.ndarray) -> Tabulated:
        """From log densities up to constants."""
        log_density = log_density - log_density.max(axis=1, keepdims=True)
        totals = _masses(log_density).sum(axis=1) * step
        return cls(low, step, log_density - np.log(totals)[:, None])

    @property
    def size(self) -> int:
        """The dimension k."""
        return len(self.low)

    def log_prob(self, s: np.ndarray) -> np.ndarray:
        """Log density of the rows of s (m, k); -inf beyond the knots."""
        last = self.log_density.shape[1] - 1
        place = (s - self.low) / self.step
        inside = ((place >= 0) & (place <= last)).all(axis=1)
        cell = np.clip(place.astype(int), 0, last - 1)
        axis = np.arange(self.size)
        left, right = self.log_density[axis, cell], self.log_density[axis, cell + 1]
        each = left + (right - left) * (place - cell)
        return np.where(inside, each.sum(axis=1), -np.inf)

    def quantile(self, uniform: np.ndarray) -> np.ndarray:
        """The place at given probabilities of the axes, (m, k)."""
        found = np.empty_like(uniform)
        for axis, log_density in enumerate(self.log_density):
            masses = _masses(log_density)
            total = np.concatenate([[0.0], np.cumsum(masses)])
            goal = uniform[:, axis] * total[-1]
            cell = np.clip(np.searchsorted(total, goal, side="right") - 1, 0, len(masses) - 1)
            share = (goal - total[cell]) * np.exp(-log_density[cell])
            slope = np.diff(log_density)[cell]
            flat = abs(slope) < 1e-8
            safe = np.where(flat, 1.0, slope)
            within = np.where(flat, share, np.log1p(np.maximum(share * safe, -1 + 1e-15)) / safe)
            found[:, axis] = self.low[axis] + self.step[axis] * (cell + np.clip(within, 0.0, 1.0))
        return found


def _masses(log_density: np.ndarray) -> np.ndarray:
    """The mass between neighbouring knots at unit distance."""
    slope = np.diff(log_density)
    flat = abs(slope) < 1e-8
    safe = np.where(flat, 1.0, slope)
    masses: np.ndarray = np.exp(log_density[..., :-1]) * np.where(
        flat, 1.0 + 0.5 * slope, np.expm1(safe) / safe
    )
    return masses
