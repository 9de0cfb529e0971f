"""Importance resampling: draws of q or around the posterior, weighted (Vehtari et al. 2024)."""

from __future__ import annotations

import math

import numpy as np

from lowerbound.errors import FewWeightsError
from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.trust.against import Against
from lowerbound.trust.corrections.improved import Improved
from lowerbound.trust.estimates import proposed, weighted

ENOUGH, ROUNDS = 0.3, 3  # effective draws over all, and rounds of proposals to come to that
FEWEST = 100  # finite weights, and effective draws below which moments are noise


def threshold(draws: int) -> float:
    """The k-hat above which so many draws are too few: min(1 - 1 / log10(S), 0.7).

    >>> threshold(100), threshold(1000)
    (0.5, 0.6666666666666667)
    """
    return min(1.0 - 1.0 / math.log10(draws), 0.7)


def resampled(view: Against, draws: int, seed: int) -> Improved:
    """Draws with Pareto smoothed weights; the bound is the importance-weighted one.

    They are draws of q where its weights are even; else of a Student law that is moved to the
    posterior, where one comes nearer.
    """
    drawn = view.drawn(draws, seed)
    ratios = drawn.log_ratios
    every = view.values(drawn.vectors)
    fine = int(np.isfinite(ratios).sum())  # a draw that the model excludes weighs nothing
    if fine < FEWEST:
        raise FewWeightsError(fine, draws, FEWEST)
    found, count, law = weighted(every, drawn.vectors, ratios), draws, "of q"
    most = threshold(draws)
    if found.k_hat > most or found.size < ENOUGH * draws:
        rounds = (1024, 2048, *(draws for _ in range(ROUNDS)))
        moved = proposed(view, drawn, found, math.inf, seed, rounds, ENOUGH * draws)
        if moved is not None and moved.size > found.size:
            found, count, law = moved, moved.made, "of a Student law around the posterior"
    weights = np.exp(found.log_weights)
    size, k_hat, most = found.size, found.k_hat, threshold(count)
    flaw = ""
    if k_hat > most:
        flaw = f"Pareto k-hat {k_hat:.2f} is above {most:.2f}, the most for {count:,} draws"
    elif size < FEWEST:
        flaw = f"the weights of {count:,} draws are worth {size:.0f} draws of equal weight"
    return Improved(
        WeightedDraws(),
        {"values": dict(found.values), "weights": weights},
        f"{count:,} draws {law}, weighted: Pareto k-hat {k_hat:.2f} (at most {most:.2f}), "
        f"worth {size:,.0f} draws of equal weight",
        found.log_mean,
        found.log_mean_error,
        f"importance weights have the k-hat {k_hat:.2f} and are worth {size:,.0f} draws",
        flaw,
        "Use lb.correct(fit, 'nuts'), or a richer q.",
        every,
    )
