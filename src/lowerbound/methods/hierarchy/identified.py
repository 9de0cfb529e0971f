"""What the data of a hierarchy cannot tell apart: flat directions, and scales of single rows."""

from __future__ import annotations

import math

import numpy as np

from lowerbound.methods.hierarchy.predictors import Predictors

MOST = 1_500  # numbers of z, whose directions are looked at
FLAT = 1e-11  # relative precision along a direction that nothing is known of
FLAT_PRIORS = frozenset({"ImproperUniform"})


def flat_sites(one: Predictors) -> list[str]:
    """The sites along which the posterior is improper, whatever theta is.

    Only sites with flat priors can be: the others are known a little.
    """
    flat = [n for n in one.z if one.model.latent[n].distribution in FLAT_PRIORS]
    if not flat or one.size > MOST:
        return []
    t, none = np.zeros(one.dimension), np.zeros(one.lines)
    entries = one.entries(t)[one.joint.entry]
    bend = abs(one.expected(t, one.at(t, np.zeros(one.size)), none).curvature)
    if not (np.isfinite(bend).all() and np.isfinite(entries).all()):
        return []
    design = np.zeros((one.lines, one.size))
    np.add.at(design, (one.joint.row, one.columns[one.joint.entry]), entries)
    precision = design.T @ (bend[:, None] * design)
    scales = np.sqrt(np.diag(precision))
    unknown = scales == 0.0
    if unknown.any():
        return sorted({one.z[number] for number in one.groups[unknown]})
    values, vectors = np.linalg.eigh(precision / np.outer(scales, scales))
    if values[0] > FLAT:
        return []
    direction = abs(vectors[:, 0])
    return sorted({one.z[n] for n in one.groups[direction > 0.1 * direction.max()]})


def confounded(one: Predictors) -> tuple[tuple[str, ...], str] | None:
    """Scales that priors alone tell apart, and the site each element of which has one row.

    Of a Gaussian effect with one Gaussian row, the data know the sum of both variances, if both
    are unknown and the same for all rows.
    """
    observed = sum(math.prod(s.shape) for s in one.model.observed.values())
    sizes = np.bincount(one.groups, minlength=len(one.z))
    if observed < 2 or observed not in sizes or one.dimension < 2 or not one.is_quadratic:
        return None
    start = np.zeros(one.dimension)
    shares = _shares(one, start)
    moved = np.array(
        [abs(_shares(one, 0.5 * axis) - shares) > 1e-9 * shares for axis in np.eye(one.dimension)]
    )
    for number, site in enumerate(one.z):
        own = np.flatnonzero(one.groups[one.columns] == number)
        size = int(sizes[number])
        if size != observed or len(own) != 2 * size:
            continue
        own = own[np.lexsort((one.rows[own], one.columns[own]))]
        columns = one.columns[own]
        if (columns[::2] != columns[1::2]).any():
            continue
        pair = shares[own].reshape(size, 2)
        if (np.ptp(pair, axis=0) > 1e-9 * pair.max(axis=0)).any():
            continue
        chosen = np.flatnonzero(moved[:, own].any(axis=1))
        rows = np.zeros(one.count, bool)
        rows[one.rows[own]] = True
        elsewhere = moved[chosen][:, ~rows[one.rows]].any()
        if len(chosen) > 1 and not elsewhere:
            lengths = [int(np.prod(one.coordinates.shapes[n], dtype=int)) for n in one.theta]
            names = np.repeat(np.array(one.theta, dtype=object), lengths)
            return tuple(dict.fromkeys(names[chosen])), site
    return None


def _shares(one: Predictors, t: np.ndarray) -> np.ndarray:
    """What every coefficient adds to the precision of its number of z."""
    none = np.zeros(one.count)
    bend = one.expected(t, none, none).curvature
    shares: np.ndarray = one.entries(t) ** 2 * bend[one.rows]
    return shares
