"""Importance resampling: draws of q, weighted by p / q (Vehtari et al. 2024)."""

from __future__ import annotations

import math

import numpy as np

from lowerbound.check.against import Against
from lowerbound.check.corrections.improved import Improved
from lowerbound.errors import FewWeightsError
from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.family.numerics.pareto import smoothed_weights

FEWEST = 100  # finite weights, and effective draws below which moments are noise


def threshold(draws: int) -> float:
    """The k-hat above which so many draws are too few: min(1 - 1 / log10(S), 0.7).

    >>> threshold(100), threshold(1000)
    (0.5, 0.6666666666666667)
    """
    return min(1.0 - 1.0 / math.log10(draws), 0.7)


def resampled(view: Against, draws: int, seed: int) -> Improved:
    """Draws of q with Pareto smoothed weights; the bound is the importance-weighted one."""
    drawn = view.drawn(draws, seed)
    ratios = drawn.log_ratios
    fine = np.isfinite(ratios)  # a draw that the model excludes weighs nothing
    if fine.sum() < FEWEST:
        raise FewWeightsError(int(fine.sum()), draws, FEWEST)
    raw = ratios[fine]
    log_weights, k_hat = smoothed_weights(raw)
    weights = np.exp(log_weights)
    size = float(1.0 / np.square(weights).sum())
    relative = np.exp(raw - raw.max())
    elbo = float(raw.max() + np.log(relative.sum() / draws))
    error = float(np.sqrt(max(np.square(relative).sum() / relative.sum() ** 2 - 1.0 / draws, 0.0)))
    every = view.values(drawn.vectors)
    values = {name: array[fine] for name, array in every.items()}
    most = threshold(draws)
    flaw = ""
    if k_hat > most:
        flaw = f"Pareto k-hat {k_hat:.2f} is above {most:.2f}, the most for {draws:,} draws"
    elif size < FEWEST:
        flaw = f"the weights of {draws:,} draws are worth {size:.0f} draws of equal weight"
    return Improved(
        WeightedDraws(),
        {"values": values, "weights": weights},
        f"{draws:,} draws of q, weighted by p / q: Pareto k-hat {k_hat:.2f} (at most {most:.2f}), "
        f"worth {size:,.0f} draws of equal weight",
        elbo,
        error,
        f"the weights p / q have the k-hat {k_hat:.2f} and are worth {size:,.0f} draws",
        flaw,
        "Use lb.correct(fit, 'nuts'), or a richer q.",
        every,
    )
