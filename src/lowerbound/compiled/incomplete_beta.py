"""The regularised incomplete beta function I_x(a, b), with derivatives by its shapes too.

JAX has the one by x alone, so that a Student-t distribution function of unknown degrees of freedom
ends every sampler. The others are central differences in log a and log b.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import ClosedJaxpr
from jax.scipy.special import betainc, betaln

from lowerbound.compiled.rewriting import Rewriting, Values
from lowerbound.compiled.tracing import traced

NAME: Final = "regularized_incomplete_beta"


@jax.custom_jvp
def incomplete_beta(a: Array, b: Array, x: Array) -> Array:
    """I_x(a, b).

    >>> half, third = jnp.asarray(0.5), jnp.asarray(1 / 3)
    >>> round(float(jax.grad(incomplete_beta)(half, half, third)), 3)
    -0.637
    """
    return jnp.asarray(betainc(a, b, x))


def _derivatives(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Array, Array]:
    a, b, x = primals
    slopes: tuple[Callable[[], Array], ...] = (
        lambda: _slope(lambda factor: incomplete_beta(a * factor, b, x), x) / a,
        lambda: _slope(lambda factor: incomplete_beta(a, b * factor, x), x) / b,
        lambda: jnp.exp((a - 1) * jnp.log(x) + (b - 1) * jnp.log1p(-x) - betaln(a, b)),
    )
    moved = jnp.zeros_like(x)
    for slope, tangent in zip(slopes, tangents, strict=True):
        if not isinstance(tangent, SymbolicZero):  # a constant shape costs nothing
            moved += slope() * tangent
    return incomplete_beta(a, b, x), moved


incomplete_beta.defjvp(_derivatives, symbolic_zeros=True)


def _slope(along: Callable[[Array], Array], like: Array) -> Array:
    """The derivative at 0 of along(exp(s)); the square of the step is the rounding over it."""
    step = np.cbrt(np.finfo(like.dtype).eps).astype(like.dtype)
    return jnp.asarray((along(jnp.exp(step)) - along(jnp.exp(-step))) / (2 * step))


def _wanted(equation: Any) -> bool:
    return bool(equation.primitive.name == NAME)


def _instead(equation: Any, inputs: Sequence[Any]) -> Values:
    return [incomplete_beta(*inputs)]


def differentiable(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A program that can be differentiated by the shapes of its incomplete beta functions."""
    rewriting = Rewriting(_wanted, _instead)
    if not rewriting.touches(closed.jaxpr):
        return closed
    found: ClosedJaxpr = traced(lambda *args: rewriting.run(closed.jaxpr, closed.consts, args))(
        *closed.in_avals
    )
    return found
