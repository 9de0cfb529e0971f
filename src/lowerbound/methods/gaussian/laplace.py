"""Laplace's approximation and the delta method (Wang and Blei 2013), without any draws.

Laplace: q = N(mode, (-H)^-1), with H the Hessian of log p at its mode. Delta: log p is expanded to
second order around the mean of q, whatever it is,

    elbo = log p(mu) + tr(H(mu) Sigma) / 2 + entropy(Sigma),   Sigma = (-H(mu))^-1 at the maximum,

so that mu moves from the mode to where log p(mu) - log |-H(mu)| / 2 is highest.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from lowerbound.errors import NoModeError
from lowerbound.methods.gaussian.ascents import GaussianAscent, Phase
from lowerbound.methods.gaussian.derivatives import hessian, third
from lowerbound.methods.gaussian.reached import Measured, Reached, Rooted
from lowerbound.methods.gaussian.target import Target
from lowerbound.methods.gaussian.unconstrained_methods import GaussianMethod
from lowerbound.result.answer import Stop
from lowerbound.run.problem import Problem
from lowerbound.run.walking import Standing, told

LIMIT = 100  # steps of Newton's method, and of the delta method
# Standard deviations that a last step of Newton's method moves, by the precision of log p.
REST: Final = {np.dtype(np.float64): 1e-8, np.dtype(np.float32): 1e-5}
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


@dataclass(frozen=True, eq=False)
class AtMode(Rooted):
    """A mode with its curvature: what is asked for is no other Gaussian, so none is narrowed."""

    def measured(self, seed: int) -> Measured:
        """As it is."""
        if self.known is not None:
            return self.known
        bound, drawn = self.bound(self.parameters, seed)
        return Measured(self.parameters, bound, drawn=drawn)


class ModeAscent(GaussianAscent):
    """Laplace's approximation: Newton's steps from the best start, and the curvature there.

    A mode is asked for in the sites' own coordinates.
    """

    update = "approximated (Laplace)"

    def __init__(self, problem: Problem, method: GaussianMethod, rank: str) -> None:
        super().__init__(problem, method, rank, compares=False)

    def ascent(self) -> Phase:
        """To the mode."""
        place, _, stop = yield from self.mode()
        return place, stop

    def mode(self) -> Generator[Standing[Reached], None, tuple[AtMode, Peak, Stop]]:
        """The mode with its curvature, and whether that is to be believed."""
        choice = yield from self.coordinates()
        state, starts = yield from self.begun(choice)
        start, frame = np.asarray(state.loc), np.asarray(state.root)

        def place(peak: Peak) -> AtMode:
            root, _ = _root(peak, self.diagonal)
            return AtMode(choice, 0, starts, peak.loc, root, self.diagonal)

        phase = _mode(choice.target, start, frame)
        peak, found = yield from told(phase, lambda peak: Standing(place(peak)))
        stop = Stop(True, "the last step of Newton's method moved nothing")
        if not found:
            stop = Stop(False, f"{LIMIT} steps of Newton's method", _ELSEWHERE)
        _, flat = _root(peak, self.diagonal)
        if flat.any():
            names = ", ".join(f"'{name}'" for name in _main(choice.target, peak.frame @ flat))
            reason = f"the Hessian at the mode is flat along {names}, where the scale is that of "
            stop = Stop(False, f"{reason}the best Gaussian instead", _ELSEWHERE)
        return place(peak), peak, stop


class DeltaAscent(ModeAscent):
    """The delta method: from the mode to where the expansion of the ELBO is highest."""

    update = "approximated (delta method)"

    def ascent(self) -> Phase:
        """To the mode, and on where there is one."""
        mode, peak, stop = yield from self.mode()
        if not stop.converged:
            return mode, stop
        target, tolerance = mode.choice.target, self.method.tolerance

        def place(peak: Peak) -> AtMode:
            return replace(mode, loc=peak.loc, root=_root(peak, self.diagonal)[0])

        phase = _expanded(target, peak, mode.root, self.diagonal, tolerance)
        moved, rested = yield from told(phase, lambda here: Standing(place(here[0]), here[1]))
        if rested:
            return place(moved), Stop(True, f"the mean is within {tolerance:g} standard deviations")
        reason = "the expansion of the ELBO has no maximum near the mode, which is kept"
        return mode, Stop(False, reason, _ELSEWHERE)


_ELSEWHERE = "Use lb.Gaussian(), which averages log p over q."


def _mode(
    target: Target, start: np.ndarray, frame: np.ndarray
) -> Generator[Peak, None, tuple[Peak, bool]]:
    """Newton's method from a start, and whether it came to rest at a maximum."""
    peak, reach = _peak(target, start, frame), _REACH * len(start) ** 0.5
    found, rest = False, REST[np.dtype(target.dtype)]
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
        found = bool(np.abs(move).max() <= rest or not (len(enough) and gains[enough[0]] > 0.0))
        if found:
            # Rounding hides the last gains; far from rest it would hide none.
            found = bool(np.abs(move).max() <= rest**0.5)
            break
        peak = _peak(target, tried[enough[0]], frame)
        yield peak
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
    # Not by Cholesky, which rounding ends where variances are of very different sizes.
    _, triangle = np.linalg.qr((vectors * np.sqrt(variances)).T)
    root = (triangle * np.where(np.diagonal(triangle) < 0, -1.0, 1.0)[:, None]).T
    return frame @ root, vectors @ flat.astype(float) if flat.any() else np.zeros(dimension)


def _main(target: Target, direction: np.ndarray) -> list[str]:
    share = np.abs(direction) / np.abs(direction).max()
    return [target.coordinates.owner(int(i)) for i in np.argsort(-share) if share[i] > 0.1][:5]


def _expanded(
    target: Target, peak: Peak, root: np.ndarray, diagonal: bool, tolerance: float
) -> Generator[tuple[Peak, float], None, tuple[Peak, bool]]:
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
        yield here, height
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
