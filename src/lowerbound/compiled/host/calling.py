"""Functions that are called a few times: run by NumPy, or compiled where that is sooner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lowerbound.compiled.abreast import abreast
from lowerbound.compiled.host.running import Hosted, hosted
from lowerbound.compiled.jitted import Jitted, quickly
from lowerbound.compiled.tracing import traced


class Light:
    """A function of arrays that is traced once a shape, for some calls of each.

    NumPy runs it where it has every operation and one run takes less than to compile it, and the
    results are NumPy's arrays; else it is compiled quickly.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._jitted: Jitted | None = None
        self._known: dict[object, tuple[Hosted | None, Any]] = {}

    def __call__(self, *args: Any) -> Any:
        """The value of the function."""
        leaves, structure = jax.tree.flatten(args)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self._function(*args)
        leaves = [leaf if isinstance(leaf, jax.Array) else np.asarray(leaf) for leaf in leaves]
        kind = (structure, *((leaf.shape, leaf.dtype) for leaf in leaves))
        if kind not in self._known:
            closed, shapes = traced(self._function, return_shape=True)(*args)
            self._known[kind] = light(abreast(closed)), jax.tree.structure(shapes)
        run, outputs = self._known[kind]
        if run is not None:
            return jax.tree.unflatten(outputs, run(*leaves))
        self._jitted = self._jitted or quickly(self._function)
        return self._jitted(*args)


def light(closed: Any) -> Hosted | None:
    """The program as calls of NumPy, where one run of these is sooner than a compilation."""
    found = hosted(closed)
    return found if found is not None and found.seconds <= found.compilation else None


def lightly(function: Callable[..., Any]) -> Light:
    """The function for some calls: nothing is compiled where NumPy is sooner done.

    >>> import jax.numpy as jnp
    >>> lightly(lambda x: jnp.exp(x).sum())(np.zeros(3))
    array(3.)
    """
    return Light(function)
