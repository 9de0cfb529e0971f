"""Gaussians whose precision is banded with a dense border: P = L L', L of the same form.

The parameters are "loc" (d,), "order" (d,), the entries of u in the order of L; the parts of L,
"band" (b + 1, N), "border" (N, G) and "corner" (G, G), as in update.bordered; and "variance" (d,),
the diagonal of P^-1 in the order of u.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

Parameters = Mapping[str, Any]


def sample_bordered(parameters: Parameters, key: Array, count: int) -> Array:
    """Draws of u, one per row: loc + L'^-1 e."""
    loc = parameters["loc"]
    drawn = jax.random.normal(key, (loc.shape[0], count), loc.dtype)
    return jnp.asarray(loc + _placed(parameters, _backward(parameters, drawn)).T)


def log_prob_bordered(parameters: Parameters, vectors: Array) -> Array:
    """Log q(u) of the rows of `vectors`."""
    band, corner = parameters["band"], parameters["corner"]
    count, size = band.shape[1], parameters["loc"].shape[0]
    moved = (vectors - parameters["loc"])[..., parameters["order"]]
    first, last = moved[..., :count], moved[..., count:]
    product = last @ parameters["border"].T
    for k in range(band.shape[0]):
        product = product.at[..., : count - k].add(band[k, : count - k] * first[..., k:])
    square = jnp.sum(product**2, axis=-1) + jnp.sum((last @ corner) ** 2, axis=-1)
    volume = jnp.sum(jnp.log(band[0])) + jnp.sum(jnp.log(jnp.diagonal(corner)))
    return jnp.asarray(volume - 0.5 * (square + size * np.log(2 * np.pi)))


def covariance_bordered(parameters: Parameters, part: slice) -> Array:
    """The covariance matrix of some entries of u."""
    size = parameters["loc"].shape[0]
    wanted = np.arange(size)[part]
    columns = (parameters["order"][:, None] == wanted).astype(parameters["loc"].dtype)
    half = _forward(parameters, columns)
    return jnp.asarray(half.T @ half)


def _placed(parameters: Parameters, values: Array) -> Array:
    """Rows in the order of L, put in the order of u."""
    return jnp.zeros_like(values).at[parameters["order"]].set(values)


def _forward(parameters: Parameters, values: Array) -> Array:
    """The solution x of L x = values, (d, m)."""
    band, corner = parameters["band"], parameters["corner"]
    width, count = band.shape[0] - 1, band.shape[1]
    # The row j of L holds band[k, j - k] in column j - k.
    rows = [jnp.pad(band[k, : count - k], (k, 0)) for k in range(1, min(width, count) + 1)]
    below = jnp.stack([*rows, *[jnp.zeros(count)] * (width - len(rows))], 1) if width else None
    first = _substituted(band[0], below, values[:count], reverse=False)
    rest = values[count:] - parameters["border"].T @ first
    last = jax.scipy.linalg.solve_triangular(corner, rest, lower=True)
    return jnp.concatenate([first, last])


def _backward(parameters: Parameters, values: Array) -> Array:
    """The solution x of L' x = values, (d, m)."""
    band, corner = parameters["band"], parameters["corner"]
    count = band.shape[1]
    last = jax.scipy.linalg.solve_triangular(corner, values[count:], lower=True, trans=1)
    rest = values[:count] - parameters["border"] @ last
    beside = band[1:].T if band.shape[0] > 1 else None
    return jnp.concatenate([_substituted(band[0], beside, rest, reverse=True), last])


def _substituted(diagonal: Array, beside: Array | None, values: Array, reverse: bool) -> Array:
    """The triangular solution, one row after another; beside[j, k] meets the (k + 1)th before."""
    if beside is None or not diagonal.shape[0]:
        return values / diagonal[:, None]

    def step(window: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        own, others, value = row
        found = (value - others @ window) / own
        return jnp.concatenate([found[None], window[:-1]]), found

    window = jnp.zeros((beside.shape[1], values.shape[1]), values.dtype)
    _, found = jax.lax.scan(step, window, (diagonal, beside, values), reverse=reverse)
    return jnp.asarray(found)
