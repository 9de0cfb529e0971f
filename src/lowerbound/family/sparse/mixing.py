"""Numbers that are sparse combinations of a Gaussian with a sparse precision: z = M u.

Increments of levels, whose own precision is dense where that of the levels is a chain's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array
from scipy.sparse.linalg import splu

from lowerbound.family.sparse.elimination import AnyFactor, Pattern

MIXING = ("mixing_rows", "mixing_columns")  # parameters that say where M has entries
LEANING = 0.3  # log of how much an sd may change by itself, where half of it is its own
MOST_MIXED = 300  # numbers of z whose precisions, which are dense, are found
AT_ONCE = 2**22  # numbers of covariances that are held together


def mixing_of(parameters: Mapping[str, Any], values: np.ndarray, size: int) -> Mixing | None:
    """M with these entries, where the parameters of a density say that there is one."""
    if "mixing" not in parameters:
        return None
    rows, columns = (np.asarray(parameters[name]) for name in MIXING)
    return Mixing(csr_array((values, (rows, columns)), (size, size)))


@dataclass(frozen=True, eq=False)
class Mixing:
    """A matrix M (d, d), sparse and regular."""

    matrix: csr_array

    @cached_property
    def _inverse(self) -> Any:
        return splu(csc_array(self.matrix))

    @cached_property
    def log_det(self) -> float:
        """Log |det M|."""
        return float(np.log(abs(self._inverse.U.diagonal())).sum())

    def mixed(self, columns: np.ndarray) -> np.ndarray:
        """M u of columns u."""
        return np.asarray(self.matrix @ columns)

    def unmixed(self, rows: np.ndarray) -> np.ndarray:
        """The u of rows z."""
        return np.asarray(self._inverse.solve(np.ascontiguousarray(rows.T)).T)

    def precision(self, entries: np.ndarray, pattern: Pattern) -> np.ndarray:
        """The diagonal of M'^-1 P M^-1, the precision of each z given all others."""
        size, rows, columns = self.matrix.shape[0], pattern.rows, pattern.columns
        below = csr_array((entries, (rows, columns)), (size, size))
        upper = csr_array((np.where(rows == columns, 0.0, entries), (columns, rows)), (size, size))
        inverse = self._inverse.solve(np.eye(size))
        return np.asarray((inverse * ((below + upper) @ inverse)).sum(axis=0))

    def variance(self, factor: AnyFactor, pattern: Pattern) -> np.ndarray:
        """The diagonal of M P^-1 M', from the covariances where P has entries if these will do."""
        size = self.matrix.shape[0]
        rows, columns = np.asarray(pattern.rows), np.asarray(pattern.columns)
        pairs = (abs(self.matrix.T) @ abs(self.matrix)).tocoo()
        known = csr_array((np.ones(len(rows)), (rows, columns)), (size, size))
        known = known + known.T
        if len(known[pairs.row, pairs.col].nonzero()[0]) == pairs.nnz:
            below = csr_array((factor.covariance(), (rows, columns)), (size, size))
            diagonal = below.diagonal()
            whole = below + below.T
            whole.setdiag(diagonal)
            return np.asarray((self.matrix * (self.matrix @ whole)).sum(axis=1)).ravel()
        found = np.empty(size)
        most = max(1, AT_ONCE // size)
        for start in range(0, size, most):
            some = self.matrix[start : start + most].toarray()
            found[start : start + most] = (some * factor.solve(some.T).T).sum(axis=1)
        return found


@dataclass(frozen=True, eq=False)
class MixedLaw:
    """Covariances of z. entries: those of the precision of u, whose factor is `factor`."""

    pattern: Pattern
    entries: np.ndarray
    factor: AnyFactor
    mixing: Mixing | None

    @property
    def log_det(self) -> float:
        """That of the precision of z."""
        return self.factor.log_det - (2.0 * self.mixing.log_det if self.mixing else 0.0)

    def coloured(self, noise: np.ndarray) -> np.ndarray:
        """Rows of standard normals as deviations of z."""
        found = self.factor.coloured(noise.T)
        return (self.mixing.mixed(found) if self.mixing else found).T

    def squares(self, away: np.ndarray) -> np.ndarray:
        """The squared length of rows of deviations of z, in sds."""
        rows, columns = self.pattern.rows, self.pattern.columns
        entries = np.where(rows == columns, 1.0, 2.0) * self.entries
        away = self.mixing.unmixed(away) if self.mixing else away
        return np.array([float(entries @ (one[rows] * one[columns])) for one in away])


def most_change(
    entries: np.ndarray, pattern: Pattern, mixing: Mixing | None, variance: np.ndarray
) -> np.ndarray:
    """How far log sds of z may be from those of this law, elsewhere.

    Of an sd that is its own, not shared with others, any; else as little as keeps the sd given all
    others, P_ii^-1/2, from being drowned. Any as well where that would take too long to find.
    """
    precision = np.zeros(len(variance))
    if mixing is None:
        diagonal = pattern.rows == pattern.columns
        precision[pattern.rows[diagonal]] = entries[diagonal]
    elif len(variance) <= MOST_MIXED:
        precision = mixing.precision(entries, pattern)
    own = np.minimum(1.0 / np.sqrt(np.maximum(precision * variance, 1.0)), 1.0 - 1e-9)
    found: np.ndarray = LEANING * own**2 / (1.0 - own)
    return found
