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
from scipy.special import logsumexp

from lowerbound.choosing.compared import Score
from lowerbound.cost import check_fits, mapped
from lowerbound.errors import LowerboundError, NoRowsError, NotConjugateError
from lowerbound.family.densities.summed import Summed
from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.family.numerics.pareto import smoothed_weights
from lowerbound.model import Model
from lowerbound.model.dependence import once
from lowerbound.result.evidence import k_threshold
from lowerbound.result.fitted import Fit
from lowerbound.result.new_rows import log_densities, row_axes, rows_in, rows_of
from lowerbound.result.row_integrals import (
    LOCAL_DRAWS,
    proposal_of,
    simulated_densities,
    summed_densities,
)
from lowerbound.trust.against import against
from lowerbound.trust.proposals import Effort, proposed
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


def left_out(densities: np.ndarray, log_ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log p(x_i | x_-i) and k-hat of every row, from log p(x_i | z_s) (S, rows) and weights (S,).

    A row whose density has no finite value at half of the draws has the k-hat inf.
    """
    rows = densities.shape[1]
    found, k_hats = np.full(rows, -np.inf), np.full(rows, np.inf)
    for i in range(rows):
        fine = np.isfinite(densities[:, i]) & np.isfinite(log_ratios)
        if 2 * fine.sum() < len(fine):
            continue
        column = densities[fine, i]
        log_weights, k_hats[i] = smoothed_weights(log_ratios[fine] - column)
        found[i] = logsumexp(log_weights + column)
    return found, k_hats


def _draws(
    name: str, fit: Fit, draws: int, seed: int
) -> tuple[dict[str, Array], np.ndarray, tuple[str, ...]]:
    """Draws, and log p(x, z) at them less their log density up to a constant; 0 where they are
    those of the posterior, or stand for these.
    """
    family = fit.q.family
    inner = family.inner if isinstance(family, Summed) else family
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
    moved = proposed(judge, drawn, own, seed, effort)
    return own if moved is None or moved.size <= own.size else moved


def row_log_densities(name: str, model: Model, values: Values) -> tuple[Array, tuple[str, ...]]:
    """Log p(x_i | z) of every row at every draw, (draws, rows), the row's own sites taken out.

    Exactly where they are finite or one block of an exponential family, else by draws of their
    factors; where they have none they stay as drawn.
    """
    if not model.local:
        return _given_all(model, values), ()
    shared = {n: a for n, a in values.items() if n in model.latent and n not in model.local}
    summed = summed_densities(model, shared) if shared else None
    if summed is not None:
        return summed, ()
    try:
        rows = rows_of(model, np.dtype(float))
    except NotConjugateError:
        missing = [n for n in model.local if n not in values]
        if missing:
            raise NoRowsError(
                name, f"'{missing[0]}' can neither be summed out of them nor drawn"
            ) from None
        text = f"Given the rows' own sites ({', '.join(model.local)}) in '{name}', as drawn."
        return _given_all(model, values), (text,)
    if rows.exact:
        return log_densities(rows, shared), ()
    proposal = proposal_of(rows, model.local)
    if proposal is None or any(site.is_factor for site in model.observed.values()):
        note = f"Densities of the rows of '{name}' are lower bounds: several sites are their own."
        return log_densities(rows, shared), (note,)
    count = len(next(iter(values.values())))
    note = (
        f"Densities of the rows of '{name}' are estimates: {LOCAL_DRAWS} draws of their own sites."
    )
    key = jax.random.key(count)
    return simulated_densities(model, shared, key, count, proposal), (note,)


def _given_all(model: Model, values: Values) -> Array:
    """Log p(x_i | z) with all latent sites given."""
    axes = row_axes(model)
    own = {n: values[n] for n in model.latent}
    data = {n: jnp.asarray(a) for n, a in model.arguments.data.items()}

    def every(values: Values, data: Values) -> Array:
        def one(values: Values) -> Array:
            densities = model.run(values, data)
            parts = []
            for name in model.observed:
                if name not in axes:
                    continue
                log_prob = densities[name].log_prob()
                others = tuple(a for a in range(log_prob.ndim) if a != axes[name])
                parts.append(log_prob.sum(axis=others))
            return sum(parts[1:], start=parts[0])

        found: Array = mapped(one, values, what="one draw")
        return found

    found: Array = once(every)(own, data)
    return found
