"""Random keys of JAX as seeds of the generators of the host."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


def words(key: Array) -> np.ndarray:
    """The numbers of a random key."""
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    return np.asarray(key).ravel()
