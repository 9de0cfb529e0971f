"""Ranks of what generated the data among draws of q, and whether they are uniform.

With L independent draws of the posterior the rank is uniform on 0..L (Talts et al. 2018); ties, as
discrete sites have them, are broken at random, and u = (rank + U) / (L + 1) is uniform on (0, 1)
exactly. So z = Phi^-1(u) is standard normal: its mean tests symmetry, which is bias (Yao et al.
2018), its variance dispersion, and the Kolmogorov-Smirnov distance of u every other shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

INTERVALS = (0.5, 0.8, 0.95)


def uniform_ranks(truth: np.ndarray, draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The ranks u of every element: of a truth (...) among draws (L, ...).

    >>> u = uniform_ranks(np.array(0.5), np.arange(4.0), np.random.default_rng(0))  # rank 1 of 0..4
    >>> bool(0.2 < u < 0.4)
    True
    """
    below, equal = (draws < truth).sum(axis=0), (draws == truth).sum(axis=0)
    rank = below + rng.integers(0, equal + 1)
    found: np.ndarray = (rank + rng.uniform(size=rank.shape)) / (len(draws) + 1)
    return found


@dataclass(frozen=True)
class Quantity:
    """What the ranks of one number say of q, on average over data sets.

    shift: how far the mean of q is off, in sds of the posterior; above 0 it is too high. ratio: the
    sd of q over that of the posterior. Both as if the two were Gaussian, with standard errors.
    coverage: of the central intervals of q, the share that holds the truth. bias, dispersion,
    shape: p-values of a mean of z that is not 0, a variance that is not 1, and any other law.
    wrong: what is rejected, where something is.
    """

    name: str
    shift: float
    shift_error: float
    ratio: float
    ratio_error: float
    coverage: dict[float, float]
    bias: float
    dispersion: float
    shape: float
    wrong: tuple[str, ...] = ()

    @property
    def smallest(self) -> float:
        """The smallest p-value."""
        return min(self.bias, self.dispersion, self.shape)


def quantity(name: str, u: np.ndarray) -> Quantity:
    """What uniform ranks (simulations,) say."""
    from scipy import stats

    count = len(u)
    z = stats.norm.ppf(u)
    mean, variance = float(z.mean()), float(z.var(ddof=1))
    tail = float(stats.chi2.cdf((count - 1) * variance, count - 1))
    ratio = 1 / math.sqrt(variance) if variance > 0 else math.inf
    return Quantity(
        name,
        -mean * ratio,
        ratio / math.sqrt(count),
        ratio,
        ratio / math.sqrt(2 * (count - 1)),
        {level: float((np.abs(u - 0.5) < level / 2).mean()) for level in INTERVALS},
        float(2 * stats.norm.sf(abs(mean) * math.sqrt(count))),
        2 * min(tail, 1 - tail),
        float(stats.kstest(u, "uniform").pvalue),
    )


def rejected(p_values: np.ndarray, level: float) -> np.ndarray:
    """Which tests are rejected so that all of them fail wrongly with the rate `level` (Holm 1979).

    >>> rejected(np.array([0.001, 0.04, 0.9]), 0.05).tolist()
    [True, False, False]
    """
    order = np.argsort(p_values, kind="stable")
    limits = level / (len(p_values) - np.arange(len(p_values)))
    stays = p_values[order] > limits
    count = int(np.argmax(stays)) if stays.any() else len(p_values)
    found = np.zeros(len(p_values), bool)
    found[order[:count]] = True
    return found
