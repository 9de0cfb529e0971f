"""What a Gaussian of z given theta leaves of log p, and what that does to theta, means and sds.

At the Gaussian of the largest ELBO, log p - log q = L + R, and R is a sum over predictors of
functions without a constant, a linear and a quadratic part: their expansions in Hermite polynomials
begin at the third. log E exp R is what the bound misses; draws weighted by exp R have the moments
of the posterior. For one number of z the parts of R are taken that its own predictors have: the
others hardly depend on it, and would only add noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array
from scipy.special import ndtri

from lowerbound.family.numerics.smoothed import Smoothed, low_discrepancy
from lowerbound.methods.hierarchy.given_hyperparameters import GivenHyperparameters
from lowerbound.methods.hierarchy.integration import Integral
from lowerbound.methods.hierarchy.surface import Solved

ORDERS = (3, 4, 5, 6)  # of the polynomials
DRAWS, FEWER = 4096, 1024
MOST = 1_000  # numbers of z, whose covariance is dense here
MOST_NUMBERS = 1_000_000  # draws times curved predictors, from where on they are fewer
EVENLY = 64  # numbers of z, up to which draws are of low discrepancy
FARTHEST = 20.0  # nats of a group of rows, beyond which a draw counts no more
POINTS = 12  # values of theta at which it is looked at
LEAST = 2e-3  # nats: what is missed no more than that moves nothing
EVEN = 0.5  # effective share of the draws, from which weights tell
SURE = 2.0  # standard errors, below which a correction is noise
MOST_ABSENT = 5.0  # nats, up to which what is missed is known well


@dataclass(frozen=True, eq=False)
class Remainder:
    """What is left out at one theta.

    missed: log E exp R, in nats. shift, stretch: (d,), by what the means of z are to be moved, in
    sds, and its log sds; 0 where the draws do not tell.
    """

    missed: float
    shift: np.ndarray
    stretch: np.ndarray


def with_remainders(surface: GivenHyperparameters, integral: Integral) -> Integral:
    """The integral with theta's density, means and sds of z corrected; itself where nothing is."""
    one = surface.predictors
    if one.is_quadratic or one.size > MOST or not surface.pattern.is_exact:
        return integral
    smoothed, solved = integral.smoothed, integral.solved
    s = smoothed.placed.inward(np.array([place.t for place in solved]))
    own = ((s**2).sum(axis=1) - 2 * smoothed.nodes @ s.T).argmin(axis=1)
    mass = np.bincount(own, smoothed.weights, len(s))
    chosen = np.argsort(-mass, kind="stable")[:POINTS]
    chosen = chosen[mass[chosen] > 1e-3]
    found = []
    for number in chosen:
        at = remainder(surface, solved[number])
        if at is None or at.missed > MOST_ABSENT:
            return integral
        found.append(at)
    if not found or max(at.missed for at in found) < LEAST:
        return integral
    curve = _Curve.of(s[chosen], mass[chosen])
    missed = curve(np.array([[at.missed] for at in found]), s)[:, 0]
    shift = curve(np.array([at.shift for at in found]), s)
    stretch = curve(np.array([at.stretch for at in found]), s)
    pattern = surface.pattern
    places = tuple(
        _moved(place, value, by, wider, pattern.rows, pattern.columns)
        for place, value, by, wider in zip(solved, missed, shift, stretch, strict=True)
    )
    return replace(integral, smoothed=_raised(integral, missed), solved=places)


def remainder(surface: GivenHyperparameters, solved: Solved) -> Remainder | None:
    """What is left out at a solution; None where it would take too long to say."""
    one, d = surface.predictors, surface.predictors.size
    entries = one.entries(solved.t)
    design = csr_array((entries, (one.rows, one.columns)), (one.count, d))
    precision = np.zeros((d, d))
    precision[surface.pattern.rows, surface.pattern.columns] = solved.precision
    precision[surface.pattern.columns, surface.pattern.rows] = solved.precision
    try:
        lower = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        return None
    half = solve_triangular(lower, design.T.toarray(), lower=True)  # of A C A' = half' half
    sd = np.sqrt((half**2).sum(axis=0))
    mean = one.at(solved.t, solved.loc)
    parts = one.expansion(solved.t, mean, sd)
    curved = np.flatnonzero(abs(parts).max(axis=0) > 1e-7)
    if not len(curved):
        return Remainder(0.0, np.zeros(d), np.zeros(d))
    normal = _normal(DRAWS if DRAWS * len(curved) <= MOST_NUMBERS else FEWER, d)
    x = normal @ (half[:, curved] / sd[curved])
    left = np.zeros_like(x)
    for order, part in zip(ORDERS, parts[:, curved], strict=True):
        left += np.polynomial.hermite_e.hermeval(x, np.eye(order + 1)[order]) * (
            part / math.factorial(order)
        )
    z = solve_triangular(lower, normal.T, lower=True, trans="T").T / np.sqrt(solved.variance)
    touched = design[curved].toarray() != 0.0
    shift, stretch = _weighted(z, left @ touched.astype(float))
    return Remainder(_log_mean(left, touched), shift, stretch)


