"""Coordinates in which a surface looks like a standard normal law: curvature, then skew.

The curvature is taken from slopes a standard deviation away on both sides of the mode, so that it
is that of the mass rather than of the very top. Along each axis the fall of the surface on both
sides then gives a scale and a tail for each side, as INLA's skew correction does (Rue, Martino &
Chopin 2009, section 6.5).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence

import numpy as np

from lowerbound.family.numerics.smoothed import Placed
from lowerbound.family.numerics.surrogate import Frame, linear_fall, skewed_fall
from lowerbound.family.numerics.tabulated import Tabulated
from lowerbound.methods.hierarchy.summits.uphill import Evaluated, Summit, Walk
from lowerbound.methods.hierarchy.surface import Solved

WIDER = 1.05  # the proposal, than what was seen
KNOTS = 512  # of the proposal along an axis
DEEP = 25.0  # nats below its top, where the proposal ends
TAILS = (0.8, 1.0, 1.3, 1.7, 2.3, 3.5, 6.0, 50.0)  # where a tail turns from normal to exponential
USUAL = 2.0  # of a side that was looked at once
CLOSE = 0.05  # misfit of a curve that will do, in squares of logarithms
TWICE = 15  # hyperparameters, up to which each side is looked at twice
FLATTEST = 0.02  # curvature along an axis of the climb
SMOOTH = 0.35  # sd of the kernel of a marginal density, in sds of the marginal
WIDEST = 30.0  # standard deviation of an unconstrained hyperparameter


def standardised(
    evaluated: Evaluated, summit: Summit
) -> Generator[Solved, None, tuple[Placed, Frame]]:
    """Coordinates around the summit, a proposal in them, and the skew of the surface along them.

    Yields after every evaluation.
    """
    axes = yield from axes_around(evaluated, summit)
    evaluated.scales = np.sqrt((axes**2).sum(axis=1))
    twice = len(axes) <= TWICE
    falls = [_fall(summit.top, sign * axis, twice) for axis in axes.T for sign in (-1.0, 1.0)]
    seen = yield from evaluated.abreast(falls)
    pairs = list(zip(seen[::2], seen[1::2], strict=True))
    rows = [[_side(one) for one in sides] for sides in pairs]
    curves = [_skewed(sides) for sides in pairs]
    centre = summit.top.t
    return Placed(centre, axes, _table(rows)), Frame(centre, axes, *np.array(curves).T)


def placed_again(t: np.ndarray, weights: np.ndarray) -> Placed:
    """Coordinates and a proposal from weighted points (n, k) of a density: its moments and shape.

    The proposal of each axis is its marginal density, widened, with a part that is wider still.
    """
    weights = weights / weights.sum()
    centre = weights @ t
    spread = ((t - centre) * weights[:, None]).T @ (t - centre)
    return density_along(centre, square_root(spread), t, weights)


def density_along(
    centre: np.ndarray, axes: np.ndarray, t: np.ndarray, weights: np.ndarray, apart: bool = False
) -> Placed:
    """Given axes with the marginal density of weighted points (n, k) along each as a proposal.

    apart: whether the points are in several places, around each of which the proposal is wider.
    """
    s = np.linalg.solve(axes, (t - centre).T).T
    reach = np.maximum(abs(s[weights > 1e-9]).max(axis=0), 3.0) + 2.5
    knots = np.linspace(-1.0, 1.0, KNOTS + 1)
    rows = []
    for own, far in zip(s.T, reach, strict=True):
        places = far * knots
        inside = np.clip(own, -far, far)
        counts, _ = np.histogram(
            inside, np.append(places, far) - 0.5 * far / KNOTS * 2, weights=weights
        )
        bandwidth = 0.35
        distances = abs(places[:, None] - places)
        density = np.exp(-0.5 * (distances / bandwidth) ** 2) @ counts
        wide = np.exp(-0.5 * (places / 2.0) ** 2)
        if apart:  # between them the proposal must not fall faster than the surface may
            wide = np.exp(-distances / 1.5) @ counts
        density = 0.9 * density / density.sum() + 0.1 * wide / wide.sum()
        rows.append(np.log(np.maximum(density, 1e-30)))
    return Placed(centre, axes, Tabulated.of(-reach, 2 * reach / KNOTS, np.stack(rows)))


def square_root(spread: np.ndarray) -> np.ndarray:
    """Axes whose product with their transpose is the covariance: scales times correlation^(1/2).

    Of all roots it is the nearest to the coordinates themselves: what is skewed in a coordinate
    is skewed along an axis.
    """
    scales = np.sqrt(np.diag(spread))
    values, vectors = np.linalg.eigh(spread / np.outer(scales, scales))
    root: np.ndarray = scales[:, None] * (vectors * np.sqrt(np.maximum(values, 1e-10))) @ vectors.T
    return root


def axes_around(evaluated: Evaluated, summit: Summit) -> Generator[Solved, None, np.ndarray]:
    """The inverse square root of the curvature around the summit, by differences of slopes."""
    top = summit.top
    values, vectors = np.linalg.eigh(summit.spread)
    spread = (vectors * np.clip(values, 1e-10, 4.0)) @ vectors.T
    first = square_root(spread)
    evaluated.scales = np.sqrt(np.diag(spread))
    bends = yield from evaluated.abreast([_bent(top, axis) for axis in first.T], slope=True)
    bend = np.linalg.solve(first.T, np.stack(bends))  # rows: the curvature times an axis
    inside = first.T @ (0.5 * (bend + bend.T)) @ first
    values, vectors = np.linalg.eigh(inside)
    root = first @ (vectors / np.sqrt(np.maximum(values, FLATTEST))) @ vectors.T
    return square_root(root @ root.T)


def _bent(top: Solved, axis: np.ndarray) -> Walk[np.ndarray]:
    """The curvature times an axis, from both sides of the summit."""
    size, up = 1.0, None
    for _ in range(8):
        up = yield top.t + size * axis
        fall = top.value - up.value
        if fall > 4.0:
            size *= 0.3 if not math.isfinite(fall) else max(0.1, math.sqrt(0.8 / fall))
        elif fall < 0.1 and size * float(abs(axis).max()) < 4.0:
            size *= 2.5
        else:
            break
    down = yield top.t - size * axis
    assert up is not None
    return _bend(top, up, down, size)


def _bend(top: Solved, up: Solved, down: Solved, size: float) -> np.ndarray:
    """Minus the change of the slope per unit of an axis, from those sides that have a value."""
    ends = [(one, place) for one, place in ((up, size), (down, -size)) if one.slope is not None]
    if len(ends) < 2:
        ends.append((top, 0.0))
    if len(ends) < 2:
        return np.zeros_like(top.t)
    (one, here), (other, there) = ends[0], ends[-1]
    assert one.slope is not None
    assert other.slope is not None
    change: np.ndarray = -(one.slope - other.slope) / (here - there)
    return change


def _fall(top: Solved, axis: np.ndarray, twice: bool) -> Walk[list[tuple[float, float]]]:
    """Distances along an axis and how far the surface has fallen there: by about one nat, four."""
    size, last = 1.5, (1.5, 1.0)
    for _ in range(6):
        found = yield top.t + size * axis
        fall = top.value - found.value
        if fall > 6.0:
            size *= 0.4 if not math.isfinite(fall) else max(0.3, math.sqrt(1.2 / fall))
            last = (size, 1.2)
            continue
        last = (size, max(fall, 0.25))
        if fall >= 0.25 or size * float(abs(axis).max()) > WIDEST:
            break
        size *= 2.0
    seen = [last]
    if twice:
        far = last[0] * math.sqrt(4.0 / last[1])
        found = yield top.t + far * axis
        fall = top.value - found.value
        if last[1] * 1.2 < fall < 15.0:
            seen.append((far, fall))
    return seen


def _side(seen: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The scale and the tail of a side, from what was seen of its fall."""
    far, fall = seen[-1]
    if len(seen) == 1:
        return far / _place(fall, USUAL), USUAL
    near, small = seen[0]

    def misfit(tail: float) -> float:
        scale = far / _place(fall, tail)
        return float(abs(_height(np.asarray(near / scale), tail) - small))

    tail = min(TAILS, key=misfit)
    return far / _place(fall, tail), tail


