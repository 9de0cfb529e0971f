"""Weighted draws that stand for the posterior."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lowerbound.family.numerics.pareto import smoothed_weights

EVEN = 0.8  # effective size over number from which the weights of q tell
NEARLY = 0.7  # the same, where the weights have a variance
FEWEST = 100  # effective draws that estimates need
HEAVY = 0.7  # k-hat above which weights tell nothing (Vehtari et al. 2024)
FINITE = 0.5  # k-hat below which they have a variance

Values = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Weighted:
    """Weighted draws that stand for the posterior."""

    values: Values
    vectors: np.ndarray
    log_weights: np.ndarray  # smoothed, summing to one
    log_ratios: np.ndarray  # as they are
    k_hat: float
    log_mean: float  # log of the average of the raw weights: the importance-weighted bound
    log_mean_error: float = 0.0
    made: int = 0  # draws, those without a density included

    @property
    def size(self) -> float:
        """The effective number of draws."""
        return float(1.0 / np.exp(2 * self.log_weights).sum())

    @property
    def tells(self) -> bool:
        """Whether averages over the draws are near those of the posterior."""
        return self.k_hat < HEAVY and self.size >= FEWEST

    @property
    def even(self) -> bool:
        """Whether the weights are so even that those of q tell, without draws of another law."""
        least = NEARLY if self.k_hat < FINITE else EVEN
        return self.tells and self.size >= least * self.made


def weighted(values: Values, vectors: np.ndarray, log_ratios: np.ndarray) -> Weighted:
    """Draws of any density with log p less that density, which may be -inf or no number."""
    fine = np.isfinite(log_ratios)
    kept = {name: array[fine] for name, array in values.items()}
    if not fine.any():
        return Weighted(kept, vectors[fine], np.zeros(0), np.zeros(0), math.inf, -math.inf)
    ratios, made = log_ratios[fine], len(log_ratios)
    top = ratios.max()
    raw = np.exp(ratios - top)
    log_mean = float(top + np.log(raw.sum() / made))
    error = math.sqrt(max(float((raw**2).sum() / raw.sum() ** 2) - 1.0 / made, 0.0))
    log_weights, k_hat = smoothed_weights(ratios)
    return Weighted(kept, vectors[fine], log_weights, ratios, k_hat, log_mean, error, made)


def together(one: Weighted, other: Weighted) -> Weighted:
    """The draws of two densities of one posterior: the weights of both have the same mean."""
    values = {n: np.concatenate([a, other.values[n]]) for n, a in one.values.items()}
    absent = one.made + other.made - len(one.log_ratios) - len(other.log_ratios)
    ratios = np.concatenate([one.log_ratios, other.log_ratios, np.full(absent, -np.inf)])
    vectors = np.concatenate([one.vectors, other.vectors])
    rows = np.concatenate([np.arange(len(vectors)), np.zeros(absent, int)])
    return weighted({n: a[rows] for n, a in values.items()}, vectors[rows], ratios)
