"""Programs that need the types of 32 bits in which their author ran them.

Fits run in double precision. A loop or a branch of JAX whose types are written down, as in
`jax.lax.scan(step, jnp.zeros((), jnp.float32), y)`, then meets numbers of other types and fails.
Such a program computes in 32 bits; the densities of its sites are still those of 64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.primitives import Messenger


def is_about_types(error: BaseException) -> bool:
    """Whether an error of JAX is that a loop or a branch mixes types of 32 and 64 bits."""
    text = str(error)
    mixed = any(f"{kind}32" in text and f"{kind}64" in text for kind in ("float", "int"))
    return isinstance(error, TypeError) and "dtypes do not match" in text and mixed


def narrowed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The program, computing in 32 bits whatever it is given."""

    @functools.wraps(function)
    def program(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = jax.tree.map(_narrow, (args, kwargs), is_leaf=lambda x: x is None)
        with jax.enable_x64(False), _NarrowValues():
            return function(*args, **kwargs)

    return program


class _NarrowValues(Messenger):  # type: ignore[misc]
    """Hands the program the values of its sites in 32 bits."""

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        """Narrow what the program gets; handlers outside have kept their own copy."""
        if msg["type"] in ("sample", "param"):
            msg["value"] = jax.tree.map(_narrow, msg["value"])


def _narrow(leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray | jax.Array) or leaf.dtype.itemsize < 8:
        return leaf
    for kind, dtype in ((jnp.floating, jnp.float32), (jnp.integer, jnp.int32)):
        if jnp.issubdtype(leaf.dtype, kind):
            return leaf.astype(dtype)
    return leaf
