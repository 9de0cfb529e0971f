"""Summits of log p that q may not know of: climbs from afar, with log p that is compiled already.

Draws of q, weights of them and chains from them see nothing beyond a valley. So some dozens of
points, around q at many scales and at its mirror images, climb at once (BFGS, where q is standard).
Where one ends beyond a valley, its height and curvature tell about what mass is there. Of many
numbers only those places are looked at that other starts of the fit have come to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpyro.distributions import constraints

from lowerbound.family.numerics.surrogate import Centred
from lowerbound.result.verdicts import Drawn
from lowerbound.trust.against import Against
from lowerbound.trust.optima.relabelled import aligned

MOST_NUMBERS = 40  # of a vector that is climbed with a matrix
SEARCHED = 10_000  # points of log p, where there is time
STARTS = 64  # points that climb: those of one batch
ROUNDS, FEWEST = 80, 12  # steps of a climb at most, and those without which none is tried
SCALES = (2.0, 100.0)  # sds of q, between which starts around it are away
BESIDE = 0.1  # sds of q, by which a climb starts away from an optimum
BOX = (2.0, 10.0)  # half widths of the boxes that other starts are in
RESTED = 0.05  # nats that another step would gain, below which a climb has ended
MOST_OF = 0.75  # of the climbs, whose steps are the usual number
RIDGE = 20  # steps, and one for every number, in which a climb from q comes to its summit
PATIENCE = 8  # steps more than twice the usual, or than the last climb took to its end
LONGER = 4.0  # times, that a step is where the last went along a valley's side
STEEP = 0.1  # of the slope along a step that is left behind it, for a longer one
DEEP = 1.0  # nats that a valley between two summits is below both
BETWEEN = np.linspace(0.0, 1.0, 11)[1:-1]
ALIKE = 0.05  # of their own size, by which the numbers of two labellings may differ
SAME = 0.1  # nats between the heights of a summit and its image
MOST_PROPOSED = 100  # numbers of a vector that draws are proposed for
MOST = 4  # summits beside that of q
SHIFTS, WIDENS = 0.1, 0.2  # of a mean in sds, and of a variance, by a summit that counts
AWAY = 3.0  # sds of q, in which nothing else is looked for
COUNTS = 3.0  # nats below the best, that another optimum of many numbers may be: a twentieth

Optima = Sequence[tuple[float, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Summit:
    """A summit beyond a valley: where, the root of its covariance, and its mass over that of q.

    mirrored: the sites whose signs are all that differs from the summit of q, which is as high.
    """

    vector: np.ndarray
    root: np.ndarray
    mass: float
    mirrored: tuple[str, ...] = ()


def other_summits(
    judge: Against, drawn: Drawn, log_mass: float, points: float, optima: Optima = ()
) -> tuple[Summit, ...]:
    """Summits that matter for means or sds, found with about so many points of log p.

    log_mass: log of the mass where q is. optima: where other starts of the fit have converged. A
    summit as high, with the same numbers in another order, has other names for its components, and
    is none.
    """
    dimension = drawn.vectors.shape[1]
    fine = np.isfinite(drawn.log_p)
    if fine.sum() < 2 or not judge.target.everywhere:
        return ()
    rounds = int(min(ROUNDS, points / STARTS))
    if dimension > MOST_NUMBERS or rounds < 1 or fine.sum() <= dimension:
        return _of_starts(judge, drawn.vectors[fine], optima)
    slope = _Slope(judge, *_standard(drawn.vectors[fine]))
    starts = _starts(judge, slope, drawn.vectors[fine], optima)
    if rounds < FEWEST and not _promising(slope, starts):
        return _of_starts(judge, drawn.vectors[fine], optima)
    return _judged(judge, slope, _climbed(slope, starts, max(rounds, FEWEST)), log_mass)


def _promising(slope: _Slope, starts: np.ndarray) -> bool:
    """Whether a start away from q is as high as q already: one look, where a climb takes long."""
    heights = slope(starts)[0]
    away = np.linalg.norm(starts - starts[0], axis=1) > AWAY * math.sqrt(starts.shape[1])
    return bool((heights[away] > heights[0] - COUNTS).any())


# --------------------------------------------------------------------------------------------------
# Climbing


@dataclass(frozen=True, eq=False)
class _Slope(Centred):
    """log p where q is standard, as a function of z: u = centre + axes z."""

    judge: Against
    centre: np.ndarray
    axes: np.ndarray

    def __call__(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = self.judge.target(self.outward(z), few=True)
        fine = np.isfinite(values) & np.isfinite(gradients).all(axis=1)
        inner = np.where(fine[:, None], gradients, 0.0) @ self.axes
        return np.where(fine, values, -np.inf), inner


@dataclass(frozen=True, eq=False)
class _Ends:
    """Where climbs have ended: rows z, heights, inverse curvatures, and those that rest."""

    z: np.ndarray
    heights: np.ndarray
    inverse: np.ndarray
    rested: np.ndarray


def _standard(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean of draws, and a root of their covariance, leaning on its diagonal."""
    count, dimension = vectors.shape
    mean, sd = vectors.mean(axis=0), np.maximum(vectors.std(axis=0), 1e-12)
    unit = (vectors - mean) / sd
    share = count / (count + 5.0 + dimension)
    correlation = share * unit.T @ unit / count + (1.0 - share) * np.eye(dimension)
    return mean, sd[:, None] * np.linalg.cholesky(correlation)


