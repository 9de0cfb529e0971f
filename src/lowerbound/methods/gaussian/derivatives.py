"""Second and third derivatives of log p, in the coordinates where a Gaussian is standard normal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import jaxpr_as_fun

from lowerbound.compiled import interruptibly, jit, quickly, settled
from lowerbound.methods.gaussian.target import Target, in_precision, is_quick

_STEP = 1e-2  # of differences of order four, in standard deviations
_NO_FORWARD = (TypeError, NotImplementedError)  # solvers that state only their reverse derivative


def hessian(target: Target, loc: np.ndarray, root: np.ndarray) -> np.ndarray:
    """The matrix C' H C at one point, for a matrix C of directions in its columns.

    By differentiation of the gradient; by differences of it where the program does not allow that.
    """

    def columns(loc: Array, root: Array, data: dict[str, Array]) -> Array:
        slope = jax.grad(_density(target, data))

        def along(direction: Array) -> Array:
            return jnp.asarray(jax.jvp(slope, (loc,), (direction,))[1])

        return _mapped(along, root.T, target.batch)

    found = _run(target, "hessian", columns, loc, root)
    if found is None:
        plus, minus, far, near = _around(target, loc, root)
        found = (8.0 * (plus - minus) - (far - near)) / (12.0 * _STEP)
    whitened = found @ root
    return np.asarray(0.5 * (whitened + whitened.T))


def third(target: Target, loc: np.ndarray, root: np.ndarray) -> np.ndarray:
    """The gradient in loc of tr(H(loc) C C'), for a fixed matrix C."""

    def gradient(loc: Array, root: Array, data: dict[str, Array]) -> Array:
        density = _density(target, data)

        def total(loc: Array) -> Array:
            def along(direction: Array) -> Array:
                def slope(point: Array) -> Array:
                    return jnp.asarray(jax.jvp(density, (point,), (direction,))[1])

                return jnp.asarray(jax.jvp(slope, (loc,), (direction,))[1])

            return jnp.sum(_mapped(along, root.T, target.batch))

        return jnp.asarray(jax.grad(total)(loc))

    found = _run(target, "third", gradient, loc, root)
    if found is None:
        plus, minus, far, near = _around(target, loc, root)
        centre = target(loc[None])[1]
        second = 16.0 * (plus + minus) - (far + near) - 30.0 * centre
        found = second.sum(axis=0) / (12.0 * _STEP**2)
    return found


def _density(target: Target, data: dict[str, Array]) -> Callable[[Array], Array]:
    leaves = jax.tree.leaves(data)

    def density(vector: Array) -> Array:
        return jnp.asarray(jaxpr_as_fun(target.closed)(vector, *leaves)[0])

    return density


def _mapped(function: Callable[[Array], Array], rows: Array, batch: int) -> Array:
    """The function of every row, as many at once as there is memory for."""
    if len(rows) <= batch:
        return jax.vmap(function)(rows)
    return jnp.asarray(jax.lax.map(function, rows, batch_size=batch))


def _run(
    target: Target, name: str, function: Callable[..., Array], loc: np.ndarray, root: np.ndarray
) -> np.ndarray | None:
    """A compiled function of point and directions; None where it does not exist or is not finite.

    `compiled` remembers the programs without such derivatives.
    """
    dtype = target.dtype
    inputs: tuple[Any, ...] = (loc.astype(dtype), root.astype(dtype), target.arguments)
    if name not in target.compiled:
        quick = is_quick(target.closed.jaxpr)
        try:
            with jax.default_matmul_precision("highest"), in_precision(dtype):
                lowered = (quickly if quick else jit)(function).lower(*inputs)
            target.compiled[name] = interruptibly(lowered.compile)
        except _NO_FORWARD:
            target.compiled[name] = None
    if target.compiled[name] is None:
        return None
    with in_precision(dtype):
        found = np.asarray(settled(target.compiled[name](*inputs)), float)
    return found if np.isfinite(found).all() else None


def _around(target: Target, loc: np.ndarray, root: np.ndarray) -> list[np.ndarray]:
    """Gradients one and two small steps ahead and behind along every direction: +, -, ++, --."""
    steps = [loc + side * _STEP * root.T for side in (1.0, -1.0, 2.0, -2.0)]
    gradients = target(np.concatenate(steps))[1]
    return np.split(gradients, 4)
