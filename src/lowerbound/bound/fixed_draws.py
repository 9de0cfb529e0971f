"""The ELBO of a Gaussian on the unconstrained space, averaged over fixed draws (section 5.2).

With x_s = loc + C e_s and g_s the gradient of f = log p at x_s, the reparameterised gradient with
respect to loc is mean C'g, and that with respect to log C is mean C'g e' + I. For draws that are
exactly white and a quadratic f the averages are exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

MOST_KINKED = 0.05  # of the points may have no derivative
Numbers = Any  # an array, or a scalar of NumPy


class Estimate(NamedTuple):
    """Averages over the draws, in the coordinates where q is standard normal."""

    elbo: Numbers
    slope: Numbers  # mean C'g, the gradient of the ELBO in loc
    curvature: Numbers  # -mean C'g e', which is the identity at the optimum; or its blocks
    deviation: Numbers  # standard deviation of log p - log q


def points(draws: Numbers, loc: Numbers, root: Numbers) -> Numbers:
    """X = loc + C e, one row per draw; a stack of matrices is the diagonal blocks of C."""
    if root.ndim == 2:
        return loc + draws @ root.T
    return loc + np.einsum("srk,rik->sri", _blocks(draws, root), root).reshape(draws.shape)


def smooth(values: Numbers, gradients: Numbers) -> Numbers:
    """The gradients, where log p is finite but has none at a few of the points.

    A program that clips what it then takes a power of has no derivative there. These points say
    nothing of where to go: their gradients are 0. More than a few are left as they are.
    """
    known = np.isfinite(gradients).all(axis=1)
    kinked = 1.0 - np.mean(known)
    if not 0.0 < kinked <= MOST_KINKED or not np.isfinite(values).all():
        return gradients
    return np.where(known[:, None], gradients, 0.0)


def _blocks(rows: Numbers, root: Numbers) -> Numbers:
    return rows.reshape((len(rows), *root.shape[:2]))


def averaged(draws: Numbers, values: Numbers, gradients: Numbers, root: Numbers) -> Estimate:
    """The averages, from log p and its gradient at the points of the draws.

    `root` is the lower triangular C, or a stack of its diagonal blocks; so is the curvature then.
    Where log p is not finite, so is the ELBO.
    """
    count, dimension = draws.shape
    gradients = smooth(values, gradients)
    diagonal = np.diagonal(root, axis1=-2, axis2=-1)
    constant = 0.5 * dimension * np.log(2 * np.pi) + np.sum(np.log(np.abs(diagonal)))
    ratio = values + 0.5 * np.sum(draws**2, axis=1)
    mean = np.mean(ratio)
    if root.ndim == 2:
        whitened = gradients @ root
        slope, curvature = np.mean(whitened, axis=0), -(whitened.T @ draws) / count
    else:
        whitened = np.einsum("srk,rki->sri", _blocks(gradients, root), root)
        slope = np.mean(whitened, axis=0).ravel()
        curvature = -np.einsum("sri,srj->rij", whitened, _blocks(draws, root)) / count
    finite = np.isfinite(mean) & np.all(np.isfinite(slope)) & np.all(np.isfinite(curvature))
    elbo = np.where(finite, mean + constant, -np.inf)
    return Estimate(elbo, slope, curvature, np.std(ratio))
