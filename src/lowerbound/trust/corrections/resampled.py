"""Importance resampling: draws of q or around the posterior, weighted (Vehtari et al. 2024)."""

from __future__ import annotations

import numpy as np

from lowerbound.errors import FewWeightsError
from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.result.evidence import k_threshold
from lowerbound.trust.against import Against
from lowerbound.trust.corrections.improved import Improved
from lowerbound.trust.optima.summits import SEARCHED, Optima, other_summits
from lowerbound.trust.proposals import Effort, nearest, telling
from lowerbound.trust.weighing import Weighted, weighted

ENOUGH, ROUNDS = 0.3, 5  # effective draws over all, and rounds of proposals to come to that
SURE_K, SURE_SIZE = 0.5, 0.15  # k-hat, and effective draws over all, of weights that miss nothing
FEWEST = 100  # finite weights, and effective draws below which moments are noise


def _is_better(one: Weighted, other: Weighted) -> bool:
    """Whether weights have a lighter tail where that matters, else whether they are worth more."""
    light, other_light = one.k_hat <= SURE_K, other.k_hat <= SURE_K
    return (light, one.size) > (other_light, other.size)


def resampled(view: Against, draws: int, seed: int, optima: Optima = ()) -> Improved:
    """Draws with Pareto smoothed weights; the bound is the importance-weighted one.

    They are draws of q where its weights are even; else of a Student law that is moved to the
    posterior, where one comes nearer, and has a part at every summit that counts. `optima` are
    where other starts have converged.
    """
    drawn = view.drawn(draws, seed)
    ratios = drawn.log_ratios
    every = view.values(drawn.vectors)
    fine = int(np.isfinite(ratios).sum())  # a draw that the model excludes weighs nothing
    if fine < FEWEST:
        raise FewWeightsError(fine, draws, FEWEST)
    found, count, law = weighted(every, drawn.vectors, ratios), draws, "of q"
    most = k_threshold(draws)
    modes = other_summits(view, drawn, found.log_mean, SEARCHED, optima)
    if modes or found.k_hat > min(most, SURE_K) or found.size < ENOUGH * draws:
        rounds = (1024, 2048, *(draws for _ in range(ROUNDS)))
        effort = Effort(rounds=rounds, enough=ENOUGH * draws, light=SURE_K)
        moved = telling(nearest(view, drawn, found, seed, effort, modes))
        if moved is not None and (modes or _is_better(moved, found)):
            law = f"of {'Student laws' if modes else 'a Student law'} around the posterior"
            found, count = moved, moved.made
    weights = np.exp(found.log_weights)
    size, k_hat, most = found.size, found.k_hat, k_threshold(count)
    flaw = ""
    if modes and law == "of q":
        flaw = "log p has another summit, which draws of q do not reach"
    elif k_hat > most:
        flaw = f"Pareto k-hat {k_hat:.2f} is above {most:.2f}, the most for {count:,} draws"
    elif size < FEWEST:
        flaw = f"the weights of {count:,} draws are worth {size:.0f} draws of equal weight"
    doubt = ""
    if k_hat > SURE_K or size < SURE_SIZE * count:
        doubt = (
            f"importance weights have the k-hat {k_hat:.2f} and are worth {size:,.0f} of {count:,} "
            "draws: where these do not go, they cannot tell"
        )
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
        doubt,
    )
