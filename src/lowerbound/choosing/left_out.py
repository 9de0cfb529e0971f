"""Leave-one-out predictive densities by importance weights (PSIS-LOO).

With draws z of q, row i is left out by the weights p(x, z) / q(z) / p(x_i | z): those of the
posterior, as Magnusson et al. (2019) have them, without the row. Pareto smoothing gives each row a
k-hat, which says whether they carry (Vehtari, Gelman and Gabry 2017).
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.choosing.compared import Score
from lowerbound.cost import check_fits
from lowerbound.errors import LowerboundError, NoRowsError
from lowerbound.family.completed.completing import Completed
from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.result.evidence import k_threshold
from lowerbound.result.fitted import Fit
from lowerbound.result.unseen.new_rows import row_axes, rows_in
from lowerbound.trust.against import against
from lowerbound.trust.proposals import Effort, nearest, telling
from lowerbound.trust.rows_left_out import left_out, row_log_densities
from lowerbound.trust.weighing import EVEN, Weighted, weighted

ROUNDS = 3  # of moving proposals to the posterior
Values = Mapping[str, Array]


def leave_one_out(name: str, fit: Fit, draws: int, seed: int) -> Score:
    """The leave-one-out log predictive density of every row of a fit, with the k-hat of each."""
    if not fit.whole:
        raise NoRowsError(name, "it keeps the factors of global sites alone")
    with jax.enable_x64(True), np.errstate(all="ignore"):
        model = fit.own_model()
        row_axes(model)  # raises where rows are not defined
        check_fits(24 * draws * rows_in(model), f"a set of {draws:,} densities of every row")
        values, log_ratios, notes = _draws(name, fit, draws, seed)
        densities, more = row_log_densities(name, model, values)
    found, k_hats = left_out(np.asarray(densities), log_ratios)
    score = Score.of_rows(found)
    return Score(
        score.value, score.error, found, k_hats, k_threshold(len(log_ratios)), (*notes, *more)
    )


def _draws(
    name: str, fit: Fit, draws: int, seed: int
) -> tuple[dict[str, Array], np.ndarray, tuple[str, ...]]:
    """Draws, and log p(x, z) at them less their log density up to a constant; 0 where they are
    those of the posterior, or stand for these.
    """
    family = fit.q.family
    inner = family.inner if isinstance(family, Completed) else family
    why = ""
    if not fit.answer.exact and not isinstance(inner, WeightedDraws):
        try:
            found = _weighted(fit, draws, seed)
        except LowerboundError as error:
            why = str(error).splitlines()[0].rstrip(".")
        else:
            shared = [n for n, s in fit.own_sites(fit.sites).items() if s["scope"] == "global"]
            if found.tells and all(n in found.values for n in shared):
                return {n: jnp.asarray(a) for n, a in found.values.items()}, found.log_weights, ()
            why = f"the weights of the posterior over q have the k-hat {found.k_hat:.1f}"
    every = fit.own_sites(fit.latent_draws(draws, jax.random.key(seed)))
    notes = (f"Draws of q stand for those of the posterior in '{name}': {why}.",) if why else ()
    return every, np.zeros(draws), notes


def _weighted(fit: Fit, draws: int, seed: int) -> Weighted:
    """Draws with the weights of the posterior: of q, or of a law around it where that is nearer.

    What leaves a row out comes on top of these weights, so they had better be even.
    """
    judge = against(fit)
    drawn = judge.drawn(draws, seed)
    own = weighted(judge.values(drawn.vectors), drawn.vectors, drawn.log_ratios)
    if own.tells and own.size >= EVEN * draws:
        return own
    effort = Effort(rounds=(draws,) * ROUNDS, enough=EVEN * draws)
    moved = telling(nearest(judge, drawn, own, seed, effort))
    return own if moved is None or moved.size <= own.size else moved