def _starts(judge: Against, slope: _Slope, vectors: np.ndarray, optima: Optima) -> np.ndarray:
    """Rows z: the centre of q, its mirror images, other optima, and points around at many scales.

    Other optima may be summits already. A climb from there has no step to learn the curvature of,
    so it starts beside them. The seed is one for all, so that a verdict is the same twice.
    """
    rng, dimension = np.random.default_rng(0), vectors.shape[1]
    mirrored = [slope.centre * sign for sign in _signs(judge)]
    known = [place for _, place in optima if len(place) == dimension]
    fixed = np.stack([slope.centre, *known, *mirrored])[: STARTS // 2]
    left = STARTS - len(fixed)
    way = rng.standard_normal((left // 2, dimension))
    way /= np.linalg.norm(way, axis=1, keepdims=True) / math.sqrt(dimension)
    low, high = (math.log(scale) for scale in SCALES)
    away = np.exp(rng.uniform(low, high, (left // 2, 1)))
    wide = np.resize(BOX, (left - left // 2, 1))
    boxed = rng.uniform(-1.0, 1.0, (left - left // 2, dimension)) * wide
    inward = slope.inward(fixed)
    beside = inward[1 : 1 + len(known)]
    beside += BESIDE * rng.standard_normal(beside.shape)
    return np.concatenate([inward, way * away, slope.inward(boxed)])


def _signs(judge: Against) -> list[np.ndarray]:
    """The changes of sign of one or two sites of real numbers."""
    coordinates = judge.coordinates
    real = []
    for site in coordinates.shapes:
        support: Any = coordinates.supports.get(site)
        while hasattr(support, "base_constraint"):
            support = support.base_constraint
        real += [site] if support is constraints.real else []
    found = []
    for sites in [*combinations(real, 1), *combinations(real, 2)]:
        sign = np.ones(coordinates.size)
        for site in sites:
            sign[coordinates.part(site)] = -1.0
        found.append(sign)
    return found


def _climbed(slope: _Slope, z: np.ndarray, rounds: int) -> _Ends:
    """BFGS from every row, all at once, with steps that are shortened until log p is higher.

    Where log p is convex along a step, as in a heavy tail, the next one is longer. It ends when all
    have come to rest, and when for as long again as most took, or the last did, no other has. Where
    the first, from the centre of q, comes to no rest, q is on a ridge without a summit, as scales
    of hierarchies are: the others would climb that for ever.
    """
    count, dimension = z.shape
    inverse = np.repeat(np.eye(dimension)[None], count, axis=0)
    length, fresh = np.ones(count), np.ones(count, bool)
    height, gradient = slope(z)
    way, gain = gradient.copy(), (gradient**2).sum(axis=1)
    ended, latest, usual = ~np.isfinite(height), math.inf, math.inf
    for number in range(rounds):
        climbs = np.isfinite(height) & (length > 1e-6)
        done = ~(climbs & (gain > RESTED / 50))
        latest = number if (done & ~ended).any() else latest
        ended |= done
        usual = number if ended.mean() < MOST_OF else min(usual, number)
        ridge = number > RIDGE + dimension and not ended[0]
        if done.all() or ridge or number > 2 * min(latest, usual) + PATIENCE:
            break
        own = np.flatnonzero(climbs & (gain > RESTED / 1e6))  # as near as the others allow
        most = np.maximum(3.0, 0.5 * np.linalg.norm(z[own], axis=1))
        norm = np.linalg.norm(way[own], axis=1)
        step = way[own] * (length[own] * np.minimum(1.0, most / np.maximum(norm, 1e-300)))[:, None]
        new_height, new_gradient = slope(z[own] + step)
        promised = (step * gradient[own]).sum(axis=1)
        better = new_height > height[own] + 1e-4 * promised
        bent = gradient[own] - new_gradient
        turn = (step * bent).sum(axis=1)
        learns, convex = better & (turn > 1e-10), better & (turn <= 1e-10)
        first = own[learns & fresh[own]]
        if len(first):
            square = np.maximum((bent**2).sum(axis=1), 1e-300)
            scale = (turn / square)[learns & fresh[own]]
            inverse[first] = np.eye(dimension) * scale[:, None, None]
            fresh[first] = False
        inverse[own[convex]] *= LONGER
        inverse[own[learns]] = _updated(inverse[own[learns]], step[learns], bent[learns])
        moved = own[better]
        z[moved] = z[moved] + step[better]
        gradient[moved], height[moved] = new_gradient[better], new_height[better]
        steep = (step * new_gradient).sum(axis=1) > STEEP * promised
        steep &= norm * length[own] < most
        longest = np.where(steep, 2.0 * np.maximum(length[own], 1.0), 1.0)
        length[own] = np.where(better, np.minimum(longest, 4.0 * length[own]), 0.25 * length[own])
        way[own] = (inverse[own] @ gradient[own][:, :, None])[:, :, 0]
        gain[own] = (way[own] * gradient[own]).sum(axis=1)
    fresh[0] = False  # that of q may be there already
    return _Ends(z, height, inverse, np.isfinite(height) & (gain < RESTED) & ~fresh)


def _updated(inverse: np.ndarray, step: np.ndarray, bent: np.ndarray) -> np.ndarray:
    """Inverse curvatures that know how the slope has turned along a step (BFGS)."""
    turn = (step * bent).sum(axis=1)[:, None, None]
    moved = inverse @ bent[:, :, None]
    s, y = step[:, :, None], bent[:, None, :]
    square = s @ np.swapaxes(s, 1, 2)
    mixed = moved @ np.swapaxes(s, 1, 2)
    updated: np.ndarray = inverse + (1.0 + y @ moved / turn) * square / turn
    updated -= (mixed + np.swapaxes(mixed, 1, 2)) / turn
    return updated


# --------------------------------------------------------------------------------------------------
# What the ends are


def _judged(judge: Against, slope: _Slope, ends: _Ends, log_mass: float) -> tuple[Summit, ...]:
    """The summits beyond a valley that have enough mass, the highest first."""
    home = ends.z[0] if ends.rested[0] else np.zeros_like(ends.z[0])
    own = _root(slope, ends.z[0], ends.inverse[0]) if ends.rested[0] else None
    if own is not None:  # what one approximation misses of both masses is much the same
        log_mass = _log_mass(ends.heights[0], own)
    known, found = [home], list[Summit]()
    order = [int(i) for i in np.argsort(-ends.heights) if ends.rested[i]]
    for i in order:
        if len(found) == MOST:
            break
        if _is_near(ends.z[i], known):
            continue
        z = _nearest_image(judge, slope, home, ends.z[i])
        if _is_near(z, known):
            continue
        # Names and signs are free where images are as high; how high that of q is must be known.
        free = not ends.rested[0] or abs(ends.heights[i] - ends.heights[0]) < SAME
        alike = _images(judge, slope.outward(np.stack([home, z]))) if free else ()
        if alike is None:
            known.append(z)
        elif _beyond(slope, z, known):
            known.append(z)
            one = _summit(slope, ends, i, z - home, log_mass)
            root = None if one is None else _root(slope, z, ends.inverse[i])
            if one is not None and root is not None:
                place = slope.outward(z[None])[0]
                found.append(replace(one, vector=place, root=root, mirrored=alike))
    return tuple(found)


def _is_near(z: np.ndarray, known: Sequence[np.ndarray]) -> bool:
    return bool((np.linalg.norm(np.stack(known) - z, axis=1) < 0.1).any())


def _nearest_image(judge: Against, slope: _Slope, home: np.ndarray, z: np.ndarray) -> np.ndarray:
    """An end with the names of its components that come nearest to those of q."""
    here, place = slope.outward(np.stack([home, z]))
    image = aligned(judge, here, place, np.sqrt((slope.axes**2).sum(axis=1)))
    return z if image is place else slope.inward(image[None])[0]


def _beyond(slope: _Slope, one: np.ndarray, known: Sequence[np.ndarray]) -> bool:
    """Whether there is a valley between a place and every one that is known."""
    paths = [other + BETWEEN[:, None] * (one - other) for other in known]
    heights = slope(np.concatenate([one[None], np.stack(known), *paths]))[0]
    ends, lows = heights[: 1 + len(known)], heights[1 + len(known) :].reshape(len(known), -1)
    return all(
        low.min() < min(ends[0], end) - DEEP for low, end in zip(lows, ends[1:], strict=True)
    )


def _summit(slope: _Slope, ends: _Ends, i: int, way: np.ndarray, log_mass: float) -> Summit | None:
    """A summit with its mass, where that matters; `way` leads there, or to its image, from q."""
    root = _root(slope, ends.z[i], ends.inverse[i])
    if root is None:
        return None
    mass = math.exp(min(_log_mass(ends.heights[i], root) - log_mass, 50.0))
    sds = np.sqrt((slope.axes**2).sum(axis=1))
    far = float((np.abs(slope.axes @ way) / sds).max())
    share = mass / (1.0 + mass)
    if share * far < SHIFTS and share * far**2 < WIDENS:
        return None
    return Summit(slope.outward(ends.z[i][None])[0], root, mass)


def _root(slope: _Slope, z: np.ndarray, inverse: np.ndarray) -> np.ndarray | None:
    """The root of the inverse curvature of log p at a row, in u; None where it is none.

    inverse: about that curvature, for the steps of differences.
    """
    dimension = len(z)
    h = 0.1 * np.sqrt(np.maximum(np.diagonal(inverse), 1e-16))
    steps = np.diag(h)
    slopes = slope(np.concatenate([z + steps, z - steps]))[1]
    bent = -(slopes[:dimension] - slopes[dimension:]) / (2 * h[:, None])
    try:
        root = slope.axes @ np.linalg.cholesky(np.linalg.inv(0.5 * (bent + bent.T)))
        found: np.ndarray = np.linalg.cholesky(root @ root.T)
    except np.linalg.LinAlgError:
        return None
    return found


def _log_mass(height: float, root: np.ndarray) -> float:
    """That of a Gaussian of this height (Laplace's approximation)."""
    half = 0.5 * len(root) * math.log(2 * math.pi)
    return float(height + half + np.log(np.diagonal(root)).sum())


def _of_starts(judge: Against, vectors: np.ndarray, optima: Optima) -> tuple[Summit, ...]:
    """Optima that other starts have come to, with a valley before them and enough mass."""
    centre, sds = vectors.mean(axis=0), vectors.std(axis=0)
    found = []
    for gap, place in optima:
        if not gap < COUNTS or len(place) != len(centre):
            continue
        if not _valley(judge, centre, place):
            continue
        place = aligned(judge, centre, place, np.maximum(sds, 1e-12))
        alike = _images(judge, np.stack([centre, place]))
        if alike is not None and _valley(judge, centre, place):
            root = np.diag(sds) if len(sds) <= MOST_PROPOSED else np.zeros((0, 0))
            found.append(Summit(place, root, math.exp(-gap), alike))
    return tuple(found)


def _valley(judge: Against, one: np.ndarray, other: np.ndarray) -> bool:
    """Whether log p has a valley between two places."""
    path = one + np.array([0.0, *BETWEEN, 1.0])[:, None] * (other - one)
    heights = judge.target(path, few=True)[0]
    lowest = float(np.min(np.where(np.isfinite(heights), heights, -math.inf)))
    return bool(lowest < min(heights[0], heights[-1]) - DEEP)


def _images(judge: Against, both: np.ndarray) -> tuple[str, ...] | None:
    """The sites whose signs alone differ; none where more does, None where names alone do."""
    flipped, plain, named = [], True, True
    for site, array in judge.values(both).items():
        one, other = (part.ravel() for part in array)
        close = ALIKE * np.abs(one).max()
        named &= np.allclose(np.sort(one), np.sort(other), rtol=ALIKE, atol=close)
        if np.allclose(one, other, rtol=ALIKE, atol=close):
            continue
        plain &= np.allclose(np.abs(one), np.abs(other), rtol=ALIKE, atol=close)
        flipped.append(site)
    if named:
        return None
    return tuple(flipped) if plain else ()
