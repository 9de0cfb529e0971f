"""Programs that look at their data: which arguments Python must see as numbers.

A program is read with its data traced, so that other data need no other reading. Where Python
needs values (`if`, `len(set(x))`, `np.unique(x)`, a dict, a format string, an assignment into a
copy), the arguments it needs are constants of the program, and no others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.errors import LowerboundError

# What JAX raises when Python needs the value of a traced array.
INSPECTION = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)

Result = TypeVar("Result")


@dataclass(frozen=True)
class Sight:
    """What a program sees in Python: the values of some arguments, and of what is made of them.

    `eager` says that arrays of known values are computed with at once. Under a JAX trace even
    `jnp.sum(x)` of a constant is staged out, and `if` on it fails.
    """

    names: tuple[str, ...] = ()
    eager: bool = False

    def mode(self) -> contextlib.AbstractContextManager[None]:
        """The context in which the program runs."""
        return jax.ensure_compile_time_eval() if self.eager else contextlib.nullcontext()


class Seen(np.ndarray[Any, Any]):
    """An array that a program looks at, and that a traced index may still index.

    NumPy's arrays refuse such an index. Everything else is NumPy's, so that a program finds here
    what its author passed: elements that hash, entries that can be assigned.
    """

    def __getitem__(self, index: Any) -> Any:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(index)):
            return jnp.asarray(self)[index]
        return super().__getitem__(index)

    def __array_wrap__(
        self, array: Any, context: Any = None, return_scalar: bool = False
    ) -> Any:  # a reduction gives a number, as NumPy's own do
        return array[()] if array.ndim == 0 else array.view(type(self))

    @property
    def at(self) -> Any:
        """Updates out of place, which JAX's arrays have."""
        return jnp.asarray(self).at


def seen(array: np.ndarray) -> np.ndarray:
    """A copy for one run of the program, which may write into it."""
    return np.array(array).view(Seen)


def least_sight(run: Callable[[Sight], Result], names: Sequence[str]) -> tuple[Result, Sight]:
    """Run a program with all data traced or, failing that, with as few as will do as constants.

    An error that a run with all of `names` as constants raises too is the program's own.
    """
    found = some_sight(run, names)
    kept = found[1].names
    if not kept:
        return found

    def free(some: Sequence[str]) -> None:
        nonlocal found, kept
        sight = Sight(tuple(name for name in kept if name not in some), eager=True)
        try:
            found = run(sight), sight
            kept = sight.names
        except Exception:
            if len(some) > 1:
                half = len(some) // 2
                free(some[:half])
                free(some[half:])

    free(names)
    return found


def some_sight(run: Callable[[Sight], Result], names: Sequence[str]) -> tuple[Result, Sight]:
    """Run a program with all data traced or, failing that, with all of `names` as constants."""
    blind, whole = Sight(), Sight(tuple(names), eager=True)
    try:
        return run(blind), blind
    except LowerboundError:
        raise
    except Exception as error:  # inspection shows as any error: TypeError, AttributeError, ...
        first = error
    try:
        return run(whole), whole
    except Exception as again:
        # Of two errors the one that speaks of the program, not of tracing, is the program's.
        raise (again if is_inspection(first) else first) from None


def is_inspection(error: BaseException) -> bool:
    """Whether an error is that Python needed the value of a traced array, or a table's column."""
    return isinstance(error, INSPECTION) or (
        isinstance(error, TypeError | AttributeError | ValueError | IndexError)
        and any(words in str(error) for words in ("Tracer", "string index"))
    )
