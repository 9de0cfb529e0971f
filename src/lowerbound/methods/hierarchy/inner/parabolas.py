"""Parabolas of fixed lines: rows are summed once, and z given theta is Gaussian.

Around any c, with h(t) the slope of log p(t, z) by z at c,

    log p(t, z) = log p(t, c) + h(t)' (z - c) - (z - c)' P(t) (z - c) / 2,

and P(t) is a sum over few classes of rows of omega_k(t) A' K_k A, whose products are formed once.
So L(t) needs of the rows no more than the program itself at c. Where c is near what the data say,
no large numbers cancel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.errors import IllConditionedError
from lowerbound.family.sparse.elimination import AnyFactor, Pattern
from lowerbound.family.sparse.weight_classes import Reduced, reduced, weight_classes
from lowerbound.methods.hierarchy.asked_of_terms import Data
from lowerbound.methods.hierarchy.inner.given_hyperparameters import GivenHyperparameters
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.hierarchy.surface import Solved

__all__ = ["AnySurface", "Parabolas", "surface_of"]

LOOKED_AT = 5  # values of theta by which rows are told apart whose weights move together


def surface_of(predictors: Predictors) -> AnySurface:
    """L(t) of a program, with rows summed once where they can be; raises TooDenseError."""
    return Parabolas.of(predictors) or GivenHyperparameters.of(predictors)


@dataclass(frozen=True, eq=False)
class _Around:
    """The program at c: log p, its slope h by z, and omega of the classes."""

    value: float
    push: np.ndarray
    common: np.ndarray


@dataclass(frozen=True, eq=False)
class Parabolas:
    """The surface L(t) of a program: the Gaussian of z at every t, which is exact."""

    predictors: Predictors
    gram: Reduced
    pattern: Pattern

    @classmethod
    def of(cls, predictors: Predictors) -> Parabolas | None:
        """None where a term is no parabola, A moves with theta, or weights have no classes.

        Nor where there is no theta: then nothing is summed more than once.
        """
        one = predictors
        if not (one.dimension and one.is_fixed and one.is_quadratic):
            return None
        rng, still = np.random.default_rng(2), np.zeros(one.count)
        places = [0.5 * rng.normal(size=one.dimension) for _ in range(LOOKED_AT)]
        with np.errstate(all="ignore"):
            classes = weight_classes([one.expected(t, still, still).curvature for t in places])
        if classes is None:
            return None
        entries = one.entries(np.zeros(one.dimension))
        gram = reduced(one.rows, one.columns, entries, one.size, classes)
        return cls(one, gram, Pattern.of(gram.rows, gram.columns, one.size, one.groups))

    @property
    def numbers(self) -> int:
        """How many a solution keeps: means and variances."""
        return 2 * self.predictors.size

    def precision(self, solved: Solved) -> np.ndarray:
        """The entries of P of a solution, which are soon found."""
        return self.gram.values(self._around(solved.t, self.centre).common)

    def variance_error(self, solved: Solved) -> float:
        """The relative error of the variances of z, root mean square, at a solution."""
        factor = self.pattern.factor(self.precision(solved))
        return math.nan if factor is None else factor.variance_error

    @cached_property
    def centre(self) -> np.ndarray:
        """c: the mean of z at t = 0, where there is one."""
        zero = np.zeros(self.predictors.size)
        self.pattern.prepare()  # while the program is compiled
        try:
            found = self._moved(self._around(np.zeros(self.predictors.dimension), zero))
        except IllConditionedError:
            return zero
        return zero if found is None else found[0]

    def __call__(self, t: np.ndarray, starts: Sequence[Solved], slope: bool) -> Solved | None:
        """The solution at t, which needs no start; None where there is none."""
        del starts
        with np.errstate(all="ignore"):
            here = self._around(t, self.centre)
            found = self._moved(here)
            if found is None:
                return None
            step, factor = found
            entropy = 0.5 * (len(step) * math.log(2.0 * math.pi) - factor.log_det)
            value = here.value + 0.5 * float(here.push @ step) + entropy
            if not math.isfinite(value):
                return None
            by_theta = None
            if slope:
                traces, variance = self.gram.traces(here.common, factor)
                by_theta = self._slope(t, step, traces)
                if not np.isfinite(by_theta).all():
                    return None
            else:
                variance = factor.variance()
            law = self.centre + step, np.zeros(0), variance
            return Solved(t, value, by_theta, *law, 0.5 * factor.error)

    def _around(self, t: np.ndarray, centre: np.ndarray) -> _Around:
        classes = self.gram.classes
        function = partial(_around, self.predictors)
        value, push, weights = self.predictors.run("around", function, t, centre, classes.first)
        common = np.asarray(weights) / classes.own[classes.first]
        return _Around(float(value), np.asarray(push), common)

    def _moved(self, here: _Around) -> tuple[np.ndarray, AnyFactor] | None:
        """The way from c to the mean of z, and the factor of P."""
        finite = math.isfinite(here.value) and np.isfinite(here.push).all()
        if not (finite and np.isfinite(here.common).all()):
            return None
        factor = self.pattern.factor(self.gram.values(here.common))
        return None if factor is None else (factor.solve(here.push), factor)

    def _slope(self, t: np.ndarray, step: np.ndarray, traces: np.ndarray) -> np.ndarray:
        """dL/dt = the derivative by t of E[log p] with the law of z held fixed."""
        classes = self.gram.classes
        spread = (traces + self.gram.squares(step)) / classes.own[classes.first]
        law = self.centre, step, classes.first, spread
        return np.asarray(
            self.predictors.run("slope around", partial(_slope, self.predictors), t, *law)
        )


AnySurface = GivenHyperparameters | Parabolas


# --------------------------------------------------------------------------------------------------
# What is compiled


def _log_p(one: Predictors, t: Array, data: Data, z: Array) -> Array:
    return one.log_p(t, data, one.lines_at(t, data, z))


def _weights(one: Predictors, t: Array, data: Data, z: Array, rows: Array) -> Array:
    """The curvatures of some rows, with their signs changed: every g has one predictor."""
    place = one.lines_at(t, data, z)
    slope = jax.grad(lambda p: one.log_p(t, data, p))
    curvature: Array = jax.jvp(slope, (place,), (jnp.ones_like(place),))[1]
    return -curvature[rows]


def _around(
    one: Predictors, t: Array, data: Data, z: Array, rows: Array
) -> tuple[Array, Array, Array]:
    value, push = jax.value_and_grad(lambda z: _log_p(one, t, data, z))(z)
    return value, push, _weights(one, t, data, z, rows)


def _slope(
    one: Predictors, t: Array, data: Data, z: Array, step: Array, rows: Array, spread: Array
) -> Array:
    def expected(t: Array) -> Array:
        value, along = jax.jvp(lambda z: _log_p(one, t, data, z), (z,), (step,))
        return jnp.asarray(value + along - 0.5 * _weights(one, t, data, z, rows) @ spread)

    return jnp.asarray(jax.grad(expected)(t))
