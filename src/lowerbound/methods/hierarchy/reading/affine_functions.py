"""A function that is affine in some of its inputs, as an offset and products with matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

MOST_COEFFICIENTS = 2_000_000  # of a matrix


def as_products(
    function: Callable[..., Sequence[Any]], inputs: Sequence[Any], own: Sequence[int]
) -> list[Any]:
    """The outputs of a function that is affine in the inputs `own`, column by column."""

    def run(*given: Any) -> list[Any]:
        whole = list(inputs)
        for number, value in zip(own, given, strict=True):
            whole[number] = value
        return list(function(*whole))

    zeros = [jnp.zeros_like(inputs[number]) for number in own]
    found = run(*zeros)
    for place, number in enumerate(own):
        size = int(np.prod(zeros[place].shape, dtype=int))
        basis = jnp.eye(size, dtype=zeros[place].dtype).reshape(size, *zeros[place].shape)

        def column(direction: Any, place: int = place) -> Any:
            moves = [direction if n == place else zero for n, zero in enumerate(zeros)]
            return jax.jvp(run, zeros, moves)[1]

        columns = jax.vmap(column)(basis)
        value = jnp.ravel(inputs[number])
        found = [
            whole + jnp.tensordot(value, one, 1)
            if jnp.issubdtype(whole.dtype, jnp.floating)
            else whole
            for whole, one in zip(found, columns, strict=True)
        ]
    return found
