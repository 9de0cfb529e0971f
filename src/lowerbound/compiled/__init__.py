"""Compiled functions: the one place where programs are jitted, so that none of them can hang.

In: any function, a user's program and its vmapped batches included. Out: the same function,
compiled, without a linear-algebra call that waits for threads which wait for it (`unsplit`) and
without convolutions that crash beside loops (`convolutions`).
Every `jit` of the library is made here; a test walks the source for others.
"""

from lowerbound.compiled.abreast import abreast
from lowerbound.compiled.hoisting import in_two
from lowerbound.compiled.incomplete_beta import differentiable
from lowerbound.compiled.jitted import Jitted, briskly, jit, quickly
from lowerbound.compiled.kept import Kept
from lowerbound.compiled.options import equations, quick_options, untried_options
from lowerbound.compiled.tracing import traced
from lowerbound.compiled.waiting import (
    heard,
    interruptible,
    interruptibly,
    partial_results_are_asked_for,
    settled,
)

__all__ = [
    "Jitted",
    "briskly",
    "jit",
    "quickly",
    "abreast",
    "quick_options",
    "untried_options",
    "equations",
    "in_two",
    "differentiable",
    "Kept",
    "heard",
    "interruptible",
    "interruptibly",
    "partial_results_are_asked_for",
    "settled",
    "traced",
]
