"""Jitted functions whose linear algebra is safe on a pool of any size."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Final

import jax

from lowerbound.compiled.options import quick_options
from lowerbound.compiled.unsplit import kernels_divide, unsplit
from lowerbound.compiled.waiting import interruptibly, settled

_STATIC: Final = ("static_argnums", "static_argnames")


class Jitted:
    """A function that is traced once a shape, made safe (`unsplit`), and compiled.

    It stands for `jax.jit(function, **options)`. Called while another function is traced, it is a
    part of that one, which is made safe as a whole: rewritten are programs that nothing will map or
    differentiate any more. So map and differentiate inside what is jitted, not around it.

    Its results are waited for, so that Ctrl-C works, unless `ahead`: then the next call may be
    prepared while this one runs.
    """

    def __init__(
        self, function: Callable[..., Any], *, ahead: bool = False, **options: Any
    ) -> None:
        update_wrapper(self, function, updated=())  # its own attributes stay its own
        static = {name: value for name, value in options.items() if name in _STATIC}
        self._inner: Any = jax.jit(function, **static)
        self._outer: Any = jax.jit(_safe(function, self._inner), **options)
        self._ahead = ahead
        self._seen: set[object] = set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The value of the function, compiled on first use for such arguments."""
        leaves, structure = jax.tree.flatten((args, kwargs))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return self._inner(*args, **kwargs)
        kind = structure, *map(_kind, leaves)
        if kind not in self._seen:  # the call finds what was compiled
            interruptibly(self._outer.lower(*args, **kwargs).compile)
            self._seen.add(kind)
        found = self._outer(*args, **kwargs)
        return found if self._ahead else settled(found)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """As of `jax.jit`: the program for such arguments, which can be lowered."""
        return self._outer.trace(*args, **kwargs)

    def clear_cache(self) -> None:
        """As of `jax.jit`: forget what was traced and compiled."""
        self._inner.clear_cache()
        self._outer.clear_cache()
        self._seen.clear()

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """As of `jax.jit`: the lowered program, which can be compiled."""
        return self._outer.lower(*args, **kwargs)


def _kind(leaf: Any) -> object:
    """What of an argument decides which program is run, as far as it is known here."""
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return leaf.shape, leaf.dtype
    return type(leaf)


def _safe(function: Callable[..., Any], inner: Callable[..., Any]) -> Callable[..., Any]:
    if not kernels_divide():
        return function

    def safe(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = jax.tree.flatten((args, kwargs))
        traced = [n for n, leaf in enumerate(leaves) if isinstance(leaf, jax.core.Tracer)]

        def call(*values: Any) -> Any:
            filled = list(leaves)
            for n, value in zip(traced, values, strict=True):
                filled[n] = value
            args, kwargs = jax.tree.unflatten(structure, filled)
            return inner(*args, **kwargs)

        own = [leaves[n] for n in traced]
        closed, shapes = jax.make_jaxpr(call, return_shape=True)(*own)
        rewriting = unsplit()
        if not rewriting.touches(closed.jaxpr):
            return inner(*args, **kwargs)  # traced already
        found = rewriting.run(closed.jaxpr, closed.consts, own)
        return jax.tree.unflatten(jax.tree.structure(shapes), found)

    return update_wrapper(safe, function, updated=())


def jit(function: Callable[..., Any], **options: Any) -> Jitted:
    """Compile a function, with the options of `jax.jit`."""
    return Jitted(function, **options)


def quickly(function: Callable[..., Any]) -> Jitted:
    """Jit the function for speed of compilation rather than of execution."""
    return Jitted(function, compiler_options=quick_options())
