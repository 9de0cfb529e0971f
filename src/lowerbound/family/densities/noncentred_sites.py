"""Sites z = loc + scale * u with Gaussian u: marginals over the sites that set loc and scale.

Given the coordinates w of those sites, u is Gaussian and z is affine in it. So the marginal of z is
a mixture of Gaussians over w, and evenly spread draws of w stand for their law.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution
from numpyro.distributions import transforms as bijections

from lowerbound.errors import NoMarginalError
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.rewrite.noncentred import is_positive

COMPONENTS = 512  # of a marginal
WIDE, MOST_WIDE = 1.7, 4  # deviations of draws that reach further out, and of how many numbers
MOST_NUMBERS = 20_000_000  # in the covariances of a marginal's components


@dataclass(frozen=True, eq=False)
class GivenParents:
    """z = centres + scales (u - E[u | w]) at K draws of w; `covariance` is that of u given w.

    The scales are numbers, or triangular matrices (e, e) for the last axis of the site. logs:
    whether that is log z.
    """

    shape: tuple[int, ...]
    weights: np.ndarray  # (K,)
    centres: Array  # (K, n)
    scales: Array  # (K, n) or (K, n, e)
    covariance: Array  # (n, n)
    logs: bool = False

    def roots(self) -> Array:
        """Roots of the conditional covariances of z: (K, n, n), lower triangular."""
        root = jnp.linalg.cholesky(self.covariance)
        if self.scales.ndim == 2:
            return jnp.asarray(self.scales[:, :, None] * root)
        count, entries, last = self.scales.shape
        scales = self.scales.reshape(count, -1, last, last)
        blocks = root.reshape(-1, last, entries)
        return jnp.einsum("kmij,mjn->kmin", scales, blocks).reshape(count, entries, entries)

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance of the entries of z, by the laws of total expectation and variance."""
        if self.logs:
            spread = self.scales**2 * jnp.diagonal(self.covariance)
            each = jnp.exp(self.centres + 0.5 * spread)
            mean = jnp.asarray(self.weights @ each)
            squares = (each - mean) ** 2 + jnp.expm1(spread) * each**2
            variance = jnp.asarray(self.weights @ squares)
            return mean.reshape(self.shape), variance.reshape(self.shape)
        if self.scales.ndim == 2:
            within = self.weights @ self.scales**2 * jnp.diagonal(self.covariance)
        else:
            last = self.scales.shape[-1]
            own = np.arange(len(self.covariance)).reshape(-1, last)
            blocks = self.covariance[own[:, :, None], own[:, None, :]]
            scales = self.scales.reshape(len(self.scales), -1, last, last)
            each = jnp.einsum("kmij,mjl,kmil->kmi", scales, blocks, scales)
            within = self.weights @ each.reshape(len(each), -1)
        mean = jnp.asarray(self.weights @ self.centres)
        between = jnp.asarray(self.weights @ (self.centres - mean) ** 2)
        return mean.reshape(self.shape), (within + between).reshape(self.shape)

    def mixture(self) -> Distribution:
        """The mixture of the conditional Gaussians, or of their exponentials."""
        found = self._gaussians()
        if not self.logs:
            return found
        return dist.TransformedDistribution(found, bijections.ExpTransform())

    def _gaussians(self) -> Distribution:
        weights = dist.Categorical(probs=jnp.asarray(self.weights))
        if not self.shape:
            deviation = self.scales[:, 0] * jnp.sqrt(self.covariance[0, 0])
            return dist.MixtureSameFamily(weights, dist.Normal(self.centres[:, 0], deviation))
        parts = dist.MultivariateNormal(self.centres, scale_tril=self.roots())
        mixture = dist.MixtureSameFamily(weights, parts)
        if len(self.shape) == 1:
            return mixture
        reshape = bijections.ReshapeTransform(self.shape, self.centres.shape[1:])
        return dist.TransformedDistribution(mixture, reshape)


def given_parents(
    coordinates: Coordinates,
    data: Mapping[str, Any],
    site: str,
    outer: np.ndarray,
    loc: Array,
    covariance: Array,
    normal: np.ndarray,
) -> GivenParents:
    """The conditional Gaussians of a site for standard normal rows `normal`; w = u[outer]."""
    normal, weights = _wider(normal)
    own = np.arange(coordinates.size)[coordinates.part(site)]
    root = jnp.linalg.cholesky(covariance[np.ix_(outer, outer)])
    # E[u | w] = E[u] + cov(u, w) cov(w)^-1 (w - E[w]), with w - E[w] = root e
    gain = jax.scipy.linalg.solve_triangular(root, covariance[np.ix_(outer, own)], lower=True)
    expected = loc[own] + normal @ gain
    rest = covariance[np.ix_(own, own)] - gain.T @ gain

    shape = coordinates.shapes[site]

    def at(row: Array, part: Array) -> tuple[Array, Array]:
        vector = jnp.asarray(loc).at[outer].add(root @ row)
        found = replace(coordinates.affine(coordinates.split(vector), data, site), logs=False)
        flat = (len(own), shape[-1]) if found.matrix else (len(own),)
        return found(part.reshape(shape)).ravel(), found.scale.reshape(flat)

    centres, scales = jax.vmap(at)(jnp.asarray(normal), expected)
    logs = is_positive(coordinates.program().latent[site].distribution)
    return GivenParents(shape, weights, centres, scales, rest, logs)


def _wider(normal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows that reach further out, with their weights; where they are of many entries, as they are.

    A scale e^w has moments that hang on the tails of w.
    """
    count, dimension = normal.shape
    if not 0 < dimension <= MOST_WIDE:
        return normal, np.full(count, 1.0 / count)
    weights = np.exp(-0.5 * (WIDE**2 - 1.0) * np.sum(normal**2, axis=1))
    weights /= weights.sum()
    rows = WIDE * normal
    values, vectors = np.linalg.eigh((weights[:, None] * rows).T @ rows)  # the mean is 0, by pairs
    return rows @ ((vectors / np.sqrt(values)) @ vectors.T), weights


def mixture_size(site: str, shape: tuple[int, ...]) -> int:
    """How many components the marginal of a site takes; refuses sites that are too large."""
    entries = math.prod(shape)
    if COMPONENTS * entries**2 > MOST_NUMBERS:
        raise NoMarginalError(
            f"Site '{site}' is non-centred and has {entries} entries: their joint marginal would "
            f"be a mixture of {COMPONENTS} Gaussians with as many covariances",
            f"at most {math.isqrt(MOST_NUMBERS // COMPONENTS)} entries",
            ", or fit.mean and fit.sd",
        )
    return COMPONENTS
