"""What a Gaussian of z given theta leaves of log p, and what that does to theta, means and sds.

At the Gaussian of the largest ELBO, log p - log q = L + R, and R is a sum over predictors, and
over clusters of those that meet, of functions without a constant, a linear and a quadratic part:
expanded in Hermite polynomials they begin at the third. They are tabulated. Of one number u of z,
exp of the expected R of its own predictors given u corrects the density of u. What the bound misses
is log E exp R: of groups of rows as far as one number of z says, the rest to second order. The
covariances of functions of normals with a correlation c are sums over their Hermite coefficients of
each order n times c^n (Mehler 1866); where predictors meet, weighed draws say all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array

from lowerbound.cost import Stopwatch, allowance
from lowerbound.family.numerics.smoothed import Smoothed
from lowerbound.methods.hierarchy.inner.given_hyperparameters import GivenHyperparameters
from lowerbound.methods.hierarchy.joint_terms import Normals, Root
from lowerbound.methods.hierarchy.missed.small_groups import (
    FARTHEST,
    Groups,
    Planes,
    left,
    normals,
)
from lowerbound.methods.hierarchy.points.integral import Integral
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.hierarchy.surface import Solved

PLACES = np.linspace(-6.0, 6.0, 49)  # of a number, in its own sds
WEIGHTS = np.exp(-0.5 * PLACES**2) / np.exp(-0.5 * PLACES**2).sum()
NODES = 7  # of what is beside a number of z in a predictor
ORDERS = range(3, 8)  # of Hermite polynomials that the places resolve; the rest is as of the next
AT_ONCE = 512  # rows whose correlations with others are held together
MOST = 1_000  # numbers of z, whose covariance is dense here
POINTS, MOST_POINTS = 14, 40  # values of theta at which it is looked at; of a single number
FIRST = 3  # of them, that tell whether it matters
RARE, COMMON = 1e-5, 3e-3  # mass of those that count, of a single number and of several
NEAR = 0.1  # distance of those that are one, in standardised coordinates
SMALLEST, BEYOND = 1e-6, 0.5  # nats; and logarithms beyond what was seen
LEAST, SLIGHT = 0.03, 0.03  # nats that what is missed changes by, and sds, that move nothing
STRAIGHT = 1e-4  # nats by which a parabola in a table is off: what it does is of second order
MOST_ABSENT = 5.0  # nats, up to which what is missed is known well


@dataclass(frozen=True, eq=False)
class Remainder:
    """What is left out at one theta.

    missed: log E exp R, in nats. shift, stretch: (d,), by what the means of z are to be moved, in
    sds, and its log sds.
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
    chosen = _spread(s, mass)
    found: list[Remainder] = []
    watch = Stopwatch()
    for number in chosen:
        # Half of what is left: a verdict is still to come.
        more = watch.own_seconds / max(len(found), 1) * (len(chosen) - len(found))
        late = allowance().over or more > 0.5 * allowance().left
        at = None if late else remainder(surface, solved[number])
        if at is None or at.missed > MOST_ABSENT:
            return integral
        found.append(at)
        if len(found) == FIRST and not _matters(found):
            return integral
    curve = _Curve(s[chosen], mass[chosen])
    # What is missed falls off by factors as scales go to zero.
    logs = np.log(np.maximum([[at.missed] for at in found], SMALLEST))
    missed = np.exp(curve(logs, s, BEYOND)[:, 0])
    shift = curve(np.array([at.shift for at in found]), s)
    stretch = curve(np.array([at.stretch for at in found]), s)
    pattern = surface.pattern
    places = tuple(
        _moved(place, value, by, wider, pattern.rows, pattern.columns)
        for place, value, by, wider in zip(solved, missed, shift, stretch, strict=True)
    )
    return replace(integral, smoothed=_raised(integral, missed), solved=places)


def _matters(found: list[Remainder]) -> bool:
    """Whether what is missed changes with theta, or moves z."""
    missed = [at.missed for at in found]
    moves = max(float(abs(part).max()) for at in found for part in (at.shift, at.stretch))
    return max(missed) - min(missed) > LEAST or moves > SLIGHT


