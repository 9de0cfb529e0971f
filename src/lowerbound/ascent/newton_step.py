"""Newton's steps of a Gaussian whose precision is banded with a border.

The same natural-gradient step as update.gaussian, from averages g of the gradient and H of the
second derivatives of log p under q (section 5.2): the precision moves from P to (1 - step) P +
step (-H), the mean along (-H)^-1 g. At the optimum g = 0 and P = -H.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lowerbound.ascent.bordered import (
    Bordered,
    backward,
    eliminated,
    factor,
    forward,
    half_log_determinant,
    variances,
)

_LEAST, _MOST = 0.1, 10.0  # how much one step may change a precision
_HALVINGS = 40


@dataclass(frozen=True, eq=False)
class Precision:
    """A positive definite matrix with its factor and the variances of its inverse."""

    matrix: Bordered
    root: Bordered

    @classmethod
    def of(cls, matrix: Bordered) -> Precision | None:
        """None where the matrix is not positive definite."""
        root = factor(matrix)
        return None if root is None else cls(matrix, root)

    @property
    def deviations(self) -> np.ndarray:
        """The standard deviations of the entries."""
        return np.asarray(np.sqrt(variances(self.root)))

    def points(self, loc: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Rows loc + L'^-1 e, in the order of the matrix."""
        return np.asarray(loc + backward(self.root, draws.T).T)

    def entropy(self) -> float:
        """The entropy of N(loc, precision^-1)."""
        size = self.matrix.size
        return float(0.5 * size * (1.0 + np.log(2 * np.pi))) - half_log_determinant(self.root)


@dataclass(frozen=True, eq=False)
class Aim:
    """Where a step leads: the precision -H, made safe, and the way of the mean."""

    precision: Precision
    move: np.ndarray
    length: float  # of the move, in standard deviations
    change: np.ndarray  # of the means and the log scales, in standard deviations

    @property
    def error(self) -> float:
        """The largest change of a mean or a scale."""
        return float(np.abs(self.change).max())

    def agreement(self, other: Aim) -> float:
        """The cosine between two changes."""
        lengths = np.linalg.norm(self.change) * np.linalg.norm(other.change)
        return float(self.change @ other.change / max(lengths, 1e-300))


def aim(now: Precision, slope: np.ndarray, curvature: Bordered) -> Aim | None:
    """The full step from averages of the gradient and of -H; None where there is none."""
    there = Precision.of(curvature)
    if there is None or not _at_least(curvature, now.matrix):
        there = _safe(now, curvature)
    if there is None:
        return None
    whitened = forward(there.root, slope)
    move = backward(there.root, whitened)
    before, after = now.deviations, there.deviations
    change = np.concatenate([move / after, np.log(after / before)])
    return Aim(there, move, float(np.linalg.norm(whitened)), change)


def _at_least(wanted: Bordered, now: Bordered) -> bool:
    """Whether a precision falls no lower than a share of the present one."""
    rest = Bordered(*(w - _LEAST * n for w, n in zip(wanted, now, strict=True)))
    return factor(rest) is not None


def _safe(now: Precision, wanted: Bordered) -> Precision | None:
    """A positive definite matrix like the wanted one: the band moved less, the corner clipped."""
    share = 1.0
    for _ in range(_HALVINGS):
        some = now.matrix.mixed(wanted, share)
        room = some.band - _LEAST * now.matrix.band
        if eliminated(some._replace(band=room, border=0 * some.border)) is not None:
            break
        share *= 0.5
    else:
        return None
    found = eliminated(some)
    if found is None:
        return None
    if not len(found.corner):
        return Precision.of(some)
    # The Schur complement, in the coordinates where the present one is the identity.
    own = now.root.corner
    relative = np.linalg.solve(own, np.linalg.solve(own, found.corner).T)
    values, vectors = np.linalg.eigh(0.5 * (relative + relative.T))
    half = own @ (vectors * np.sqrt(np.clip(values, _LEAST, _MOST)))
    corner = half @ half.T + found.border.T @ found.border
    return Precision.of(some._replace(corner=corner))
