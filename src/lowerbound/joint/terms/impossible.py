"""What has probability zero: log 0 as a number so low that 0 log 0 is 0 and exp(log 0) is 0.

With -inf an expectation that gives an excluded value no weight would be 0 * -inf, which is not a
number. With a finite number in its place sums and products of arrays need no cases: a discrete
factor gives an excluded value exactly no weight, and where an ELBO is that low, q has weight on
something that cannot be.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from lowerbound.joint.terms.indices import Array, is_static
from lowerbound.joint.terms.labelled import Constant, Factor, Term

IMPOSSIBLE = -1e30  # a sum over 1e8 rows of it is a float32, and no sum of densities is near it


def possible(log: Array) -> Array:
    """Logarithms with -inf, and whatever is as low, as `IMPOSSIBLE`; inf as its opposite."""
    if not np.issubdtype(log.dtype, np.floating):
        return log
    if is_static(log):
        return np.clip(log, IMPOSSIBLE, -IMPOSSIBLE)
    return jnp.clip(log, IMPOSSIBLE, -IMPOSSIBLE)  # NaN stays NaN


def without_infinity(array: Array) -> Array:
    """A static array with infinite entries replaced in the same way; others as they are."""
    return possible(array) if holds_infinity(array) else array


def holds_infinity(array: Array) -> bool:
    """Whether the array is known while deriving, and some entry is infinite."""
    floating = is_static(array) and np.issubdtype(array.dtype, np.floating)
    return bool(floating and np.isinf(array).any())


def is_finite(array: Array) -> Array:
    """Which entries are numbers, and neither infinite nor the log of what cannot be."""
    if is_static(array):
        return np.abs(array) < -IMPOSSIBLE  # NaN is not
    return jnp.abs(array) < -IMPOSSIBLE


def finite(term: Term) -> Term:
    """The term with its coefficient and its static constants finite, so that it can be zero."""
    if math.isinf(term.coefficient):
        term = replace(term, coefficient=math.copysign(IMPOSSIBLE, term.coefficient))
    if not any(is_static(factor.atom.array) for factor in term.constants):
        return term
    constants = tuple(
        Factor(Constant(without_infinity(factor.atom.array)), factor.index)
        for factor in term.constants
    )
    return replace(term, constants=constants)


def is_impossible(log_density: Any) -> Any:
    """Whether log densities, or ELBOs, say that something cannot be."""
    return log_density < 0.5 * IMPOSSIBLE
