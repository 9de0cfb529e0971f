"""How much of what a program computes is rounding: stochastic arithmetic (Vignes 1993).

Every operation that rounds has its results moved by a few units of the last place, each number by
its own. What changes by more than that was lost on the way: 1 - p where p is next to 1, a
determinant of a matrix that is nearly singular. Moving the arguments of the program does not tell
it, as p may be the same number for all that are near.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import ClosedJaxpr

from lowerbound.compiled.host import lightly
from lowerbound.compiled.interpreting import bind
from lowerbound.compiled.rewriting import Rewriting, Values

UNITS: Final = 3.0  # of the last place, by which results are moved at most
# What moves numbers about, compares or chooses them is exact.
ROUNDS: Final = (
    *("add", "add_any", "sub", "mul", "div", "square", "integer_pow", "pow", "sqrt", "rsqrt"),
    *("cbrt", "exp", "exp2", "log", "log1p", "expm1", "logistic", "erf", "erfc", "erf_inv"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "lgamma", "digamma", "polygamma", "igamma", "igammac"),
    *("regularized_incomplete_beta", "dot_general", "conv_general_dilated", "reduce_sum"),
    *("reduce_prod", "cumsum", "cumprod", "cumlogsumexp", "reduce_window_sum", "scatter_add"),
    *("scatter-add", "cholesky", "triangular_solve", "eigh", "svd", "lu", "qr"),
)


def rounded_otherwise(closed: ClosedJaxpr, seeds: int = 2) -> list[Callable[..., list[Any]]]:
    """Functions that compute what the program does, rounded in other ways, at the same arguments.

    >>> import numpy as np
    >>> def lost(x):
    ...     return jnp.log1p(-(1.0 - jnp.exp(-x)))  # which is -x
    >>> with jax.enable_x64(True):
    ...     first, second = rounded_otherwise(jax.make_jaxpr(lost)(30.0))
    ...     found = [float(one(x)[0] + x) for one in (first, second) for x in (3.0, 30.0)]
    >>> [abs(one) > 1e-6 for one in found]
    [False, True, False, True]
    """
    return [lightly(_shaken(closed, seed)) for seed in range(seeds)]


def _shaken(closed: ClosedJaxpr, seed: int) -> Callable[..., list[Any]]:
    count = 0

    def moved(equation: Any, inputs: Sequence[Any]) -> Values:
        nonlocal count
        count += 1
        phase = float(1 + seed) * 0.7 + 2.4 * count  # radians: another one for every operation
        return [_moved(array, phase) for array in bind(equation.primitive, inputs, equation.params)]

    rewriting = Rewriting(_rounds, moved)
    return lambda *leaves: rewriting.run(closed.jaxpr, closed.consts, leaves)


def _rounds(equation: Any) -> bool:
    kinds = (variable.aval.dtype for variable in equation.outvars)
    return equation.primitive.name in ROUNDS and all(jnp.issubdtype(k, jnp.floating) for k in kinds)


def _moved(array: Array, phase: float) -> Array:
    """The numbers, each moved by at most `UNITS` units of its last place; a zero stays one."""
    unit = UNITS * float(np.finfo(array.dtype).eps)
    number = lax.iota(array.dtype, array.size).reshape(array.shape)
    return array * (1.0 + unit * jnp.cos(1.7 * number + phase)).astype(array.dtype)
