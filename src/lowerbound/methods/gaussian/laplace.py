"""Laplace's approximation and the delta method (Wang and Blei 2013), without any draws.

Laplace: q = N(mode, (-H)^-1), with H the Hessian of log p at its mode. Delta: log p is expanded to
second order around the mean of q, whatever it is,

    elbo = log p(mu) + tr(H(mu) Sigma) / 2 + entropy(Sigma),   Sigma = (-H(mu))^-1 at the maximum,

so that mu moves from the mode to where log p(mu) - log |-H(mu)| / 2 is highest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lowerbound.errors import NoModeError
from lowerbound.methods.gaussian.climbs import Solution, Watch
from lowerbound.methods.gaussian.derivatives import hessian, third
from lowerbound.methods.gaussian.engines import begin_climbs, restart
from lowerbound.methods.gaussian.target import Target
from lowerbound.methods.gaussian.together import Climb
from lowerbound.methods.gaussian.unconstrained_methods import UnconstrainedMethod

LIMIT = 100  # steps of Newton's method, and of the delta method
REST = 1e-8  # standard deviations that a last step of Newton's method moves
FLAT = 0.01  # of the curvature of the best Gaussian: what Laplace does not believe
_REACH, _AWAY = 3.0, 20.0  # standard deviations, by dimension: a step, and no mode in sight
_HALVINGS = 0.5 ** np.arange(20)
_ARMIJO = 1e-4


class Peak(NamedTuple):
    """A point, log p there, and -H in the coordinates of a Gaussian with the factor `frame`."""

    loc: np.ndarray
    value: float
    slope: np.ndarray  # C'g
    curvature: np.ndarray  # -C'HC
    frame: np.ndarray


def solve_laplace(
    target: Target,
    method: UnconstrainedMethod,
    rank: str | int,
    seed: int,
    watch: Watch,
    climbs: list[Climb] | None = None,
) -> Solution:
    """The mode, and the inverse of minus the Hessian there."""
    return _solve(target, method, rank == "diagonal", seed, watch, climbs, delta=False)


def solve_delta(
    target: Target,
    method: UnconstrainedMethod,
    rank: str | int,
    seed: int,
    watch: Watch,
    climbs: list[Climb] | None = None,
) -> Solution:
    """The same where the second-order expansion of the ELBO is highest."""
    return _solve(target, method, rank == "diagonal", seed, watch, climbs, delta=True)


def _solve(
    target: Target,
    method: UnconstrainedMethod,
    diagonal: bool,
    seed: int,
    watch: Watch,
    climbs: list[Climb] | None,
    delta: bool,
) -> Solution:
    climbs = climbs or begin_climbs(target, method, seed, diagonal)
    best = max(climbs, key=lambda one: one.elbo)
    for elbo in best.history:
        watch.note(elbo)
    peak, found = _mode(target, np.asarray(best.state.loc), np.asarray(best.state.root), watch)
    root, flat = _root(peak, diagonal)
    reason, remedy = "the last step of Newton's method moved nothing", ""
    if not found:
        reason, remedy = f"{LIMIT} steps of Newton's method", _ELSEWHERE
    if flat.any():
        found, remedy = False, _ELSEWHERE
        names = ", ".join(f"'{name}'" for name in _main(target, peak.frame @ flat))
        reason = f"the Hessian at the mode is flat along {names}, where the scale is that of the "
        reason += "best Gaussian instead"
    loc = peak.loc
    if delta and found:
        moved, rested = _expanded(target, peak, root, diagonal, method.tolerance, watch)
        reason = f"the mean is within {method.tolerance:g} standard deviations"
        if rested:
            loc, (root, _) = moved.loc, _root(moved, diagonal)
        else:
            found, remedy = False, _ELSEWHERE
            reason = "the expansion of the ELBO has no maximum near the mode, which is kept"
    key, scale = ("scale", np.diagonal(root).copy()) if diagonal else ("scale_tril", root)
    restarts = tuple(restart(one) for one in climbs)
    return Solution({"loc": loc, key: scale}, 0, found, reason, restarts, remedy)


_ELSEWHERE = 'Use engine="fixed", which averages log p over q.'


def _mode(target: Target, start: np.ndarray, frame: np.ndarray, watch: Watch) -> tuple[Peak, bool]:
    """Newton's method from a start, and whether it came to rest at a maximum."""
    peak, reach = _peak(target, start, frame), _REACH * len(start) ** 0.5
    found = False
    for _ in range(LIMIT):
        values, vectors = np.linalg.eigh(peak.curvature)
        size = np.maximum(np.abs(values), FLAT)
        move = vectors @ ((vectors.T @ peak.slope) / size)
        length = float(np.linalg.norm(move))
        move *= min(1.0, reach / max(length, 1e-300))
        tried = peak.loc + np.outer(_HALVINGS, frame @ move)
        heights = np.nan_to_num(target(tried)[0], nan=-np.inf, posinf=-np.inf)
        gains = heights - peak.value
        enough = np.flatnonzero(gains >= _ARMIJO * _HALVINGS * (peak.slope @ move))
        found = bool(np.abs(move).max() <= REST or not (len(enough) and gains[enough[0]] > 0.0))
        if found:
            # Rounding hides the last gains; far from rest it would hide none.
            found = bool(np.abs(move).max() <= REST**0.5)
            break
        peak = _peak(target, tried[enough[0]], frame)
        watch.note(watch.elbo[-1])
        away = np.linalg.solve(frame, peak.loc - start)
        if np.abs(away).max() > _AWAY * len(start) ** 0.5:
            raise NoModeError(_main(target, peak.loc - start))
    return peak, found


