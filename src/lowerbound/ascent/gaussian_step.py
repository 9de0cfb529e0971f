"""Natural-gradient ascent of a Gaussian on a bound with fixed draws.

The step of the one update, in the coordinates where q is standard normal: with slope b and
curvature M (bound.estimated), the precision moves from I to (1 - step) I + step M, the mean along
M^-1 b. First derivatives of log p are all it needs; for a quadratic log p one full step is exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lowerbound.bound.fixed_draws import Estimate, Numbers

RUNNING, CONVERGED, SETTLED, STALLED = range(4)
_LEAST, _MOST = 0.1, 10.0  # how much one step may change a precision
_REACH = 3.0  # how far the mean may move at first, in standard deviations of q, by dimension
_ARMIJO = 1e-3
_SMALLEST_STEP = 1e-7


class Ascent(NamedTuple):
    """The state of an ascent: the Gaussian accepted last, and the one to try next."""

    loc: Numbers
    root: Numbers  # lower triangular C; the covariance is C C'. Or a stack of diagonal blocks of C
    found: Estimate
    error: Numbers  # distance from stationarity
    trial_loc: Numbers
    trial_root: Numbers
    step: Numbers
    reach: Numbers  # the farthest that the mean may move
    length: Numbers  # how far it moves in the trial
    gain: Numbers  # first-order gain of the ELBO that the trial promises
    status: Numbers

    @property
    def elbo(self) -> float:
        """The ELBO over the draws of the ascent; -inf when no point was finite."""
        return float(self.found.elbo)


def begin(loc: Numbers, root: Numbers) -> Ascent:
    """Before the first evaluation, which is at N(loc, root root') itself."""
    one = np.ones((), loc.dtype)
    nothing = Estimate(-np.inf * one, np.zeros_like(loc), np.zeros_like(root), 0 * one)
    reach = one * _REACH * len(loc) ** 0.5
    status = np.full((), RUNNING)
    return Ascent(loc, root, nothing, np.inf * one, loc, root, one, reach, 0 * one, 0 * one, status)


def advance(state: Ascent, found: Estimate, tolerance: float, diagonal: bool = False) -> Ascent:
    """Accept or refuse the trial, whose averages are `found`, and choose the next one.

    A trial is refused when the ELBO does not rise as promised, or is not finite. Converged: slope
    and curvature are within `tolerance` of 0 and I, in units of standard deviations of q.
    """
    before = state.found.elbo
    begun = np.isfinite(before)
    slack = 1e-13 * (1.0 + np.abs(np.where(begun, before, 0.0)))
    enough = ~begun | (found.elbo >= before + _ARMIJO * state.gain - slack)
    accepted = np.isfinite(found.elbo) & enough
    kept = Estimate(*(np.where(accepted, n, o) for n, o in zip(found, state.found, strict=True)))
    loc = np.where(accepted, state.trial_loc, state.loc)
    root = np.where(accepted, state.trial_root, state.root)
    nowhere = ~np.isfinite(kept.elbo)
    error = np.where(nowhere, np.inf, distance(kept, diagonal))
    # The best step of the parabola through the promised slope and the change that came of it: a
    # full step that only oscillates gains nothing, and is halved.
    short = np.maximum(state.gain - (found.elbo - before), 1e-300)
    parabola = np.where(begun & np.isfinite(found.elbo), 0.5 * state.gain / short, 0.0)
    ratio = np.where(accepted, np.clip(parabola, 0.5, 2.0), np.clip(parabola, 0.1, 0.5))
    step = np.minimum(1.0, np.where(begun, ratio, np.where(accepted, 1.0, 0.5)) * state.step)
    # Far from the optimum, where the scale is right and the mean is not, the reach grows.
    longer = np.maximum(state.reach, 4.0 * state.length)
    shorter = np.maximum(1.0, 0.25 * state.length)
    reach = np.where(accepted, longer, shorter)
    still = accepted & begun & (state.step >= 0.5) & (found.elbo - before <= 10 * slack)
    status = np.where(step < _SMALLEST_STEP, STALLED, RUNNING)
    status = np.where(still, SETTLED, status)
    status = np.where(error <= tolerance, CONVERGED, status)
    if status != RUNNING:
        still_here = state._replace(loc=loc, root=root, found=kept, error=error, step=step)
        return still_here._replace(reach=reach, status=status)
    next_loc, next_root, length, gain = trial(kept, loc, root, step, reach, diagonal)
    # Before any draw was finite, try draws closer to the centre.
    return Ascent(
        loc,
        root,
        kept,
        error,
        np.where(nowhere, loc, next_loc),
        np.where(nowhere, 0.25 * state.trial_root, next_root),
        step,
        reach,
        length,
        gain,
        status,
    )


def distance(found: Estimate, diagonal: bool) -> Numbers:
    """How far from stationary: the error of mean or scale, in standard deviations, at most."""
    excess = np.tril(found.curvature - np.eye(found.curvature.shape[-1]))
    if diagonal:
        excess = np.diagonal(excess)
    return np.maximum(np.max(np.abs(found.slope)), np.max(np.abs(excess)))


def trial(
    found: Estimate,
    loc: Numbers,
    root: Numbers,
    step: Numbers,
    reach: Numbers,
    diagonal: bool,
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """The next Gaussian to try, how far its mean moves, and the gain that the gradient promises.

    A root that is a stack holds the diagonal blocks of one: each block moves by itself.
    """
    if root.ndim == 3:
        return _block_by_block(found, loc, root, step, reach)
    eye = np.eye(len(loc))
    # The lower triangle is the gradient of the ELBO in a lower triangular root.
    lower = np.tril(found.curvature)
    values, vectors = np.linalg.eigh(lower + np.tril(lower, -1).T)
    values = np.clip(values, _LEAST, _MOST)
    move = vectors @ ((vectors.T @ found.slope) / values)
    length = np.sqrt(np.sum(move**2))
    shrink = step * np.minimum(1.0, reach / np.maximum(step * length, 1e-300))
    if diagonal:
        target = np.diag(np.clip(np.diagonal(lower), _LEAST, _MOST))
        factor = np.diag(1.0 / np.sqrt(1.0 + step * (np.diagonal(target) - 1.0)))
        lower = np.diag(np.diagonal(lower))
    else:
        target = (vectors * values) @ vectors.T
        factor = np.linalg.cholesky((vectors / (1.0 + step * (values - 1.0))) @ vectors.T)
    change = np.tril(eye - target, -1) + 0.5 * np.diag(np.diagonal(eye - target))
    gain = shrink * (found.slope @ move) + step * np.sum((eye - lower) * change)
    return loc + root @ (shrink * move), root @ factor, shrink * length, np.maximum(gain, 0.0)


def _block_by_block(
    found: Estimate, loc: Numbers, root: Numbers, step: Numbers, reach: Numbers
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """The same for independent blocks, at a cost that grows with their number alone."""
    lower = np.tril(found.curvature)
    values, vectors = np.linalg.eigh(lower + np.swapaxes(np.tril(lower, -1), -1, -2))
    values = np.clip(values, _LEAST, _MOST)
    slope = found.slope.reshape(root.shape[:2])
    move = np.einsum("rij,rj,rkj,rk->ri", vectors, 1.0 / values, vectors, slope)
    length = np.sqrt(np.sum(move**2))
    shrink = step * np.minimum(1.0, reach / np.maximum(step * length, 1e-300))
    target = np.einsum("rij,rj,rkj->rik", vectors, values, vectors)
    inverse = 1.0 / (1.0 + step * (values - 1.0))
    factor = np.linalg.cholesky(np.einsum("rij,rj,rkj->rik", vectors, inverse, vectors))
    eye = np.eye(root.shape[-1])
    change = np.tril(eye - target) * (1.0 - 0.5 * eye)
    gain = shrink * np.sum(slope * move) + step * np.sum((eye - lower) * change)
    moved = loc + shrink * np.einsum("rij,rj->ri", root, move).ravel()
    return moved, root @ factor, shrink * length, np.maximum(gain, 0.0)