def _spread(s: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """The points to look at: that of the most mass, and others far from it and from each other."""
    chosen = [int(mass.argmax())]
    single = s.shape[1] == 1
    possible = np.flatnonzero(mass > (RARE if single else COMMON))
    distances = np.linalg.norm(s - s[chosen[0]], axis=1)
    while len(chosen) < (MOST_POINTS if single else POINTS) and len(possible):
        number = int(possible[distances[possible].argmax()])
        if distances[number] < NEAR:
            break
        chosen.append(number)
        distances = np.minimum(distances, np.linalg.norm(s - s[number], axis=1))
    return np.array(chosen)


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
    table = _table(one.slopes(solved.t, Normals(mean, sd), PLACES))
    clusters = one.joint.clusters
    table[:, clusters[clusters >= 0]] = 0.0
    if not np.isfinite(table).all():
        return None
    curved = np.flatnonzero(abs(table[12:-12]).max(axis=0) > STRAIGHT)
    if not len(curved) and not len(clusters):
        return Remainder(0.0, np.zeros(d), np.zeros(d))
    unit = solve_triangular(lower, np.eye(d), lower=True) / np.sqrt(solved.variance)
    meets = design.toarray() != 0.0
    touched = meets[curved]
    scaled = half[:, curved] / sd[curved]
    along = _along(table[:, curved], touched, (unit.T @ scaled).T)
    if len(clusters):
        own = np.concatenate([meets, np.zeros((1, d), bool)])[clusters].any(axis=1)
        more = _along_clusters(one, solved.t, mean, half, unit, own)
        if not np.isfinite(more.table).all():
            return None
        along = along.beside(more, len(curved))
        touched = np.concatenate([touched, own])
    shift, stretch = _moments(along.sum_by(d))
    label = np.where(touched, touched.sum(axis=0), math.inf).argmin(axis=1)
    groups = along.only(label).sum_by(d)
    groups = groups[:, np.unique(label)]
    alone = float(np.log(np.maximum(WEIGHTS @ np.exp(np.minimum(groups, FARTHEST)), 1e-300)).sum())
    if not len(clusters):
        apart = float(np.sum(WEIGHTS @ groups**2 - (WEIGHTS @ groups) ** 2))
        missed = alone + 0.5 * (_variance(table[:, curved], scaled) - apart)
        return Remainder(missed, shift, stretch) if math.isfinite(missed) else None

    def parts(away: np.ndarray) -> np.ndarray:
        """R of every row, singles and clusters, at predictors `away` from their means."""
        singles = _read(table[:, curved], away[:, curved] / sd[curved])
        return np.concatenate([singles, left(one, solved.t, mean, half, away)], axis=1)

    names, number = np.unique(label, return_inverse=True)
    member = (number[:, None] == np.arange(len(names))) * 1.0
    of_row = np.full(one.count + 1, -1)
    of_row[curved] = number[: len(curved)]
    of_row[clusters] = np.where(clusters >= 0, number[len(curved) :, None], -1)
    planes = Planes.of(half, of_row[:-1])
    drawn = parts(normals(len(touched), d) @ half)
    if planes is None:
        apart = float(np.sum(WEIGHTS @ groups**2 - (WEIGHTS @ groups) ** 2))
        missed = alone + 0.5 * (float(drawn.sum(axis=1).var()) - apart)
    else:
        found = Groups(planes, parts(planes.away) @ member, member.T @ touched > 0)
        together = drawn @ member
        common = float(together.sum(axis=1).var() - together.var(axis=0).sum())
        shift, stretch = found.moments(unit, shift, stretch)
        missed = found.missed + 0.5 * common
    return Remainder(missed, shift, stretch) if math.isfinite(missed) else None


def _table(slopes: np.ndarray, known: np.ndarray = PLACES) -> np.ndarray:
    """R's part of every predictor at the places, from its slopes at those known."""
    from scipy.interpolate import CubicSpline

    values = CubicSpline(known, slopes).antiderivative()(PLACES)
    for polynomial, size in ((np.ones_like(PLACES), 1.0), (PLACES, 1.0), (PLACES**2 - 1.0, 2.0)):
        values = values - polynomial[:, None] * ((WEIGHTS * polynomial) @ values / size)
    table: np.ndarray = values
    return table


def _read(table: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A table's columns at the columns of x (n, rows), by straight lines between its places."""
    step = PLACES[1] - PLACES[0]
    where = np.clip((x - PLACES[0]) / step, 0.0, len(PLACES) - 1.0 - 1e-9)
    below = where.astype(int)
    share, rows = where - below, np.arange(x.shape[1])
    found: np.ndarray = (1.0 - share) * table[below, rows] + share * table[below + 1, rows]
    return found


def _variance(table: np.ndarray, scaled: np.ndarray) -> float:
    """Of the sum of R's parts, functions of standard normals with correlations scaled' scaled."""
    hermite = np.polynomial.hermite_e.hermevander(PLACES, ORDERS.stop)
    factorials = np.cumprod([1.0, *range(1, ORDERS.stop + 1)])
    coefficients = (hermite / np.sqrt(factorials) * WEIGHTS[:, None]).T @ table
    known = coefficients[ORDERS.start : ORDERS.stop]
    rest = np.maximum(WEIGHTS @ table**2 - (known**2).sum(axis=0), 0.0)
    each = np.concatenate([known, [np.copysign(np.sqrt(rest), coefficients[-1])]])
    total = 0.0
    for begin in range(0, table.shape[1], AT_ONCE):
        some = slice(begin, begin + AT_ONCE)
        correlation = scaled[:, some].T @ scaled
        power = correlation * correlation
        for own in each:
            power *= correlation
            total += float(own[some] @ (power @ own))
    return total


def _along(table: np.ndarray, touched: np.ndarray, correlation: np.ndarray) -> _Along:
    """The expected parts of R given single numbers of z, which are in their predictors."""
    row, number = np.nonzero(touched)
    c = np.clip(correlation[row, number], -1.0, 1.0)
    beside = np.sqrt(1.0 - c**2)
    found = np.zeros((len(PLACES), len(row)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        found += weight * _read(table[:, row], c * PLACES[:, None] + beside * node)
    return _Along(found, row, number)


def _along_clusters(
    one: Predictors,
    t: np.ndarray,
    mean: np.ndarray,
    half: np.ndarray,
    unit: np.ndarray,
    touched: np.ndarray,
) -> _Along:
    """The expected parts of R of clusters given single numbers of z, by their slopes along these.

    Given a number, the predictors of a cluster are normal again, with a covariance less b b'.
    """
    clusters = one.joint.clusters
    used = clusters >= 0
    roots = np.where(used, half[:, clusters], 0.0)  # (d, c, m)
    covariance = np.einsum("dci,dcj->cij", roots, roots)
    toward = np.einsum("du,dci->uci", unit, roots)  # b, of every number
    row, number = np.nonzero(touched)
    turn = np.arange(len(row)) - np.searchsorted(row, row)
    tables = np.zeros((len(PLACES), len(row)))
    for round_ in range(int(turn.max()) + 1):
        own = np.flatnonzero(turn == round_)
        which, b = row[own], np.zeros(clusters.shape)
        b[which] = toward[number[own], which]
        values, vectors = np.linalg.eigh(covariance - b[:, :, None] * b[:, None, :])
        deviation = np.zeros(one.count + 1)
        deviation[clusters] = b
        beside = Root(deviation[:-1], vectors * np.sqrt(np.maximum(values, 0.0))[:, None])
        slopes = one.slopes_along(t, mean, beside, PLACES[::2])
        tables[:, own] = _table(slopes[:, which], PLACES[::2])
    return _Along(tables, row, number)


def _moments(left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shifts and log stretches of standard normals whose density is multiplied by exp R, (n, d)."""
    shares = WEIGHTS[:, None] * np.exp(np.minimum(left, FARTHEST))
    shares = shares / shares.sum(axis=0)
    shift = PLACES @ shares
    square = PLACES**2 @ shares
    return shift, 0.5 * np.log(np.maximum(square - shift**2, 1e-6))


@dataclass(frozen=True, eq=False)
class _Along:
    """Parts of R (places, pairs) of a row each, as functions of a number of z each."""

    table: np.ndarray
    row: np.ndarray
    number: np.ndarray

    def beside(self, other: _Along, rows: int) -> _Along:
        """With those of further rows, after so many."""
        return _Along(
            np.concatenate([self.table, other.table], axis=1),
            np.concatenate([self.row, rows + other.row]),
            np.concatenate([self.number, other.number]),
        )

    def sum_by(self, d: int) -> np.ndarray:
        """Their sums for each of d numbers of z."""
        member = csr_array(
            (np.ones(len(self.row)), (np.arange(len(self.row)), self.number)), (len(self.row), d)
        )
        return np.asarray(self.table @ member)

    def only(self, label: np.ndarray) -> _Along:
        """Those of the number by which their row is labelled."""
        chosen = label[self.row] == self.number
        return _Along(self.table[:, chosen], self.row[chosen], self.number[chosen])


@dataclass(frozen=True, eq=False)
class _Curve:
    """Functions of theta known at a few points s: a straight line, and what it leaves nearby."""

    s: np.ndarray
    mass: np.ndarray

    def __call__(self, values: np.ndarray, s: np.ndarray, beyond: float = 0.0) -> np.ndarray:
        """Predictions (n, m) at the rows of s, of values (p, m): within what was seen, or near."""
        root = np.sqrt(self.mass / self.mass.sum() + 0.1 / len(self.mass))[:, None]
        features = np.concatenate([np.ones((len(self.s), 1)), self.s], axis=1)
        matrix = root * features
        ridge = np.diag([1e-9] + [1e-3] * self.s.shape[1])
        line = np.linalg.solve(matrix.T @ matrix + ridge, matrix.T @ (root * values))
        squares = ((s[:, None] - self.s) ** 2).sum(axis=2)
        near = 1.0 / (squares + 1e-6) ** 2
        rest = near @ (values - features @ line) / near.sum(axis=1, keepdims=True)
        found = np.concatenate([np.ones((len(s), 1)), s], axis=1) @ line + rest
        low, high = values.min(axis=0) - beyond, values.max(axis=0) + beyond
        within: np.ndarray = np.clip(found, low, high)
        return within


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
        coefficients=known.surrogate.coefficients + known.coefficients(missed - level),
        mean=known.surrogate.mean + level,
    )
    return replace(smoothed, surrogate=surrogate, ceiling=smoothed.ceiling + float(missed.max()))
