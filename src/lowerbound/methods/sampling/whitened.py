"""Coordinates in which z is about standard normal whatever theta is: no funnels, at any scale.

log p(x, z, theta) is a sum of g_e(eta_e; t) with eta = A(t) z + b(t) (`methods.hierarchy`). Let
each g be a parabola: its own where it is one, and else one that does not move with t. Given t this
is a Gaussian with precision P(t) = A' W A and mean m(t), and

    z = m(t) + L(t)^-T u,   P = L L',   log p(t, u) = log p(x, z, theta) - log |L|.

That holds for any P and m: it is a change of variables. Where every g is a parabola, u is standard
normal and independent of t, and is integrated out: what is left is p(x, theta) itself, of theta
alone. Where not, u is about standard normal, and scales z no longer: a coefficient and its own
scale, which make a funnel of z and theta, hardly hang together as u and theta.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.lax import stop_gradient
from jax.scipy.linalg import solve_triangular

from lowerbound.methods.hierarchy.asked_of_terms import Data
from lowerbound.methods.hierarchy.predictors import Predictors

TRIED = 3  # values of theta at which it is seen what moves with it, and how
CLOSE = 1e-9  # relative, of what moves together
LEAST = 1e-6  # of the largest weight: that of a term that bends the other way


class Still(NamedTuple):
    """Parabolas that do not move with t: where, and the slopes and the weights there."""

    place: Any
    slope: Any
    weight: Any


class Scaled(NamedTuple):
    """Rows of A whose columns are multiplied by functions of t, and whose weights by another.

    gram: A' W A at one t, (d, d). entry: the number of an entry of each column, and what it is
    there; row: the number of a row, and its weight there.
    """

    gram: Any
    entry: Any
    held: Any
    row: Any
    weight: Any


class Single(NamedTuple):
    """Rows of A with one entry each: its number, its row and its column."""

    entry: Any
    row: Any
    column: Any


class Dense(NamedTuple):
    """Other rows of A: the numbers of entries, which of the rows these are in, and the columns."""

    entry: Any
    place: Any
    column: Any
    rows: Any


class Given(NamedTuple):
    """All that the density needs but t and u. parts: those that P is the sum of."""

    data: Data
    still: Still
    parabolic: Any
    parts: tuple[Scaled | Single | Dense, ...]


@dataclass(frozen=True, eq=False)
class Whitened:
    """log p(t, u) of a program with these predictors, none of which meet in a term."""

    predictors: Predictors
    still: Still

    @property
    def size(self) -> int:
        """How many numbers the density is of: those of theta, and of u where it stays."""
        one = self.predictors
        return one.dimension + (0 if one.is_quadratic else one.size)

    @cached_property
    def given(self) -> Given:
        """What `density` takes beside the vector."""
        one = self.predictors
        return Given(one.data, self.still, one.parabolic, tuple(self._parts()))

    # -- what is compiled --------------------------------------------------------------------------

    def density(self, vector: Array, given: Given) -> Array:
        """Log p(t, u), or log p(x, t) where u is integrated out."""
        one = self.predictors
        t, u = vector[: one.dimension], vector[one.dimension :]
        precision = self._precision(t, given)
        if not one.is_quadratic:
            lower, loc = self._law(t, given, precision)
            z = loc + solve_triangular(lower.T, u, lower=False)
            volume = jnp.sum(jnp.log(jnp.diagonal(lower)))
            return one.log_p(t, given.data, one.lines_at(t, given.data, z)) - volume
        # At its largest, log p does not change with z; and d log |P| = tr P^-1 dP.
        lower, loc = self._law(stop_gradient(t), given, stop_gradient(precision))
        root = solve_triangular(lower, jnp.eye(one.size), lower=True)
        trace = 0.5 * jnp.sum((root.T @ root) * precision)
        volume = jnp.sum(jnp.log(jnp.diagonal(lower))) + trace - stop_gradient(trace)
        constant = 0.5 * one.size * math.log(2.0 * math.pi)
        return one.log_p(t, given.data, one.lines_at(t, given.data, loc)) - volume + constant

    def effects(self, t: Array, u: Array, given: Given) -> Array:
        """The coordinates z at t and u."""
        lower, loc = self._law(t, given, self._precision(t, given))
        return loc + solve_triangular(lower.T, u, lower=False)

    def _law(self, t: Array, given: Given, precision: Array) -> tuple[Array, Array]:
        """L, and the mean m: that of parabolas, by their slopes at z = 0."""
        one, still = self.predictors, given.still
        lines, back = jax.vjp(lambda z: one.lines_at(t, given.data, z), jnp.zeros(one.size))
        at = jnp.where(given.parabolic, lines, still.place)
        own = jax.grad(lambda p: one.log_p(t, given.data, p))(at)
        slope = jnp.where(given.parabolic, own, still.slope + still.weight * (still.place - lines))
        lower = jnp.linalg.cholesky(precision)
        half = solve_triangular(lower, back(slope)[0], lower=True)
        return lower, solve_triangular(lower.T, half, lower=False)

    def _weights(self, t: Array, given: Given) -> Array:
        """W: the curvature of every parabola."""
        one, still = self.predictors, given.still

        def slope(far: float) -> Array:
            place = jnp.where(given.parabolic, far, still.place)
            return jnp.asarray(jax.grad(lambda p: one.log_p(t, given.data, p))(place))

        return jnp.where(given.parabolic, slope(0.0) - slope(1.0), still.weight)

    def _precision(self, t: Array, given: Given) -> Array:
        """P = A' W A."""
        one = self.predictors
        entries, weights = one.entries_at(t, given.data), self._weights(t, given)
        total = jnp.zeros((one.size, one.size))
        for part in given.parts:
            if isinstance(part, Scaled):
                columns = entries[part.entry] / part.held
                total += (weights[part.row] / part.weight) * columns[:, None] * part.gram * columns
            elif isinstance(part, Single):
                own = weights[part.row] * entries[part.entry] ** 2
                total += jnp.diag(jnp.zeros(one.size).at[part.column].add(own))
            else:
                matrix = jnp.zeros((len(part.rows), one.size))
                matrix = matrix.at[part.place, part.column].add(entries[part.entry])
                total += matrix.T @ (weights[part.rows][:, None] * matrix)
        return total

    # -- what is found once ------------------------------------------------------------------------

    def _parts(self) -> Iterator[Scaled | Single | Dense]:
        """The rows of A by the array of predictors that they are of, and how these move with t."""
        one, rng = self.predictors, np.random.default_rng(2)
        tried = [0.3 * rng.normal(size=one.dimension) for _ in range(TRIED)]
        entries = np.array([one.entries(t) for t in tried])
        run = one.run
        weights = np.array([run("weights", self._tried_weights, t, self.still) for t in tried])
        begin = 0
        for name in one.parts.cut:
            own = np.flatnonzero((one.rows >= begin) & (one.rows < begin + name.size))
            begin += name.size
            if not len(own):
                continue
            row, column = one.rows[own], one.columns[own]
            if np.bincount(row - row.min()).max() == 1:
                yield Single(own, row, column)
                continue
            rows, place = np.unique(row, return_inverse=True)
            dense = Dense(own, place, column, rows)
            yield _scaled(dense, entries[:, own], weights[:, rows], one.size) or dense

    def _tried_weights(self, t: Array, data: Data, still: Still) -> Array:
        return self._weights(t, Given(data, still, self.predictors.parabolic, ()))