def _skewed(sides: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, float, float]:
    """The width, the skewness and the tail of the curve whose falls are nearest to those seen."""
    signed = zip((-1.0, 1.0), sides, strict=True)
    places = np.array([sign * x for sign, seen in signed for x, _ in seen])
    falls = np.array([fall for seen in sides for _, fall in seen])
    usual = float(np.median(abs(places) / np.sqrt(2 * falls)))
    widths = usual * np.geomspace(0.3, 2.5, 65)
    light = np.linspace(-2.0, 2.0, 81)
    misfit = _misfit(skewed_fall(places / widths[:, None], light[:, None, None]), falls)
    row, column = np.unravel_index(int(misfit.argmin()), misfit.shape)
    best = float(misfit.min()), float(widths[column]), float(light[row]), 0.0
    if len(places) > 2 and best[0] > CLOSE:  # two looks decide no more than a width and a skewness
        tails, heavy = np.geomspace(0.3, 4.0, 12), np.linspace(-1.5, 1.5, 31)
        curves = linear_fall(
            places / widths[:, None], heavy[:, None, None], tails[:, None, None, None]
        )
        other = _misfit(curves, falls)
        tail, row, column = np.unravel_index(int(other.argmin()), other.shape)
        if other.min() < 0.5 * best[0]:
            best = 0.0, float(widths[column]), float(heavy[row]), float(tails[tail])
    return best[1:]


def _misfit(curves: np.ndarray, falls: np.ndarray) -> np.ndarray:
    """How far curves (..., n) are from falls (n,)."""
    misfit: np.ndarray = (np.log(np.maximum(curves, 1e-9) / falls) ** 2).sum(axis=-1)
    return misfit


def _height(place: np.ndarray, tail: float) -> np.ndarray:
    """A fall that is place^2 / 2 near zero and linear, of slope `tail`, far away."""
    found: np.ndarray = tail**2 * (np.sqrt(1.0 + (place / tail) ** 2) - 1.0)
    return found


def _place(height: float, tail: float) -> float:
    """Where the fall has a given height."""
    return tail * math.sqrt((1.0 + height / tail**2) ** 2 - 1.0)


def _table(rows: Sequence[Sequence[tuple[float, float]]]) -> Tabulated:
    """The proposal whose axes fall by the scales and tails of their two sides."""
    low, step, log_density = [], [], []
    for (left, left_tail), (right, right_tail) in rows:
        left, right = WIDER * left, WIDER * right
        ends = -left * _place(DEEP, left_tail), right * _place(DEEP, right_tail)
        knots = np.linspace(*ends, KNOTS + 1)
        below = _height(np.minimum(knots, 0.0) / left, left_tail)
        above = _height(np.maximum(knots, 0.0) / right, right_tail)
        low.append(ends[0])
        step.append((ends[1] - ends[0]) / KNOTS)
        log_density.append(-(below + above))
    return Tabulated.of(np.array(low), np.array(step), np.stack(log_density))
