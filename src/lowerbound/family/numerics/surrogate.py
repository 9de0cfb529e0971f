"""A smooth function through known values: Gaussian-process interpolation in standardised space.

The prior is a sum of functions of one coordinate, of pairs, and of all together (Duvenaud,
Nickisch & Rasmussen 2011, "Additive Gaussian processes"): a posterior of hyperparameters is mostly
the sum of skewed curves with a few interactions, which takes far fewer points to learn than a
function of k coordinates at large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

LENGTHS = (1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)
SHARES = ((1.0, 0.1, 0.01), (1.0, 0.3, 0.1), (1.0, 1.0, 1.0), (1.0, 0.03, 0.0003))
NUGGETS = (1e-9, 1e-6, 1e-4)
TURNS = 2  # through the axes, each with a length of its own
AT_ONCE = 2**16  # kernel values held together: as many as stay in a core's cache


class Centred:
    """Coordinates s of t = centre + axes s. centre: (k,); axes: (k, k)."""

    centre: np.ndarray
    axes: np.ndarray

    def outward(self, s: np.ndarray) -> np.ndarray:
        """The t of the rows of s."""
        moved: np.ndarray = self.centre + s @ self.axes.T
        return moved

    def inward(self, t: np.ndarray) -> np.ndarray:
        """The s of the rows of t."""
        solved: np.ndarray = np.linalg.solve(self.axes, (t - self.centre).T).T
        return solved


@dataclass(frozen=True, eq=False)
class Frame(Centred):
    """Coordinates s of t, and the fall of a skewed curve along each of them.

    widths, skewness, tails: (k,). Where a tail is 0, the fall is that of the logarithm of a Gamma
    law, as logarithms of scales have it; elsewhere it becomes linear on both sides. beside: frames
    of other summits, each with how many nats it is lower.
    """

    centre: np.ndarray
    axes: np.ndarray
    widths: np.ndarray
    skewness: np.ndarray
    tails: np.ndarray
    beside: tuple[tuple[float, Frame], ...] = ()

    def fall(self, s: np.ndarray) -> np.ndarray:
        """The sum over the axes of their falls, at the rows of s; from the nearest summit."""
        place = s / self.widths
        light = skewed_fall(place, self.skewness)
        heavy = linear_fall(place, self.skewness, np.where(self.tails > 0, self.tails, 1.0))
        total: np.ndarray = np.where(self.tails > 0, heavy, light).sum(axis=1)
        for lower, other in self.beside:
            there = other.inward(self.outward(s))
            total = -np.logaddexp(-total, -lower - other.fall(there))
        return total


def skewed_fall(place: np.ndarray, skewness: np.ndarray | float) -> np.ndarray:
    """(exp(c x) - c x - 1) / c^2, or x^2 / 2 where c is 0; exponents are bounded."""
    c = np.where(abs(np.asarray(skewness)) < 1e-3, 1e-3, skewness)
    exponent = np.minimum(c * place, 12.0)
    small = abs(exponent) < 1e-2
    series = 0.5 * exponent**2 * (1 + exponent / 3 * (1 + exponent / 4))
    fall: np.ndarray = np.where(small, series, np.expm1(exponent) - c * place) / c**2
    return fall


def linear_fall(
    place: np.ndarray, skewness: np.ndarray | float, tail: np.ndarray | float
) -> np.ndarray:
    """A hyperbola's fall from where its slope is zero once a line is taken off: c^2 h(x / c).

    h(y) = root(y + b) - root(b) - b y / root(b) with root(y) = sqrt(1 + y^2).
    """
    y, b = place / tail, np.asarray(skewness)
    root = np.sqrt(1 + b**2)
    fall = tail**2 * (np.sqrt(1 + (y + b) ** 2) - root - b * y / root)
    positive: np.ndarray = np.maximum(fall, 0.0)
    return positive


@dataclass(frozen=True, eq=False)
class Surrogate:
    """f(t) = mean - fall(s) + sum over points of coefficient * kernel(s, point), s those of t.

    points: (n, k), their s. coefficients: (n,). lengths: (k,), of the kernel along each axis.
    shares: (3,), of functions of one coordinate, of two, and of all. mean: what f + fall reverts
    to far away. dead: (m, k), points without a value: wherever one of them is nearer than every
    point, the function is -inf.
    """

    frame: Frame
    points: np.ndarray
    coefficients: np.ndarray
    lengths: np.ndarray
    shares: np.ndarray
    mean: float
    dead: np.ndarray

    def __call__(self, t: np.ndarray) -> np.ndarray:
        """The values at the rows of t (m, k)."""
        s = self.frame.inward(t)
        most = max(1, AT_ONCE // max(len(self.points), 1))
        parts = [self._some(s[start : start + most]) for start in range(0, len(s), most)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _some(self, s: np.ndarray) -> np.ndarray:
        kernel = additive_kernel(s, self.points, self.lengths, self.shares)
        found = self.mean - self.frame.fall(s) + kernel @ self.coefficients
        if len(self.dead):
            alive = _squares(s, self.points).min(axis=1) <= _squares(s, self.dead).min(axis=1)
            found = np.where(alive, found, -np.inf)
        values: np.ndarray = found
        return values


@dataclass(frozen=True, eq=False)
class Interpolation:
    """A surrogate, with what it would say of each of its points without that point, and doubts.

    noise: (n,), the variance of each value beside the kernel. scale: that of the prior, in nats.
    """

    surrogate: Surrogate
    left_out: np.ndarray
    nugget: float
    noise: np.ndarray
    scale: float

    @cached_property
    def _factor(self) -> np.ndarray:
        """Cholesky's, of the kernel between the points."""
        one = self.surrogate
        matrix = kernel_between(one.points, self.noise, one.lengths, one.shares, self.nugget)
        factor: np.ndarray = np.linalg.cholesky(matrix)
        return factor

    def coefficients(self, values: np.ndarray) -> np.ndarray:
        """Those with which the kernel goes through some values at the points."""
        from scipy.linalg import cho_solve

        found: np.ndarray = cho_solve((self._factor, True), values)
        return found

    def doubt(self, t: np.ndarray) -> np.ndarray:
        """The sd of the function at the rows of t."""
        one = self.surrogate
        left = one.shares.sum() - (self._told(one.frame.inward(t)) ** 2).sum(axis=0)
        sds: np.ndarray = self.scale * np.sqrt(np.maximum(left, 0.0))
        return sds

    def covariance(self, t: np.ndarray) -> np.ndarray:
        """The covariance of the function between the rows of t."""
        one = self.surrogate
        s = one.frame.inward(t)
        told = self._told(s)
        prior = additive_kernel(s, s, one.lengths, one.shares)
        left: np.ndarray = self.scale**2 * (prior - told.T @ told)
        return left

    def _told(self, s: np.ndarray) -> np.ndarray:
        """A root of what the points tell of the function at s, (n, m).

        An inverse of the kernel would lose all digits of what is left: its condition is 1e9.
        """
        from scipy.linalg import solve_triangular

        one = self.surrogate
        known = additive_kernel(one.points, s, one.lengths, one.shares)
        root: np.ndarray = solve_triangular(self._factor, known, lower=True)
        return root


