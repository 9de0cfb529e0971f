"""Gaussians of independent rows, and of one group of entries that no row owns.

The parameters are "loc" (d,); "own" (rows, k), the entries of u that belong to each row, with
"own_root", scales (rows, k) or lower triangles (rows, k, k); "shared" (m,), the other entries, with
"shared_root" (m,) or (m, m).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution
from numpyro.distributions import transforms as bijections

from lowerbound.errors import NoMarginalError

Parameters = Mapping[str, Any]
MOST_DENSE = 2000  # entries that have a covariance matrix in one piece


def sample_rows(parameters: Parameters, key: Array, count: int) -> Array:
    """Draws of u, one per row of the result."""
    loc = jnp.asarray(parameters["loc"])
    noise = jax.random.normal(key, (count, loc.shape[0]), loc.dtype)
    for entries, root in _groups(parameters):
        own = noise[:, entries]
        turned = own * root if root.ndim == entries.ndim else _times(root, own)
        noise = noise.at[:, entries].set(turned)
    return jnp.asarray(loc + noise)


def log_prob_rows(parameters: Parameters, vectors: Array) -> Array:
    """Log q(u) of the rows of `vectors`."""
    moved = vectors - parameters["loc"]
    total = jnp.full(vectors.shape[0], -0.5 * vectors.shape[1] * math.log(2 * math.pi))
    for entries, root in _groups(parameters):
        own = moved[:, entries]
        if root.ndim == entries.ndim:
            own, scale = own / root, root
        else:
            inverse = jnp.linalg.inv(root)
            own, scale = _times(inverse, own), jnp.diagonal(root, axis1=-2, axis2=-1)
        total -= jnp.sum(jnp.log(scale)) + 0.5 * jnp.sum(own**2, axis=tuple(range(1, own.ndim)))
    return total


def variances_rows(parameters: Parameters) -> Array:
    """The variances of the entries of u."""
    found = jnp.zeros_like(jnp.asarray(parameters["loc"]))
    for entries, root in _groups(parameters):
        square = root**2 if root.ndim == entries.ndim else jnp.sum(root**2, axis=-1)
        found = found.at[entries].set(square)
    return found


def covariance_rows(parameters: Parameters, part: slice) -> Array:
    """The covariance matrix of some entries of u."""
    size = np.shape(parameters["loc"])[0]
    wanted = np.arange(size)[part]
    if len(wanted) > MOST_DENSE:
        asked = f"A covariance matrix of {len(wanted)} numbers of many rows was asked for"
        raise NoMarginalError(asked, f"at most {MOST_DENSE}")
    whole = jnp.zeros((size, len(wanted)))
    place = jnp.full(size, len(wanted)).at[wanted].set(np.arange(len(wanted)))
    for entries, root in _groups(parameters):
        block = _matrix(root, entries)
        square = jnp.einsum("...ij,...kj->...ik", block, block)
        own = jnp.broadcast_to(entries[..., :, None], square.shape)
        other = jnp.broadcast_to(place[entries][..., None, :], square.shape)
        whole = whole.at[own.ravel(), other.ravel()].set(square.ravel(), mode="drop")
    return whole[wanted]


def marginal_rows(
    parameters: Parameters, part: slice, shape: tuple[int, ...], events: int
) -> Distribution:
    """The law of a site's entries: by row where the site has one event a row."""
    loc = jnp.asarray(parameters["loc"])[part]
    own = np.asarray(parameters["own"])
    rows, size = len(own), loc.shape[0]
    root = jnp.asarray(parameters["own_root"])
    if root.ndim == 2 and jnp.ndim(parameters["shared_root"]) <= 1:
        scale = jnp.sqrt(variances_rows(parameters)[part])
        return dist.Normal(loc.reshape(shape), scale.reshape(shape)).to_event(events)
    inside = (own[0] >= part.start) & (own[0] < part.stop) if rows else np.zeros(0, bool)
    columns = np.flatnonzero(inside)
    in_order = len(columns) and np.array_equal(
        own[:, columns].ravel(), np.arange(size) + part.start
    )
    if in_order:
        own_root = _matrix(root, own)[:, columns]
        square = jnp.einsum("nij,nkj->nik", own_root, own_root)
        if shape == (rows,) and not events:
            return dist.Normal(loc, jnp.sqrt(square[:, 0, 0]))
        law: Distribution = dist.MultivariateNormal(loc.reshape(rows, -1), square)
        if shape == (rows, size // rows):
            return law
        turned = bijections.ReshapeTransform(shape[1:], (size // rows,))
        return dist.TransformedDistribution(law, turned)
    if not shape:
        return dist.Normal(loc[0], jnp.sqrt(variances_rows(parameters)[part][0]))
    law = dist.MultivariateNormal(loc, covariance_rows(parameters, part))
    if len(shape) > 1:
        turned = bijections.ReshapeTransform(shape, loc.shape)
        law = dist.TransformedDistribution(law, turned)
    return law


def _groups(parameters: Parameters) -> list[tuple[Array, Array]]:
    found = []
    for name in ("own", "shared"):
        entries = jnp.asarray(parameters[name])
        if entries.size:
            found.append((entries, jnp.asarray(parameters[f"{name}_root"])))
    return found


def _times(root: Array, vectors: Array) -> Array:
    return jnp.einsum("...ij,s...j->s...i", root, vectors)


def _matrix(root: Array, entries: Any) -> Array:
    return root if root.ndim > np.ndim(entries) else root[..., None] * jnp.eye(root.shape[-1])
