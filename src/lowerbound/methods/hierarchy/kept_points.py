"""The density of an integral: which points of it are kept, and how z follows theta between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from lowerbound.family.densities.held_points import PATTERN
from lowerbound.family.densities.integrated import Integrated
from lowerbound.family.numerics.smoothed import Smoothed
from lowerbound.family.numerics.surrogate import errors_left_out
from lowerbound.family.sparse.elimination import Pattern
from lowerbound.family.sparse.mixing import Mixing
from lowerbound.methods.hierarchy.integration import Integral
from lowerbound.methods.hierarchy.reading.recurring.from_levels import FromLevels
from lowerbound.methods.hierarchy.surface import Solved
from lowerbound.rewrite.coordinates import Coordinates

HOPELESS = 100.0  # nats below the best point, where a solution may be no solution at all
NEGLIGIBLE = 1e-6  # the probability of all cells whose points are left out
MOST_NUMBERS = 20_000_000  # that points hold together, of laws and of precisions
LENGTHS, NUGGET = (1.0, 1.6, 2.5, 4.0, 6.5), 1e-6  # of the kernel
LOOKED_AT = 200  # columns by which it is chosen
FEWEST = 12  # points, however large


def integrated(
    coordinates: Coordinates,
    sites: Sequence[str],
    integral: Integral,
    pattern: Pattern,
    precision: Callable[[Solved], np.ndarray] = attrgetter("precision"),
    back: FromLevels | None = None,
) -> tuple[Integrated, dict[str, Any]]:
    """The density q(theta) q(z | theta) of an integral over the hyperparameters `sites`.

    `precision` gives the entries of P at a point, of which it is kept for those of most mass.
    `back` makes z of the coordinates that P is of, where these are levels.
    """
    smoothed = integral.smoothed.trimmed()
    least = max(one.value for one in integral.solved) - HOPELESS
    own = tuple(one for one in integral.solved if one.value > least)
    solved, mixings = own, list[Mixing]()
    if back is not None:
        every = [Mixing(back.matrix(one.t)) for one in own]
        made = [
            unmade(one, mixing, back, pattern, precision(one))
            for one, mixing in zip(own, every, strict=True)
        ]
        fine = [n for n, one in enumerate(made) if one is not None]
        own, mixings = tuple(own[n] for n in fine), [every[n] for n in fine]
        solved = tuple(one for one in made if one is not None)
    s = smoothed.placed.inward(np.array([one.t for one in solved]))
    loc = np.array([one.loc for one in solved])
    mass = _cell_masses(smoothed, s)
    log_sds = 0.5 * np.log([one.variance for one in solved])
    slopes, stretches = (_slopes(s, known, mass) for known in (loc, log_sds))

    order = np.argsort(-mass, kind="stable")
    needed = int(np.searchsorted(np.cumsum(mass[order]), 1.0 - NEGLIGIBLE)) + 1
    kept = order[: min(needed, max(FEWEST, MOST_NUMBERS // (2 * loc.shape[1] + 1)))]
    anchors = np.arange(min(len(kept), max(1, MOST_NUMBERS // max(1, len(pattern.rows)))))
    rest = [known[kept] - s[kept] @ own for known, own in ((loc, slopes), (log_sds, stretches))]
    inverse, lengths, shares = _kernel(s[kept], rest, mass[kept])
    parameters = {
        "theta": smoothed.arrays(),
        "t": np.array([solved[number].t for number in kept]),
        "loc": loc[kept],
        "precision": np.array([precision(own[n]) for n in kept[anchors]]),
        "anchors": anchors,
        "variance": np.array([solved[number].variance for number in kept]),
        "slopes": slopes,
        "stretches": stretches,
        "inverse": inverse,
        "lengths": lengths,
        "shares": shares,
        **{name: np.asarray(getattr(pattern, name)) for name in PATTERN},
    }
    if mixings:
        parameters |= mixing_parameters([mixings[number] for number in kept[anchors]])
    return Integrated(coordinates, tuple(sites), {"pattern": pattern}), parameters


def unmade(
    solved: Solved, mixing: Mixing, back: FromLevels, pattern: Pattern, precision: np.ndarray
) -> Solved | None:
    """A solution for levels as one for their increments, but for its precision.

    None where P is on the brink of what rounding leaves positive definite, as far out in a tail.
    """
    factor = pattern.factor(precision)
    if factor is None:
        return None
    variance = mixing.variance(factor, pattern)
    return replace(solved, loc=back(solved.t, solved.loc), variance=variance)


def mixing_parameters(mixings: Sequence[Mixing]) -> dict[str, np.ndarray]:
    """The matrices M of some points, as arrays: all have the same pattern."""
    whole = sum((abs(one.matrix) for one in mixings[1:]), start=abs(mixings[0].matrix)).tocoo()
    rows, columns = whole.row, whole.col
    values = [np.asarray(one.matrix[rows, columns]).ravel() for one in mixings]
    return {"mixing": np.array(values), "mixing_rows": rows, "mixing_columns": columns}


def _cell_masses(smoothed: Smoothed, s: np.ndarray) -> np.ndarray:
    """The probability of where each point is the nearest one."""
    own = ((s**2).sum(axis=1) - 2 * smoothed.nodes @ s.T).argmin(axis=1)
    return np.bincount(own, smoothed.weights, len(s))


def _kernel(
    s: np.ndarray, rest: Sequence[np.ndarray], mass: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The inverse kernel between points, its lengths and shares: those that predict best.

    rest: (m, d) each, what slopes leave of what is known at the points, of which some columns are
    predicted, each from the other points. An inverse of zeros leaves it at the slopes.
    """
    k = s.shape[1]
    shares = np.array([1.0, 0.3, 0.1]) if k > 1 else np.array([1.0, 0.0, 0.0])
    columns = [one[:, :: max(1, one.shape[1] // LOOKED_AT)] for one in rest]
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


def _slopes(s: np.ndarray, loc: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """The regression on s (k, d): by probability, and by all points a little."""
    weights = mass + 1e-3 / len(mass)
    weights = weights / weights.sum()
    away, moved = s - weights @ s, loc - weights @ loc
    square = (away * weights[:, None]).T @ away
    ridge = 1e-6 * np.eye(len(square))
    slopes: np.ndarray = np.linalg.solve(square + ridge, (away * weights[:, None]).T @ moved)
    return slopes