def _normal(count: int, d: int) -> np.ndarray:
    """Draws of a standard normal vector, each with its opposite; the same at every theta."""
    if d <= EVENLY:
        half = np.asarray(ndtri(low_discrepancy(count // 2, d, 5)))
    else:
        half = np.random.default_rng(5).standard_normal((count // 2, d))
    return np.concatenate([half, -half])


def _log_mean(left: np.ndarray, touched: np.ndarray) -> float:
    """Log E exp R from draws (n, rows) of its parts: group by group of rows, and together.

    touched: (rows, d), which numbers of z are in a row. The rows of a group share the number that
    fewest rows have. Groups are nearly independent: to second order, what is left is covariance.
    """
    sizes = touched.sum(axis=0)
    label = np.where(touched, sizes, math.inf).argmin(axis=1)
    member = (label[:, None] == np.unique(label)).astype(float)
    left = left - left.mean(axis=0)  # whose expectation is zero
    groups, total = left @ member, left.sum(axis=1)
    alone = np.log(np.mean(np.exp(np.clip(groups, None, FARTHEST)), axis=0)).sum()
    return float(alone + 0.5 * (total.var() - groups.var(axis=0).sum()))


def _weighted(z: np.ndarray, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shifts and log stretches of the columns of z, each with weights of its own."""
    weights = np.exp(left - left.max(axis=0))
    weights = weights / weights.sum(axis=0)
    excess = weights - 1.0 / len(z)
    shift = (excess * z).sum(axis=0)
    centred = z - (weights * z).sum(axis=0)
    variance, plain = (weights * centred**2).sum(axis=0), z.var(axis=0)
    stretch = 0.5 * np.log(variance / plain)
    shift_error = np.sqrt((excess**2 * z**2).sum(axis=0))
    stretch_error = 0.5 * np.sqrt((excess**2 * (centred**2 - variance) ** 2).sum(axis=0)) / plain
    tell = 1.0 / (weights**2).sum(axis=0) > EVEN * len(z)
    return (
        np.where(tell & (abs(shift) > SURE * shift_error), shift, 0.0),
        np.where(tell & (abs(stretch) > SURE * stretch_error), stretch, 0.0),
    )


@dataclass(frozen=True, eq=False)
class _Curve:
    """Functions of theta that are nearly straight, known at a few points: regressions on s."""

    features: np.ndarray
    mass: np.ndarray
    s: np.ndarray

    @classmethod
    def of(cls, s: np.ndarray, mass: np.ndarray) -> _Curve:
        return cls(_features(s, len(s)), mass / mass.sum(), s)

    def __call__(self, values: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Predictions (n, m) at the rows of s, of values (p, m): within what was seen."""
        root = np.sqrt(self.mass)[:, None]
        matrix = root * self.features
        ridge = 1e-3 * np.eye(matrix.shape[1])
        ridge[0, 0] = 1e-9
        coefficients = np.linalg.solve(matrix.T @ matrix + ridge, matrix.T @ (root * values))
        found = _features(s, len(self.s)) @ coefficients
        within: np.ndarray = np.clip(found, values.min(axis=0), values.max(axis=0))
        return within


def _features(s: np.ndarray, count: int) -> np.ndarray:
    """A constant, s, and its squares where the points are enough for these."""
    parts = [np.ones((len(s), 1))]
    if count > 1 + s.shape[1]:
        parts.append(s)
    if count > 2 * (1 + s.shape[1]):
        parts.append(s**2)
    return np.concatenate(parts, axis=1)


def _moved(
    place: Solved,
    missed: float,
    shift: np.ndarray,
    stretch: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
) -> Solved:
    wider = np.exp(stretch)
    return replace(
        place,
        value=place.value + float(missed),
        loc=place.loc + shift * np.sqrt(place.variance),
        variance=place.variance * wider**2,
        precision=place.precision / (wider[rows] * wider[columns]),
    )


def _raised(integral: Integral, missed: np.ndarray) -> Smoothed:
    """Q(theta) with more mass where more is missed: a surrogate through the values with it."""
    known, smoothed = integral.interpolation, integral.smoothed
    level = float(missed.mean())
    surrogate = replace(
        known.surrogate,
        coefficients=known.surrogate.coefficients + known.inverse @ (missed - level),
        mean=known.surrogate.mean + level,
    )
    return replace(smoothed, surrogate=surrogate, ceiling=smoothed.ceiling + float(missed.max()))