def _scaled(dense: Dense, entries: np.ndarray, weights: np.ndarray, size: int) -> Scaled | None:
    """The rows, where all entries of a column move together with t, and all weights do.

    entries, weights: of these rows, (TRIED, ...).
    """
    order = np.argsort(abs(entries[0]), kind="stable")
    largest = np.zeros(size, int)
    largest[dense.column[order]] = order
    heaviest = int(abs(weights[0]).argmax())
    with np.errstate(all="ignore"):
        columns = entries[:, largest] / entries[0, largest]
        foretold = entries[0] * columns[:, dense.column]
        heavy = weights[0] * (weights[:, heaviest] / weights[0, heaviest])[:, None]
    if not (_is_close(foretold, entries) and _is_close(heavy, weights)):
        return None
    matrix = np.zeros((len(dense.rows), size))
    np.add.at(matrix, (dense.place, dense.column), entries[0])
    gram = matrix.T @ (weights[0][:, None] * matrix)
    # A column without entries has none in the product, whatever it is multiplied by.
    entry, held = dense.entry[largest], entries[0, largest]
    return Scaled(gram, entry, held, dense.rows[heaviest], weights[0, heaviest])


def _is_close(found: np.ndarray, expected: np.ndarray) -> bool:
    return bool((abs(found - expected) <= CLOSE * (abs(expected) + 1e-300)).all())


def standing_still(predictors: Predictors, t: np.ndarray, place: np.ndarray, spread: Any) -> Still:
    """The parabolas that terms are about, where predictors have these means and variances.

    A term that bends the other way there, as in the tail of a Student law, is next to straight.
    """
    if predictors.is_quadratic:
        none = np.zeros(predictors.count)
        return Still(none, none, none)
    expected = predictors.expected(t, place, np.asarray(spread, float))
    weight = np.asarray(expected.curvature)[: predictors.count]
    least = LEAST * float(np.abs(weight).max(initial=0.0))
    return Still(place, np.asarray(expected.slope), np.maximum(weight, least))
