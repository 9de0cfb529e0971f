"""Symmetric matrices that are banded but for a dense border, and their Cholesky factors.

[ band        ]        the first N entries meet only neighbours in their order, the last G meet
[ border  corner ]     all of them: a hierarchy, whose units are independent given the globals,
                       or a Markov chain with parameters. The factor has the same form.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Bordered(NamedTuple):
    """A symmetric matrix, or a lower triangular one, of N + G rows."""

    band: np.ndarray  # (b + 1, N): the entry (j + k, j) is band[k, j]
    border: np.ndarray  # (N, G): the transpose of the last rows
    corner: np.ndarray  # (G, G)

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(self.band.shape[1] + len(self.corner))

    def mixed(self, other: Bordered, step: float) -> Bordered:
        """(1 - step) of this one and step of the other."""
        return Bordered(*((1 - step) * a + step * b for a, b in zip(self, other, strict=True)))


def diagonal(values: np.ndarray, width: int, border: int) -> Bordered:
    """A diagonal matrix, with room for a band and a border."""
    count = len(values) - border
    band = np.zeros((width + 1, count))
    band[0] = values[:count]
    return Bordered(band, np.zeros((count, border)), np.diag(values[count:]))


def factor(matrix: Bordered) -> Bordered | None:
    """The Cholesky factor; None where the matrix is not positive definite."""
    found = eliminated(matrix)
    if found is None:
        return None
    try:
        return found._replace(corner=np.linalg.cholesky(found.corner))
    except np.linalg.LinAlgError:
        return None


def eliminated(matrix: Bordered) -> Bordered | None:
    """The factor of the banded part, with the Schur complement of the border for a corner."""
    from scipy.linalg import lapack

    band, border = matrix.band, matrix.border
    if band.shape[1]:
        if not np.isfinite(band).all():
            return None
        band, failed = lapack.dpbtrf(band, lower=1)
        if failed:
            return None
        border = _banded_solve(band, border, "N")
    corner = matrix.corner - border.T @ border
    return Bordered(band, border, corner) if np.isfinite(corner).all() else None


def forward(root: Bordered, values: np.ndarray) -> np.ndarray:
    """The solution x of L x = values; values (N + G,) or (N + G, m)."""
    count = root.band.shape[1]
    first = _banded_solve(root.band, values[:count], "N")
    return np.concatenate([first, _solve(root.corner, values[count:] - root.border.T @ first, "N")])


def backward(root: Bordered, values: np.ndarray) -> np.ndarray:
    """The solution x of L' x = values; values (N + G,) or (N + G, m)."""
    count = root.band.shape[1]
    last = _solve(root.corner, values[count:], "T")
    return np.concatenate(
        [_banded_solve(root.band, values[:count] - root.border @ last, "T"), last]
    )


def half_log_determinant(root: Bordered) -> float:
    """The log determinant of L, half that of L L'."""
    return float(np.log(root.band[0]).sum() + np.log(np.diagonal(root.corner)).sum())


def variances(root: Bordered) -> np.ndarray:
    """The diagonal of (L L')^-1."""
    count = root.band.shape[1]
    inverse = _solve(root.corner, np.eye(len(root.corner)), "N")
    coupled = _banded_solve(root.band, root.border, "T") @ inverse.T
    own = _band_variances(root.band) + np.sum(coupled**2, axis=1) if count else np.zeros(0)
    return np.concatenate([own, np.sum(inverse**2, axis=0)])


def _band_variances(band: np.ndarray) -> np.ndarray:
    """The diagonal of the inverse of a banded matrix, from its factor, last entry first."""
    width, count = band.shape[0] - 1, band.shape[1]
    if not width:
        return np.asarray(1.0 / band[0] ** 2)
    found, window = np.empty(count), np.zeros((width, width))
    ratios = band[1:] / band[0]
    for j in range(count - 1, -1, -1):
        column = -window @ ratios[:, j]
        found[j] = 1.0 / band[0, j] ** 2 - ratios[:, j] @ column
        window[1:, 1:] = window[:-1, :-1].copy()
        window[0, 0] = found[j]
        window[0, 1:] = window[1:, 0] = column[:-1]
    return found


def _banded_solve(band: np.ndarray, values: np.ndarray, transposed: str) -> np.ndarray:
    from scipy.linalg import lapack

    if not values.size:
        return values
    if len(band) == 1:
        return np.asarray((values.T / band[0]).T)
    columns = values if values.ndim == 2 else values[:, None]
    found, _ = lapack.dtbtrs(band, columns, uplo="L", trans=transposed)
    return np.asarray(found).reshape(values.shape)


def _solve(root: np.ndarray, values: np.ndarray, transposed: str) -> np.ndarray:
    from scipy.linalg import solve_triangular

    if not values.size:
        return values
    found: np.ndarray = solve_triangular(root, values, lower=True, trans=transposed)
    return found
