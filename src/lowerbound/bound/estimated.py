"""The ELBO of a Gaussian on the unconstrained space, averaged over fixed draws (section 5.2).

With x_s = loc + C e_s and g_s the gradient of f = log p at x_s, the reparameterised gradient with
respect to loc is mean C'g, and that with respect to log C is mean C'g e' + I. For draws that are
exactly white and a quadratic f the averages are exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Numbers = Any  # an array, or a scalar of NumPy


class Estimate(NamedTuple):
    """Averages over the draws, in the coordinates where q is standard normal."""

    elbo: Numbers
    slope: Numbers  # mean C'g, the gradient of the ELBO in loc
    curvature: Numbers  # -mean C'g e', which is the identity at the optimum
    deviation: Numbers  # standard deviation of log p - log q


def points(draws: Numbers, loc: Numbers, root: Numbers) -> Numbers:
    """X = loc + C e, one row per draw."""
    return loc + draws @ root.T


def averaged(draws: Numbers, values: Numbers, gradients: Numbers, root: Numbers) -> Estimate:
    """The averages, from log p and its gradient at the points of the draws.

    `root` is the lower triangular C. Where log p or its gradient is not finite, so is the ELBO.
    """
    count, dimension = draws.shape
    constant = 0.5 * dimension * np.log(2 * np.pi) + np.sum(np.log(np.abs(np.diagonal(root))))
    whitened = gradients @ root
    ratio = values + 0.5 * np.sum(draws**2, axis=1)
    mean = np.mean(ratio)
    slope, curvature = np.mean(whitened, axis=0), -(whitened.T @ draws) / count
    finite = np.isfinite(mean) & np.all(np.isfinite(slope)) & np.all(np.isfinite(curvature))
    elbo = np.where(finite, mean + constant, -np.inf)
    return Estimate(elbo, slope, curvature, np.std(ratio))
