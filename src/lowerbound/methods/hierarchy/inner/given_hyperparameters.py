"""The best Gaussian of z at given hyperparameters, with a sparse precision P = A' W A.

Where every term is a parabola of its predictor, z given theta is Gaussian and one solution is
exact. Otherwise P and the mean are those of the largest ELBO (Opper and Archambeau 2009): W holds
the expected curvatures of the terms, and steps are Newton's. At the optimum the ELBO depends on
theta through log p alone, so that its slope needs no derivative of the solution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np

from lowerbound.family.sparse.elimination import AnyFactor, Pattern
from lowerbound.family.sparse.gram import Gram, gram_pattern
from lowerbound.methods.hierarchy.asked_of_terms import Expected, Law
from lowerbound.methods.hierarchy.joint_terms import positive
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.hierarchy.surface import Solved

TOLERANCE = 3e-4  # nats that a solution may be below the best, which its mean and sd hardly show
CLOSELY = 1e-5  # where the slope is wanted, whose error goes with the root of it
LIMIT = 60  # steps
HALVINGS = 12
IDLE = 2  # steps in a row that were halved and gained next to nothing
PATIENCE, STUCK = 4, 3e-3  # halved steps in a row, and nats that these must gain together
ROUGHLY = 1e-3  # nats, twice, that a mode may be off: it is only a start
SMALLEST = 1e-10  # of the curvatures that stand in for those that are not positive, relatively


@dataclass(frozen=True, eq=False)
class _At:
    """Predictors at one theta: the entries of A, products of those of lines in pairs, offsets."""

    t: np.ndarray
    entries: np.ndarray
    products: Any
    offset: np.ndarray


@dataclass(frozen=True, eq=False)
class _Begun:
    """Means of z, and the expectations that the laws of its predictors would have."""

    loc: np.ndarray
    expected: Expected
    bound: float = -math.inf


@dataclass(frozen=True, eq=False)
class _Gaussian:
    """A Gaussian of z, and the laws of the predictors that follow from it."""

    loc: np.ndarray
    precision: np.ndarray
    log_det: float
    error: float
    mean: np.ndarray
    spread: np.ndarray
    expected: Expected
    variance: np.ndarray
    covariance: np.ndarray

    @property
    def bound(self) -> float:
        """The ELBO, for parabolas and others alike."""
        entropy = 0.5 * (len(self.loc) * (1.0 + math.log(2.0 * math.pi)) - self.log_det)
        return self.expected.value + entropy


@dataclass(frozen=True, eq=False)
class GivenHyperparameters:
    """The surface L(t) of a program: a solution of z at every t."""

    predictors: Predictors
    gram: Gram
    pattern: Pattern

    @classmethod
    def of(cls, predictors: Predictors) -> GivenHyperparameters:
        """Find the pattern of P, and how it is eliminated."""
        one = predictors
        columns = one.columns[one.joint.entry]
        gram = gram_pattern(one.joint.row, columns, one.lines, one.size)
        return cls(one, gram, Pattern.of(gram.rows, gram.columns, one.size, one.groups))

    @property
    def numbers(self) -> int:
        """How many a solution keeps: means, variances, and what next ones start from."""
        return 2 * self.predictors.size + len(self.gram.rows) + self.predictors.count // 2

    def precision(self, solved: Solved) -> np.ndarray:
        """The entries of P of a solution, which keeps them."""
        return solved.precision

    def variance_error(self, solved: Solved) -> float:
        """The relative error of the variances of z, root mean square, at a solution."""
        factor = self.pattern.factor(self.precision(solved))
        return math.nan if factor is None else factor.variance_error

    def __call__(self, t: np.ndarray, starts: Sequence[Solved], slope: bool) -> Solved | None:
        """The solution at t; None where there is none."""
        with np.errstate(all="ignore"):
            zero = np.zeros(self.predictors.size)
            entries, offset = self.predictors.entries(t), self.predictors.at(t, zero)
            if not (np.isfinite(entries).all() and np.isfinite(offset).all()):
                return None
            at = _At(t, entries, self._pairs(entries), offset)
            exact = self.predictors.is_quadratic
            near = CLOSELY if slope or not len(t) else TOLERANCE  # the only solution may take long
            found = self._exactly(at) if exact else self._climbed(at, starts, near)
            if found is None or not np.isfinite(found.bound):
                return None
            by_theta = self._slope(at, found) if slope else None
            if by_theta is not None and not np.isfinite(by_theta).all():
                return None
            spread = np.zeros(0, np.float32) if exact else found.spread.astype(np.float32)
            law = found.loc, found.precision, found.variance
            return Solved(t, found.bound, by_theta, *law, 0.5 * found.error, spread)

    def _exactly(self, at: _At) -> _Gaussian | None:
        """One solution: log p is a parabola of z."""
        still = np.zeros(self.predictors.count)
        here = self.predictors.expected(at.t, at.offset, still)
        precision = self._products(at, here.curvature)
        factor = self.pattern.factor(precision)
        if factor is None:
            return None
        loc = factor.solve(self._gathered(at, here.slope))
        return self._at(at, loc, precision, factor)

    def _climbed(self, at: _At, starts: Sequence[Solved], near: float) -> _Gaussian | None:
        """The largest ELBO, but for what is as `near` to it.

        From where neighbours lead a step may go too far, to where log p has no curvature: what ends
        there begins again at the mode.
        """
        found, is_near = self._uphill(at, self._foreseen(at, starts), near)
        if is_near:
            return found
        again, is_near = self._uphill(at, self._mode(at), near)
        ends = [one for one in (found, again) if one is not None]
        best = max(ends, key=attrgetter("bound"), default=None)
        if best is None or best is again or is_near:
            return best
        return self._uphill(at, best, near)[0]  # it was left early, and was on the better way

    def _uphill(
        self, at: _At, here: _Begun | _Gaussian | None, near: float
    ) -> tuple[_Gaussian | None, bool]:
        """Newton's steps, and whether they end as `near` to the largest ELBO.

        Where slopes jump, as of |z|, sums over nodes bend like a polygon: a full step crosses some
        of its corners however near the top is, and halved ones creep. What idles there is at the
        top, as far as nodes tell, or where neighbours led it, far from all mass. Where log p has no
        curvature to follow, step after step is halved, a dozen solutions each: the mode is then a
        better start, and from there what gains next to nothing has come as far as it will.
        """
        foreseen, halved, idle, before = isinstance(here, _Begun), 0, 0, -math.inf
        for _ in range(LIMIT):
            curved = None if here is None else self._curved(at, here.expected)
            if here is None or curved is None:
                return None, False
            ahead, factor = curved
            move = factor.solve(self._gathered(at, here.expected.slope))
            new = self._at(at, here.loc + move, ahead, factor)
            step = 1.0
            while new is None or new.bound < here.bound - TOLERANCE:
                if not isinstance(here, _Gaussian):  # what was foreseen leads nowhere
                    return None, False
                step *= 0.5
                if step < 0.5**HALVINGS:
                    return here, False
                mixed = (1.0 - step) * here.precision + step * ahead
                between = self.pattern.factor(mixed)
                new = None
                if between is not None:
                    new = self._at(at, here.loc + step * move, mixed, between)
            if step == 1.0:
                least = near * (1.0 + 1e-6 * abs(new.bound))
                if self._left(at, here.expected.curvature, new, factor) < least:
                    return new, True
            slow = step < 1.0 and new.bound < here.bound + TOLERANCE
            idle = idle + 1 if slow else 0
            if idle == IDLE:
                return new, not foreseen
            here = new
            halved = halved + 1 if step < 1.0 else 0
            if halved % PATIENCE == 0:
                if halved and (foreseen or new.bound < before + STUCK):
                    return new, False
                before = new.bound
        return (here if isinstance(here, _Gaussian) else None), False

    def _left(self, at: _At, weights: np.ndarray, found: _Gaussian, factor: AnyFactor) -> float:
        """Nats that the next step would gain, of a Gaussian whose P has these weights.

        Of its mean half the slope times the step. Its covariance is that of weights W + D, which
        gain tr (P^-1 A' D A)^2 / 4, and no more than the sum of D^2 / W by the variances of A z.
        """
        push = self._gathered(at, found.expected.slope)
        change = found.expected.curvature - weights
        scale = np.maximum(abs(weights), SMALLEST)
        relative = np.where(change == 0.0, 0.0, change**2 / scale)
        return 0.5 * float(push @ factor.solve(push)) + 0.25 * float(relative @ found.spread)

    def _foreseen(self, at: _At, starts: Sequence[Solved]) -> _Begun | None:
        """Where neighbours lead."""
        for start in starts:
            mean, spread = self._mean(at, start.loc), start.spread.astype(float)
            expected = self.predictors.expected(at.t, mean, spread)
            if np.isfinite(expected.value):
                return _Begun(start.loc, expected)
        return None

    def _mode(self, at: _At) -> _Gaussian | None:
        """Newton's steps to a mode, with the curvature there."""
        still = np.zeros(self.predictors.lines)
        loc = np.zeros(self.predictors.size)
        here = self.predictors.expected(at.t, at.offset, still)
        if not np.isfinite(here.value):
            return None
        curved = self._curved(at, here)
        for _ in range(LIMIT):
            if curved is None:
                return None
            push = self._gathered(at, here.slope)
            move, step = curved[1].solve(push), 1.0
            for _ in range(HALVINGS):
                new = self.predictors.expected(at.t, self._mean(at, loc + step * move), still)
                if np.isfinite(new.value) and new.value >= here.value - TOLERANCE:
                    break
                step *= 0.5
            else:
                break
            loc, here = loc + step * move, new
            if float(push @ move) < ROUGHLY and step == 1.0:
                break
            curved = self._curved(at, here)
        return None if curved is None else self._at(at, loc, *curved)

    def _curved(self, at: _At, here: Expected) -> tuple[np.ndarray, AnyFactor] | None:
        """The precision that the expected curvatures make, without negative ones if need be."""
        curvature = here.curvature
        for turn in range(2):
            if turn:
                curvature = positive(self.predictors.joint, curvature, SMALLEST)
            precision = self._products(at, curvature)
            factor = self.pattern.factor(precision)
            if factor is not None:
                return precision, factor
        return None

    # ----------------------------------------------------------------------------------------------

    def _pairs(self, entries: np.ndarray) -> Any:
        """The products of the entries of lines in pairs, found once where they are all the same."""
        if self.predictors.is_fixed:
            return self._fixed_pairs
        return self.gram.products(entries[self.predictors.joint.entry])

    @cached_property
    def _fixed_pairs(self) -> Any:
        entries = self.predictors.entries(np.zeros(self.predictors.dimension))
        return self.gram.products(entries[self.predictors.joint.entry])

    def _products(self, at: _At, weights: np.ndarray) -> np.ndarray:
        """A' W A."""
        return self.gram.values(at.products, weights)

    def _at(
        self, at: _At, loc: np.ndarray, precision: np.ndarray, factor: AnyFactor
    ) -> _Gaussian | None:
        """A Gaussian with all that follows from it; None where log p is not finite."""
        mean, covariance = self._mean(at, loc), factor.covariance()
        if factor.error:  # estimates that do not err in the trace of P P^-1, as L does not
            trace = float((self.gram.multiplicity * precision) @ covariance)
            covariance = covariance * (len(loc) / trace)
        spread = np.maximum(self.gram.quadratic(at.products, covariance), 0.0)
        variance = covariance[self.pattern.stage.diagonal]
        expected = self.predictors.expected(at.t, mean, spread)
        if not np.isfinite(expected.value):
            return None
        given = loc, precision, factor.log_det, factor.error, mean, spread
        return _Gaussian(*given, expected, variance, covariance)

    def _mean(self, at: _At, loc: np.ndarray) -> np.ndarray:
        one = self.predictors
        products = at.entries * loc[one.columns]
        return at.offset + np.bincount(one.rows, products, minlength=one.count)

    def _gathered(self, at: _At, slope: np.ndarray) -> np.ndarray:
        one = self.predictors
        return np.bincount(one.columns, at.entries * slope[one.rows], minlength=one.size)

    def _slope(self, at: _At, found: _Gaussian) -> np.ndarray:
        gram, covariance = self.gram, np.zeros(0)
        pairs = (np.zeros(0, np.int32),) * 3
        if not self.predictors.is_fixed:
            covariance = (gram.multiplicity * found.covariance)[gram.place]
            pairs = gram.first, gram.second, gram.owner
        law = Law(found.loc, covariance, pairs)
        normals = self.predictors.normals(found.mean, found.spread)
        return self.predictors.by_theta(at.t, normals, found.expected, law)
