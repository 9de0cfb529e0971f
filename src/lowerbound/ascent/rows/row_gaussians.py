"""Independent Gaussians, one for each row or one in all: u = loc + scale * (e + L e)."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

# "loc" and "log_scale" (..., d); where entries depend on each other "lower" (..., d, d), of which
# the part below the diagonal counts.
Block = dict[str, Any]


def begun(loc: np.ndarray, width: float, full: bool) -> Block:
    """Around `loc`, with independent entries of one width."""
    block = {"loc": loc, "log_scale": np.full(loc.shape, math.log(width))}
    return block | ({"lower": np.zeros((*loc.shape, loc.shape[-1]))} if full else {})


def moved(block: Block, noise: Array) -> Array:
    """The draws u of standard normal numbers with leading axes of their own."""
    if "lower" in block:
        lower = jnp.tril(block["lower"], -1)
        noise = noise + jnp.einsum("...ij,...j->...i", lower, noise)
    return jnp.asarray(block["loc"] + jnp.exp(block["log_scale"]) * noise)


def entropy(block: Block) -> Array:
    """The entropy of each Gaussian."""
    size = block["loc"].shape[-1]
    volume = jnp.sum(block["log_scale"], axis=-1)
    return jnp.asarray(volume + 0.5 * size * (1.0 + math.log(2 * math.pi)))


def log_prob(block: Block, noise: Array) -> Array:
    """The log density at the draw that belongs to the noise."""
    size = block["loc"].shape[-1]
    square = 0.5 * jnp.sum(noise**2, axis=-1) + 0.5 * size * math.log(2 * math.pi)
    return jnp.asarray(-square - jnp.sum(block["log_scale"], axis=-1))


def root(block: Block) -> np.ndarray:
    """A factor of each covariance: scales where entries are independent, else a matrix."""
    scale: np.ndarray = np.exp(np.asarray(block["log_scale"]))
    if "lower" not in block:
        return scale
    lower = np.tril(np.asarray(block["lower"]), -1) + np.eye(scale.shape[-1])
    return np.asarray(scale[..., None] * lower)
