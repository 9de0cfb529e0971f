"""What is known at the points of an integral, and how well the others foretell it at each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lowerbound.family.numerics.surrogate import errors_left_out
from lowerbound.family.sparse.elimination import Pattern
from lowerbound.family.sparse.mixing import MixedLaw

LENGTHS, NUGGET = (1.0, 1.6, 2.5, 4.0, 6.5), 1e-6  # of the kernel
COLUMNS = 200  # by which it is chosen


@dataclass(frozen=True, eq=False)
class Points:
    """What is known at m points. s, t: (m, k), loc, log_sds: (m, d), mass: (m,).

    law: the covariances at a point; None where rounding leaves none.
    """

    s: np.ndarray
    t: np.ndarray
    loc: np.ndarray
    log_sds: np.ndarray
    mass: np.ndarray
    pattern: Pattern
    law: Callable[[int], MixedLaw | None]

    def slopes(self, known: np.ndarray) -> np.ndarray:
        """The regression on s (k, d): by probability, and by all points a little."""
        weights = self.mass + 1e-3 / len(self.mass)
        weights = weights / weights.sum()
        away, moved = self.s - weights @ self.s, known - weights @ known
        square = (away * weights[:, None]).T @ away
        ridge = 1e-6 * np.eye(len(square))
        found: np.ndarray = np.linalg.solve(square + ridge, (away * weights[:, None]).T @ moved)
        return found

    def left_out(self, known: np.ndarray) -> np.ndarray:
        """Errors (m, d) of what is known, foretold from the other points."""
        rest = known - self.s @ self.slopes(known)
        inverse, lengths, shares = kernel(self.s, [rest], self.mass)
        rest = rest - np.median(rest, axis=0)
        errors: np.ndarray = rest
        if inverse.any():
            none = np.zeros(len(rest))
            errors, _, _ = errors_left_out(self.s, rest, none, lengths, shares, NUGGET)
        return 0.0 - errors


def kernel(
    s: np.ndarray, rest: Sequence[np.ndarray], mass: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The inverse kernel between points, its lengths and shares: those that predict best.

    rest: (m, d) each, what slopes leave of what is known at the points, of which some columns are
    predicted, each from the other points. An inverse of zeros leaves it at the slopes.
    """
    k = s.shape[1]
    shares = np.array([1.0, 0.3, 0.1]) if k > 1 else np.array([1.0, 0.0, 0.0])
    columns = [one[:, :: max(1, one.shape[1] // COLUMNS)] for one in rest]
    known = np.concatenate(columns, axis=1)
    known = known - np.median(known, axis=0)
    known = known / np.maximum(np.sqrt(np.mean(known**2, axis=0)), 1e-12)
    weights, none = mass / mass.sum(), np.zeros(len(s))
    best = float(np.sum(weights @ known**2))
    found = np.zeros((len(s), len(s))), np.ones(k), shares
    for length in LENGTHS if known.size else ():
        lengths = np.full(k, length)
        errors, _, inverse = errors_left_out(s, known, none, lengths, shares, NUGGET)
        if (score := float(np.sum(weights @ errors**2))) < best:
            best, found = score, (inverse, lengths, shares)
    return found
