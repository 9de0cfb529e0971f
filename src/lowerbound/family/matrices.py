"""Batches of symmetric positive definite matrices through their Cholesky factors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

__all__ = [
    "diagonal",
    "inverse_cholesky",
    "inverse_of",
    "is_positive_definite",
    "log_determinant",
    "symmetric",
    "times_vector",
]


def symmetric(matrix: Array) -> Array:
    """The symmetric part of a square matrix."""
    return (matrix + jnp.swapaxes(matrix, -1, -2)) / 2


def diagonal(matrix: Array) -> Array:
    """The diagonal, shape (..., D)."""
    result: Array = jnp.diagonal(matrix, axis1=-2, axis2=-1)
    return result


def log_determinant(cholesky: Array) -> Array:
    """The log determinant of C C' from the lower Cholesky factor C."""
    return 2 * jnp.sum(jnp.log(diagonal(cholesky)), axis=-1)


def inverse_cholesky(cholesky: Array) -> Array:
    """The inverse of a lower Cholesky factor."""
    eye = jnp.broadcast_to(jnp.eye(cholesky.shape[-1], dtype=cholesky.dtype), cholesky.shape)
    return jax.scipy.linalg.solve_triangular(cholesky, eye, lower=True)


def inverse_of(matrix: Array) -> Array:
    """The inverse of a positive definite matrix, exactly symmetric."""
    root = inverse_cholesky(jnp.linalg.cholesky(matrix))
    return jnp.swapaxes(root, -1, -2) @ root


def times_vector(matrix: Array, vector: Array) -> Array:
    """The product of each matrix with its vector."""
    return jnp.squeeze(matrix @ vector[..., None], axis=-1)


def is_positive_definite(matrix: Array) -> Array:
    """True where the Cholesky factorisation of the matrix exists."""
    return jnp.all(jnp.isfinite(jnp.linalg.cholesky(matrix)), axis=(-2, -1))
