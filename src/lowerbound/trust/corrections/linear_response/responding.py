"""Linear response (Giordano, Broderick and Jordan 2018): covariances from how an optimum moves.

If log p gains epsilon' f(z), the mean of g under the posterior moves by Cov(g, f) epsilon. The
optimum of the ELBO moves too, and how far says what q knows of that covariance: more than q itself
holds, because the optimum minds how factors depend on each other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lowerbound.errors import UncorrectableError
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.family.meanfield import MeanField
from lowerbound.result.fitted import Fit
from lowerbound.trust.against import Against
from lowerbound.trust.corrections.improved import Improved
from lowerbound.trust.corrections.linear_response.factor_response import factor_response
from lowerbound.trust.corrections.linear_response.gaussian_response import gaussian_response
from lowerbound.trust.corrections.linear_response.own_scales import OwnScales
from lowerbound.trust.corrections.linear_response.reordered import reordered

MOST = 3000  # numbers whose covariance is held as a matrix


def responded(fit: Fit, view: Against, draws: int, seed: int) -> Improved:
    """The covariances of all continuous sites, and draws that have them.

    A Gaussian stays one, with another covariance. Draws of factors of other shapes are those of q,
    stretched about their means and put into another order (`reordered`).
    """
    size = view.target.size
    if size > MOST:
        raise UncorrectableError(
            "linear-response",
            f"the covariance of {size:,} numbers is a matrix of more than {MOST:,} rows",
            "Use lb.correct(fit, 'psis').",
        )
    if isinstance(view.family, UnconstrainedGaussian):
        return _gaussian(view, draws, seed)
    if not isinstance(fit.q.family, MeanField):
        raise UncorrectableError(
            "linear-response",
            f"q is of the kind {type(fit.q.family).__name__}, not a product of factors or a "
            "Gaussian at a maximum of its ELBO",
            "Such a q holds dependence already. Use lb.correct(fit, 'psis'), or 'nuts'.",
        )
    found = factor_response(fit, view, draws, seed)
    unit = (found.vectors - found.vectors.mean(axis=0)) / found.vectors.std(axis=0)
    weights = np.full(len(unit), 1.0 / len(unit))
    level, width = OwnScales.of(view.coordinates, view.target.data).matched(
        unit, weights, found.vectors.mean(axis=0), found.mean, np.sqrt(np.diag(found.after))
    )
    vectors = level + width * reordered(unit, _correlation(found.after), seed)
    return Improved(
        WeightedDraws(),
        {"values": view.values(vectors), "weights": weights},
        f"{found.text}; {len(vectors):,} draws of q, stretched and reordered to have them at the "
        f"means of q. {_ratios(view, found.before, found.after)}",
        before=found.values,
    )


def _gaussian(view: Against, draws: int, seed: int) -> Improved:
    family = view.family
    assert isinstance(family, UnconstrainedGaussian)
    found = gaussian_response(view)
    root = found.width[:, None] * np.linalg.cholesky(_correlation(found.moved))
    parameters = {"loc": found.level, "scale_tril": root}
    if "given" in view.parameters:
        parameters["given"] = view.parameters["given"]
    corrected = UnconstrainedGaussian(family.coordinates, family.data)
    drawn = replace(view, family=corrected, parameters=parameters).drawn(min(draws, 1000), seed)
    ratios = drawn.log_ratios
    fine = ratios[np.isfinite(ratios)]
    bound = float(fine.mean()) if len(fine) == len(ratios) else -np.inf
    return Improved(
        corrected,
        parameters,
        f"{found.text}; a Gaussian that has them at the means of q. "
        f"{_ratios(view, found.before, found.after)}",
        bound,
        float(fine.std() / np.sqrt(max(len(fine), 1))) if np.isfinite(bound) else 0.0,
    )


def _correlation(covariance: np.ndarray) -> np.ndarray:
    sds = np.sqrt(np.diag(covariance))
    correlation: np.ndarray = covariance / np.outer(sds, sds)
    return correlation


def _ratios(view: Against, before: np.ndarray, after: np.ndarray) -> str:
    """How much the sds change, in words."""
    ratios = np.sqrt(np.diag(after) / np.diag(before))
    most = int(np.argmax(np.abs(np.log(ratios))))
    return (
        f"Sds are {ratios.min():.2f} to {ratios.max():.2f} times those of q, most changed "
        f"'{view.coordinates.owner(most)}' ({ratios[most]:.2f})"
    )
