"""Arrays on one device or on several: whole on each, or the rows of the documents divided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from lowerbound.compute.devices import ROWS, Placement

EACH: Final = PartitionSpec(ROWS)  # type: ignore[no-untyped-call]
WHOLE: Final = PartitionSpec()  # type: ignore[no-untyped-call]


def platform_of(where: Placement | None) -> str:
    """The kind of the devices: "cpu", "gpu", ..."""
    return jax.default_backend() if where is None else where.platform


def over_rows(
    function: Callable[..., Any], where: Placement | None, inputs: Any, outputs: Any
) -> Callable[..., Any]:
    """The function on every device's own rows; specifications are `EACH` and `WHOLE`."""
    if where is None:
        return function
    spread: Callable[..., Any] = jax.shard_map(
        function, mesh=where.mesh, in_specs=inputs, out_specs=outputs, check_vma=False
    )
    return spread


def summed(tree: Any, where: Placement | None) -> Any:
    """The sum over devices, inside `over_rows`."""
    if where is None:
        return tree
    return jax.lax.psum(tree, ROWS)  # type: ignore[no-untyped-call]


def everywhere(array: Any, where: Placement | None, dtype: Any) -> jax.Array:
    """An array whole on every device; one that is there already stays."""
    if where is None:
        return jnp.asarray(array, dtype)
    if isinstance(array, jax.Array) and array.sharding == where.replicated:
        return array.astype(dtype)
    placed: jax.Array = where.replicate(np.asarray(array, dtype))
    return placed
