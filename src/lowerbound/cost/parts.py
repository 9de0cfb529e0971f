"""Maps over many points in parts that fit in memory, and refusals where not even one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from lowerbound.compiled import traced
from lowerbound.cost.jaxpr_cost import peak_bytes
from lowerbound.cost.memory import limits
from lowerbound.errors import TooLargeError

MEGABYTE = 1_000_000


def affordable_count(jaxpr: Any, count: int, what: str) -> int:
    """How many of `count` runs of a program fit in memory side by side: `count`, or 2^k < it.

    Raises TooLargeError where not even one does. `what` names a run in its text.
    """
    each = peak_bytes(jaxpr)
    if each * count <= _SMALL:  # whatever is free: the question costs more than the answer
        return count
    budget = limits().budget
    if each * count <= budget:
        return count
    check_fits(each, what)
    return 1 << (max(budget // each, 1).bit_length() - 1)


_SMALL = 64 * MEGABYTE


def check_fits(wanted: float, what: str) -> None:
    """Raise TooLargeError, with the numbers, where so many bytes are not free."""
    if wanted <= _SMALL:
        return
    free = limits().free
    if wanted > free:
        raise TooLargeError(what, wanted / MEGABYTE, free / MEGABYTE)


def mapped(
    function: Callable[..., Any], *arrays: Any, most: int | None = None, what: str = "one point"
) -> Any:
    """As `jax.vmap(function)(*arrays)`, in parts where all points at once exceed the memory.

    The function is traced once, on one point; parts are an outer loop, of `most` points at most.
    What it returns for all points must fit as well. `what` names a point in a refusal.
    """
    leaves = jax.tree.leaves(arrays)
    count = leaves[0].shape[0]
    first = jax.eval_shape(lambda tree: jax.tree.map(lambda a: a[0], tree), arrays)
    closed, shapes = traced(function, return_shape=True)(*first)
    check_fits(count * output_bytes(closed), f"the result for all {count} points")
    together = affordable_count(closed.jaxpr, min(count, most or count), what)
    structure = jax.tree.structure(shapes)

    def one(leaves: list[Any]) -> Any:
        return jax.tree.unflatten(structure, jaxpr_as_fun(closed)(*leaves))

    if together == count:
        return jax.vmap(one)(leaves)
    # Without a batch a branch is a branch: under vmap, even of one point, both are computed.
    return jax.lax.map(one, leaves, batch_size=together if together > 1 else None)


def run_bytes(compiled: Any) -> int:
    """The bytes that a run of a compiled program allocates; 0 where the compiler does not say."""
    found = compiled.memory_analysis()
    if found is None:
        return 0
    return int(found.temp_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes)


def output_bytes(closed: ClosedJaxpr) -> int:
    """The bytes of what a program returns."""
    return sum(a.size * a.dtype.itemsize for a in closed.out_avals if hasattr(a.dtype, "itemsize"))
