"""The density of an integral: which points of it are kept, and how z follows theta between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from lowerbound.family.densities.held_points import PATTERN, Units
from lowerbound.family.densities.integrated import Integrated
from lowerbound.family.numerics.smoothed import Smoothed
from lowerbound.family.sparse.elimination import Pattern
from lowerbound.family.sparse.mixing import MixedLaw, Mixing
from lowerbound.methods.hierarchy.between.effect_units import effect_units
from lowerbound.methods.hierarchy.between.foretelling import Following, following
from lowerbound.methods.hierarchy.between.known_points import Points, kernel
from lowerbound.methods.hierarchy.points.integral import Integral
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.hierarchy.reading.recurring.from_levels import FromLevels
from lowerbound.methods.hierarchy.surface import Solved
from lowerbound.rewrite.coordinates import Coordinates

HOPELESS = 100.0  # nats below the best point, where a solution may be no solution at all
NEGLIGIBLE = 1e-6  # the probability of all cells whose points are left out
MOST_NUMBERS = 20_000_000  # that points hold together, of laws and of precisions
FEWEST = 12  # points, however large


def integrated(
    coordinates: Coordinates,
    sites: Sequence[str],
    integral: Integral,
    pattern: Pattern,
    precision: Callable[[Solved], np.ndarray] = attrgetter("precision"),
    predictors: Predictors | None = None,
) -> tuple[Integrated, dict[str, Any], float]:
    """The density q(theta) q(z | theta) of an integral over the hyperparameters `sites`.

    And by how many nats it misses the law of z between points, where that is looked at.
    `precision` gives the entries of P at a point, of which it is kept for those of most mass.
    `predictors` say in which units z may be, and how it is made of what P is of, if of levels.
    """
    smoothed = integral.smoothed.trimmed()
    least = max(one.value for one in integral.solved) - HOPELESS
    own = tuple(one for one in integral.solved if one.value > least)
    solved, mixings = own, list[Mixing]()
    back = None if predictors is None else predictors.back
    if back is not None:
        every = [Mixing(back.matrix(one.t)) for one in own]
        made = [
            unmade(one, mixing, back, pattern, precision(one))
            for one, mixing in zip(own, every, strict=True)
        ]
        fine = [n for n, one in enumerate(made) if one is not None]
        own, mixings = tuple(own[n] for n in fine), [every[n] for n in fine]
        solved = tuple(one for one in made if one is not None)
    t, loc = (np.array([getattr(one, name) for one in solved]) for name in ("t", "loc"))
    s = smoothed.placed.inward(t)
    mass = _cell_masses(smoothed, s)
    log_sds = 0.5 * np.log([one.variance for one in solved])

    order = np.argsort(-mass, kind="stable")
    needed = int(np.searchsorted(np.cumsum(mass[order]), 1.0 - NEGLIGIBLE)) + 1
    kept = order[: min(needed, max(FEWEST, MOST_NUMBERS // (2 * loc.shape[1] + 1)))]
    anchors = np.arange(min(len(kept), max(1, MOST_NUMBERS // max(1, len(pattern.rows)))))

    def law(number: int) -> MixedLaw | None:
        entries = precision(own[number])
        factor = pattern.factor(entries)
        own_mixing = mixings[number] if mixings else None
        return None if factor is None else MixedLaw(pattern, entries, factor, own_mixing)

    points = Points(s, t, loc, log_sds, mass, pattern, law)
    follows = Following(Units(np.zeros((t.shape[1], loc.shape[1])), np.zeros(loc.shape[1])), 0.0)
    if predictors is not None and pattern.is_exact and len(solved) > t.shape[1] > 0:
        follows = following(points, effect_units(predictors, points), np.asarray(pattern.groups))
    units = follows.units
    means = loc * np.exp(units.logs(t))
    slopes, stretches = points.slopes(means), points.slopes(log_sds)
    rest = [(known - s @ by)[kept] for known, by in ((means, slopes), (log_sds, stretches))]
    inverse, lengths, shares = kernel(s[kept], rest, mass[kept])
    parameters = {
        "theta": smoothed.arrays(),
        "t": t[kept],
        "loc": loc[kept],
        "precision": np.array([precision(own[n]) for n in kept[anchors]]),
        "anchors": anchors,
        "variance": np.array([solved[number].variance for number in kept]),
        "slopes": slopes,
        "stretches": stretches,
        "units": units.weights,
        "floor": units.floor,
        "inverse": inverse,
        "lengths": lengths,
        "shares": shares,
        **{name: np.asarray(getattr(pattern, name)) for name in PATTERN},
    }
    if predictors is not None and predictors.relative is not None:
        parameters["relative"] = predictors.relative.arrays()
    if mixings:
        parameters |= mixing_parameters([mixings[number] for number in kept[anchors]])
    return Integrated(coordinates, tuple(sites), {"pattern": pattern}), parameters, follows.nats


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
