"""The best Gaussian of z at given hyperparameters, with a sparse precision P = A' W A.

Where every term is a parabola of its predictor, z given theta is Gaussian and one solution is
exact. Otherwise P and the mean are those of the largest ELBO (Opper and Archambeau 2009): W holds
the expected curvatures of the terms, and steps are Newton's. At the optimum the ELBO depends on
theta through log p alone, so that its slope needs no derivative of the solution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lowerbound.family.sparse.elimination import Factor, Pattern
from lowerbound.family.sparse.gram import Gram, gram_pattern
from lowerbound.methods.hierarchy.predictors import Expected, Predictors
from lowerbound.methods.hierarchy.surface import Solved

TOLERANCE = 3e-5  # nats that one more step would gain
LIMIT = 60  # steps
HALVINGS = 12
ROUGHLY = 1e-3  # nats, twice, that a mode may be off: it is only a start
SMALLEST = 1e-10  # of the curvatures that stand in for those that are not positive, relatively


@dataclass(frozen=True, eq=False)
class Place(Solved):
    """What is solved, with the variances of the predictors, from which a neighbour may start."""

    spread: np.ndarray


@dataclass(frozen=True, eq=False)
class _At:
    """Predictors at one theta: the entries of A, the offsets."""

    t: np.ndarray
    entries: np.ndarray
    offset: np.ndarray


@dataclass(frozen=True, eq=False)
class _Gaussian:
    """A Gaussian of z, and the laws of the predictors that follow from it."""

    loc: np.ndarray
    precision: np.ndarray
    log_det: float
    mean: np.ndarray
    spread: np.ndarray
    expected: Expected
    covariance: np.ndarray | None

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
        gram = gram_pattern(one.rows, one.columns, one.count, one.size)
        return cls(one, gram, Pattern.of(gram.rows, gram.columns, one.size, one.groups))

    def __call__(self, t: np.ndarray, start: Solved | None, slope: bool) -> Place | None:
        """The solution at t; None where there is none."""
        with np.errstate(all="ignore"):
            zero = np.zeros(self.predictors.size)
            at = _At(t, self.predictors.entries(t), self.predictors.at(t, zero))
            if not (np.isfinite(at.entries).all() and np.isfinite(at.offset).all()):
                return None
            exact = self.predictors.is_quadratic
            found = self._exactly(at) if exact else self._climbed(at, start)
            if found is None or not np.isfinite(found.bound):
                return None
            assert found.covariance is not None
            by_theta = self._slope(at, found) if slope else None
            if by_theta is not None and not np.isfinite(by_theta).all():
                return None
            diagonal = self.gram.rows == self.gram.columns
            variance = np.empty(self.predictors.size)
            variance[self.gram.rows[diagonal]] = found.covariance[diagonal]
            return Place(
                t, found.bound, by_theta, found.loc, found.precision, variance, found.spread
            )

    def _exactly(self, at: _At) -> _Gaussian | None:
        """One solution: log p is a parabola of z."""
        still = np.zeros(self.predictors.count)
        here = self.predictors.expected(at.t, at.offset, still)
        precision = self.gram.values(at.entries, here.curvature)
        factor = self._factor(precision)
        if factor is None:
            return None
        loc = factor.solve(self._gathered(at, here.slope))
        return self._at(at, loc, precision, factor)

    def _climbed(self, at: _At, start: Solved | None) -> _Gaussian | None:
        """Newton's steps to the largest ELBO."""
        here = self._begin(at, start)
        if here is None:
            return None
        for _ in range(LIMIT):
            curved = self._curved(at, here.expected)
            if curved is None:
                return None
            ahead, factor = curved
            push = self._gathered(at, here.expected.slope)
            move = factor.solve(push)
            new = self._at(at, here.loc + move, ahead, factor)
            step = 1.0
            for _ in range(HALVINGS):
                if new is not None and new.bound >= here.bound - TOLERANCE:
                    break
                step *= 0.5
                mixed = (1.0 - step) * here.precision + step * ahead
                between = self._factor(mixed)
                new = None
                if between is not None:
                    new = self._at(at, here.loc + step * move, mixed, between)
            else:
                return here
            assert new is not None
            gain, push_gain = abs(new.bound - here.bound), 0.5 * float(push @ move)
            here = new
            if step == 1.0 and max(gain, push_gain) < TOLERANCE * (1.0 + 1e-6 * abs(new.bound)):
                return here
        return here

    def _begin(self, at: _At, start: Solved | None) -> _Gaussian | None:
        """Where a neighbour is, or at the mode of log p."""
        if isinstance(start, Place):
            factor = self._factor(start.precision)
            if factor is not None:
                begun = self._at(at, start.loc, start.precision, factor)
                if begun is not None:
                    return begun
        return self._mode(at)

    def _mode(self, at: _At) -> _Gaussian | None:
        """Newton's steps to a mode, with the curvature there."""
        still = np.zeros(self.predictors.count)
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

    def _curved(self, at: _At, here: Expected) -> tuple[np.ndarray, Factor] | None:
        """The precision that the expected curvatures make, without negative ones if need be."""
        for curvature in (here.curvature, _positive(here.curvature)):
            precision = self.gram.values(at.entries, curvature)
            factor = self._factor(precision)
            if factor is not None:
                return precision, factor
        return None

    # ----------------------------------------------------------------------------------------------

    def _factor(self, precision: np.ndarray) -> Factor | None:
        return self.pattern.factor(precision) if np.isfinite(precision).all() else None

    def _at(
        self, at: _At, loc: np.ndarray, precision: np.ndarray, factor: Factor
    ) -> _Gaussian | None:
        """A Gaussian with all that follows from it; None where log p is not finite."""
        mean = self._mean(at, loc)
        covariance = factor.covariance()
        spread = np.maximum(self.gram.quadratic(at.entries, covariance), 0.0)
        expected = self.predictors.expected(at.t, mean, spread)
        if not np.isfinite(expected.value):
            return None
        return _Gaussian(loc, precision, factor.log_det, mean, spread, expected, covariance)

    def _mean(self, at: _At, loc: np.ndarray) -> np.ndarray:
        one = self.predictors
        products = at.entries * loc[one.columns]
        return at.offset + np.bincount(one.rows, products, minlength=one.count)

    def _gathered(self, at: _At, slope: np.ndarray) -> np.ndarray:
        one = self.predictors
        return np.bincount(one.columns, at.entries * slope[one.rows], minlength=one.size)

    def _slope(self, at: _At, found: _Gaussian) -> np.ndarray:
        gram = self.gram
        assert found.covariance is not None
        return self.predictors.by_theta(
            at.t,
            found.mean,
            np.sqrt(found.spread),
            found.expected,
            found.loc,
            (gram.multiplicity * found.covariance)[gram.place],
            (gram.first, gram.second, gram.owner),
        )


def _positive(curvature: np.ndarray) -> np.ndarray:
    """Curvatures with those that are not positive replaced by small ones."""
    least = SMALLEST * max(float(curvature.max(initial=0.0)), 1e-300)
    positive: np.ndarray = np.maximum(curvature, least)
    return positive
