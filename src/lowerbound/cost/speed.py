"""How fast this machine is: measured once a process, in a fifth of a second, when first asked.

Measured are the seconds in which XLA compiles a program of some fifty operations, those of a
million exponentials in compiled code, and those of a product of small matrices.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.compiled import equations, jit

_NUMBERS: Final = 100_000
_REPEATS: Final = 12
_LARGER: Final = 0.75  # the time for an operation of larger programs, to that of the one measured


@dataclass(frozen=True)
class Machine:
    """Seconds of one processor for a unit of work."""

    equation: float  # to trace, lower and compile an operation
    number: float  # to compute a number, an exponential say
    flop: float  # of a product of small matrices


@cache
def machine() -> Machine:
    """What was measured on this machine; the first call measures."""
    with jax.enable_x64(True):
        data = np.linspace(0.0, 1.0, _NUMBERS)
        jit(jnp.exp).lower(data).compile()  # the first compilation of a process is slower
        began = time.process_time()
        traced = jit(_reference).trace(data)
        compiled = traced.lower().compile()
        compiling = time.process_time() - began
        once = equations(traced.jaxpr.jaxpr)
        running = _least(lambda: np.asarray(compiled(data)))
    matrix = np.ones((64, 64))
    product = _least(lambda: matrix @ matrix)
    each = _LARGER * compiling / once
    return Machine(each, running / (_EXPONENTIALS * _NUMBERS), product / 64**3)


_EXPONENTIALS: Final = 5


def _reference(data: Array) -> Array:
    """A program like a log density: special functions, sums, a small solve."""
    total = jnp.zeros(())
    for shift in range(_EXPONENTIALS):
        total += jnp.sum(jnp.exp(-((data - 0.1 * shift) ** 2)))
    small = data[:9].reshape(3, 3) + 2.0 * jnp.eye(3)
    return total + jnp.sum(small @ small.T) + jnp.sum(jax.scipy.special.gammaln(data[:5] + 1.0))


def _least(function: Callable[[], Any]) -> float:
    """The least seconds of some runs: others may be using the machine."""
    found = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        function()
        found.append(time.perf_counter() - began)
    return min(found)