Score = tuple[float, np.ndarray, np.ndarray, np.ndarray]  # error, errors, coefficients, inverse
Choice = tuple[np.ndarray, np.ndarray, float]  # lengths, shares, nugget


def interpolate(
    frame: Frame,
    points: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    noise: np.ndarray,
    dead: np.ndarray,
    before: Interpolation | None = None,
) -> Interpolation:
    """The surrogate whose kernel predicts each value best from the others.

    points: (n, k), in the coordinates of the frame. `weights` say how much the error at each point
    matters; `noise`, the sd with which values are to be met. `before`: an interpolation of fewer
    points, whose kernel is tried first and only mended.
    """
    weights = weights / weights.sum()
    plain = values + frame.fall(points)
    exact = weights * (noise == 0.0)
    mean = float(exact @ plain / exact.sum())
    rest = plain - mean
    rest = np.where(noise > 0.0, np.minimum(rest, 0.0), rest)  # the fall may be deeper still
    noise = noise**2 / max(float(exact @ rest**2 / exact.sum()), 1e-2)
    k = points.shape[1]

    def score(choice: Choice) -> Score:
        errors, coefficients, inverse = errors_left_out(points, rest, noise, *choice)
        return float(weights @ errors**2), errors, coefficients, inverse

    shares = [np.array(one) for one in SHARES] if k > 1 else [np.array([1.0, 0.0, 0.0])]
    middle: Choice = (np.full(k, 2.8), shares[0], NUGGETS[0])
    if before is not None:
        middle = (before.surrogate.lengths, before.surrogate.shares, before.nugget)
    best = score(middle), middle
    factors = [l / 2.8 for l in LENGTHS] if before is None else [0.7, 1.4]
    best = _better(score, best, ((f * best[1][0], *best[1][1:]) for f in factors))
    best = _better(score, best, ((best[1][0], one, best[1][2]) for one in shares))
    best = _better(score, best, ((*best[1][:2], one) for one in NUGGETS))
    for _ in range(TURNS if k > 1 else 0):
        last = best[0][0]
        for axis in range(k):
            scaled = [np.where(np.arange(k) == axis, f, 1.0) for f in (1.6, 0.625)]
            best = _better(score, best, [(f * best[1][0], *best[1][1:]) for f in scaled])
        if best[0][0] > 0.8 * last:
            break
    (_, errors, coefficients, inverse), (lengths, share, nugget) = best
    surrogate = Surrogate(frame, points, coefficients, lengths, share, mean, dead)
    left_out = rest - errors + mean - frame.fall(points)
    # The scale with which errors at points left out are as large as they are.
    scale = float(np.sqrt(weights @ (coefficients**2 / np.diag(inverse))))
    return Interpolation(surrogate, left_out, nugget, noise, scale)


