"""Functions that are called a few times: run by NumPy, or compiled where that is sooner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from lowerbound.compiled.abreast import abreast
from lowerbound.compiled.host.running import Hosted, hosted
from lowerbound.compiled.jitted import Jitted, quickly
from lowerbound.compiled.tracing import traced

FITS, CALLS = 10, 100  # how often, about: what a fit runs once, and what may be called in a loop


class Light:
    """A function of arrays that is traced once a shape, for some calls of each.

    NumPy runs it where it has every operation and `runs` runs take less than to compile it, and the
    results are NumPy's arrays; else it is compiled: quickly, unless it is jitted already.
    """

    def __init__(self, function: Callable[..., Any], runs: float = 1) -> None:
        self._function, self._runs = function, runs
        self._known: dict[object, Callable[..., Any]] = {}

    def __call__(self, *args: Any) -> Any:
        """The value of the function."""
        leaves, structure = jax.tree.flatten(args)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self._function(*args)
        leaves = [leaf if isinstance(leaf, jax.Array) else np.asarray(leaf) for leaf in leaves]
        kinds = ((leaf.shape, leaf.dtype) for leaf in leaves)
        kind = (structure, jax.config.jax_enable_x64, *kinds)  # type: ignore[attr-defined]
        if kind not in self._known:
            self._known[kind] = self._made(args)
        return self._known[kind](*args)

    def _made(self, args: tuple[Any, ...]) -> Callable[..., Any]:
        found = on_host(self._function, self._runs, *args)
        if isinstance(found, OnHost):
            return found
        return self._function if isinstance(self._function, Jitted) else quickly(found)


def light(closed: Any, runs: float = 1) -> Hosted | None:
    """The program as calls of NumPy, where so many runs of these are sooner than a compilation."""
    found = hosted(closed)
    return found if found is not None and runs * found.seconds <= found.compilation else None


def lightly(function: Callable[..., Any], runs: float = 1) -> Light:
    """The function for some `runs` of it: nothing is compiled where NumPy is sooner done.

    >>> lightly(lambda x: jnp.exp(x).sum())(np.zeros(3))
    array(3.)
    """
    return Light(function, runs)


def readily(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for any number of calls, by users too: it returns arrays of JAX.

    NumPy runs what it has done in no time, so that the first call does not wait for a compilation
    and the others are not felt.
    """
    light = Light(function, CALLS)
    return update_wrapper(lambda *args: jax.tree.map(jnp.asarray, light(*args)), function)


@dataclass(frozen=True, eq=False)
class OnHost:
    """A function that NumPy runs, and the shapes of what it returns."""

    run: Hosted
    shapes: Any

    def __call__(self, *args: Any) -> Any:
        """The function's value."""
        found = self.run(*jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(self.shapes), found)


def on_host(function: Callable[..., Any], runs: float, *args: Any) -> OnHost | Callable[..., Any]:
    """The function of such arguments, traced now, for so many runs.

    Where NumPy is not sooner done with these, it is a function of JAX, to be compiled: the program
    that was traced.
    """
    closed, shapes = traced(function, return_shape=True)(*args)
    found = as_traced(closed, shapes, runs)
    return found if isinstance(found, OnHost) else update_wrapper(found, function, updated=())


def as_traced(closed: ClosedJaxpr, shapes: Any, runs: float) -> OnHost | Callable[..., Any]:
    """The same of a program that is traced, and the form of what it returns."""
    run = light(abreast(closed), runs)
    if run is not None:
        return OnHost(run, shapes)
    structure = jax.tree.structure(shapes)

    def again(*args: Any) -> Any:
        # What follows from constants alone, codes of rows say, XLA would work out as it compiles:
        # number by number, for seconds.
        consts = [jax.lax.optimization_barrier(const) for const in closed.consts]  # type: ignore[no-untyped-call]
        program = jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, consts))
        return jax.tree.unflatten(structure, program(*jax.tree.leaves(args)))

    return again