def _peak(target: Target, loc: np.ndarray, frame: np.ndarray) -> Peak:
    values, gradients = target(loc[None])
    return Peak(loc, float(values[0]), frame.T @ gradients[0], -hessian(target, loc, frame), frame)


def _root(peak: Peak, diagonal: bool) -> tuple[np.ndarray, np.ndarray]:
    """The factor of the covariance, and the direction in which -H says nothing, 0 if there is none.

    There the scale of the frame, a Gaussian that has looked further, stands in.
    """
    frame, dimension = peak.frame, len(peak.loc)
    if diagonal:
        inverse = np.linalg.inv(frame)
        precision = np.diagonal(inverse.T @ peak.curvature @ inverse)
        known = np.diagonal(frame @ frame.T) ** -1.0
        flat = ~(precision > FLAT * known)
        return np.diag(np.where(flat, known, precision) ** -0.5), inverse @ flat.astype(float)
    values, vectors = np.linalg.eigh(peak.curvature)
    flat = ~(values > FLAT)
    variances = np.where(flat, 1.0, 1.0 / np.where(flat, 1.0, values))
    root = np.linalg.cholesky((vectors * variances) @ vectors.T)
    return frame @ root, vectors @ flat.astype(float) if flat.any() else np.zeros(dimension)


def _main(target: Target, direction: np.ndarray) -> list[str]:
    share = np.abs(direction) / np.abs(direction).max()
    return [target.coordinates.owner(int(i)) for i in np.argsort(-share) if share[i] > 0.1][:5]


def _expanded(
    target: Target, peak: Peak, root: np.ndarray, diagonal: bool, tolerance: float, watch: Watch
) -> tuple[Peak, bool]:
    """Quasi-Newton steps (BFGS) on the expansion of the ELBO with the best covariance in it.

    Its gradient is that of log p(mu) + tr(H(mu) Sigma) / 2 at the present Sigma, held fixed.
    """
    here = _peak(target, peak.loc, root)
    inverse = np.eye(len(here.loc))
    height, gradient = _profile(target, here, diagonal)
    for _ in range(LIMIT):
        if np.abs(gradient).max() <= tolerance:
            return here, True
        move = inverse @ gradient
        move *= min(1.0, _REACH * len(move) ** 0.5 / float(np.linalg.norm(move)))
        for step in _HALVINGS:
            new = _peak(target, here.loc + root @ (step * move), root)
            new_height, new_gradient = _profile(target, new, diagonal)
            if new_height >= height + _ARMIJO * step * (gradient @ move):
                break
        else:
            return here, False
        if np.abs(np.linalg.solve(root, new.loc - peak.loc)).max() > _AWAY:
            return new, False
        inverse = _bfgs(inverse, step * move, gradient - new_gradient)
        here, height, gradient = new, new_height, new_gradient
        watch.note(height)
    return here, False


def _profile(target: Target, here: Peak, diagonal: bool) -> tuple[float, np.ndarray]:
    """The expansion of the ELBO with the best covariance, and its gradient in whitened mu."""
    root, flat = _root(here, diagonal)
    if flat.any() or not np.isfinite(here.value):
        return -np.inf, here.slope
    volume = float(np.sum(np.log(np.diagonal(root))))
    height = here.value + volume + 0.5 * len(root) * np.log(2.0 * np.pi)
    return height, here.slope + 0.5 * here.frame.T @ third(target, here.loc, root)


def _bfgs(inverse: np.ndarray, move: np.ndarray, change: np.ndarray) -> np.ndarray:
    """The inverse curvature that explains how the gradient changed over a move."""
    along = float(move @ change)
    if along <= 1e-12 * float(np.linalg.norm(move) * np.linalg.norm(change)):
        return inverse
    left = np.eye(len(move)) - np.outer(move, change) / along
    updated: np.ndarray = left @ inverse @ left.T + np.outer(move, move) / along
    return updated