def _better(
    score: Callable[[Choice], Score], best: tuple[Score, Choice], choices: Iterable[Choice]
) -> tuple[Score, Choice]:
    """The best of what there is and of other choices."""
    for lengths, shares, nugget in choices:
        choice = np.clip(lengths, 0.4, 30.0), shares, nugget
        found = score(choice)
        if found[0] < best[0][0]:
            best = found, choice
    return best


def errors_left_out(
    points: np.ndarray,
    values: np.ndarray,
    noise: np.ndarray,
    lengths: np.ndarray,
    shares: np.ndarray,
    nugget: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Errors of the prediction of each value from the others, coefficients, inverse of the kernel.

    The errors are in closed form.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    matrix = kernel_between(points, noise, lengths, shares, nugget)
    try:
        inverse = cho_solve(cho_factor(matrix, lower=True), np.eye(len(points)))
    except LinAlgError:
        return np.full_like(values, np.inf), np.zeros_like(values), np.zeros_like(matrix)
    coefficients = inverse @ values
    errors = (coefficients.T / np.diag(inverse)).T
    return errors, coefficients, inverse


def kernel_between(
    points: np.ndarray,
    noise: np.ndarray,
    lengths: np.ndarray,
    shares: np.ndarray,
    nugget: float,
) -> np.ndarray:
    """The kernel of the points, with their noise and the nugget on its diagonal."""
    matrix = additive_kernel(points, points, lengths, shares)
    matrix[np.diag_indices_from(matrix)] += shares.sum() * (nugget + noise)
    return matrix


def additive_kernel(
    s: np.ndarray, points: np.ndarray, lengths: np.ndarray, shares: np.ndarray
) -> np.ndarray:
    """Shares of the sum over axes of their kernels, of that over pairs, and of the product."""
    k = s.shape[1]
    total, squares = np.zeros((len(s), len(points))), np.zeros((len(s), len(points)))
    product = np.ones_like(total)
    for own, other, length in zip(s.T, points.T, lengths, strict=True):
        one = own[:, None] / length - other / length
        one *= one
        one *= -0.5
        np.exp(one, out=one)
        total += one
        product *= one
        one *= one
        squares += one
    kernel: np.ndarray = shares[0] / k * total
    if k > 1:
        pairs = k * (k - 1) / 2
        kernel += shares[1] / pairs * 0.5 * (total**2 - squares)
        kernel += shares[2] * product
    return kernel


def _squares(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Squared distances of rows."""
    product = left @ right.T
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * product
    positive: np.ndarray = np.maximum(squares, 0.0)
    return positive
