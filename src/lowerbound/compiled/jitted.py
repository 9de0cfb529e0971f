"""Jitted functions whose linear algebra is safe on a pool of any size, and log Gamma quick."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import update_wrapper
from typing import Any, Final, TypeAlias

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from lowerbound.compiled.abreast import abreast
from lowerbound.compiled.convolutions import by_sums, is_double_convolution
from lowerbound.compiled.gamma_functions import by_series, is_large_gamma
from lowerbound.compiled.options import brisk_options, quick_options
from lowerbound.compiled.rewriting import Rewriting, Values
from lowerbound.compiled.tracing import apart
from lowerbound.compiled.unsplit import divided, in_parts, kernels_divide
from lowerbound.compiled.waiting import awaited, settled, started

_STATIC: Final = ("static_argnums", "static_argnames")
MOST_PARTS: Final = 64  # programs of one function that are kept as parts of others

# By kind: a program, and the constants that it is given.
Parts: TypeAlias = "OrderedDict[object, tuple[Callable[..., Any], Sequence[Any]]]"


class Jitted:
    """A function, traced once a shape, made short (`abreast`), safe (`unsplit`,
    `convolutions`) and quick (`gamma_functions`), compiled.

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
        self._compiled: dict[object, Future[None]] = {}  # of each kind of arguments
        self._lock = threading.Lock()
        self._parts: Parts = OrderedDict()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The value of the function, compiled on first use for such arguments."""
        leaves, structure = jax.tree.flatten((args, kwargs))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return _part(self._inner, args, kwargs, known=self._parts)
        self._await((structure, *map(_kind, leaves)), lambda: self._outer.lower(*args, **kwargs))
        found = self._outer(*args, **kwargs)  # which finds what was compiled
        return found if self._ahead else settled(found)

    def prepare(self, *args: Any, **kwargs: Any) -> Any:
        """Compile for such arguments, or shapes, in the background; the shapes of the results.

        A call that comes sooner waits for it. A compilation that fails is tried again by the call.
        """
        leaves, structure = jax.tree.flatten((args, kwargs))
        lowered = self._outer.lower(*args, **kwargs)
        self._begun((structure, *map(_kind, leaves)), lambda: lowered)
        return jax.tree.map(_shape, lowered.out_info)

    def _await(self, kind: object, lowered: Callable[[], Any]) -> None:
        """Until it is compiled, by this thread or by another."""
        while True:
            future, own = self._begun(kind, lowered)
            if future.done() and not future.exception():
                return
            try:
                awaited(future)
            except BaseException:
                if own or not _failed(future):
                    raise

    def _begun(self, kind: object, lowered: Callable[[], Any]) -> tuple[Future[None], bool]:
        """The compilation of a kind, and whether this call has begun it."""
        future: Future[None] = Future()
        try:  # from here on, so that Ctrl-C leaves nothing that others wait for in vain
            with self._lock:
                known = self._compiled.get(kind)
                if known is not None and not _failed(known):
                    return known, False
                self._compiled[kind] = future
            program = lowered()
            started(lambda: _only(program.compile), future)
        except BaseException as error:
            if not future.done():
                future.set_exception(error)
            raise
        return future, True

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """As of `jax.jit`: the program for such arguments, which can be lowered."""
        return self._outer.trace(*args, **kwargs)

    def clear_cache(self) -> None:
        """As of `jax.jit`: forget what was traced and compiled."""
        self._inner.clear_cache()
        self._outer.clear_cache()
        self._parts.clear()
        with self._lock:
            self._compiled.clear()

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """As of `jax.jit`: the lowered program, which can be compiled."""
        return self._outer.lower(*args, **kwargs)


def _only(compilation: Callable[[], object]) -> None:
    compilation()  # JAX keeps what it returns, for as long as that is of use


def _failed(future: Future[None]) -> bool:
    return future.done() and future.exception() is not None


def _shape(one: Any) -> Any:
    return jax.ShapeDtypeStruct(one.shape, one.dtype)  # type: ignore[no-untyped-call]


def _kind(leaf: Any) -> object:
    """What of an argument decides which program is run, as far as it is known here."""
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return leaf.shape, leaf.dtype
    return type(leaf)


def _safe(function: Callable[..., Any], inner: Any) -> Callable[..., Any]:
    rewriting = Rewriting(_replaced, _instead)

    def safe(*args: Any, **kwargs: Any) -> Any:
        return _part(inner, args, kwargs, rewriting)

    return update_wrapper(safe, function, updated=())


def _replaced(equation: Any) -> bool:
    """Whether an operation is compiled as another one."""
    if kernels_divide() and divided(equation):
        return True
    return is_large_gamma(equation) or is_double_convolution(equation)


def _instead(equation: Any, inputs: Sequence[Any]) -> Values:
    """What computes the same."""
    if is_double_convolution(equation):
        return by_sums(equation, inputs)
    return (by_series if is_large_gamma(equation) else in_parts)(equation, inputs)


def _part(
    inner: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    rewriting: Rewriting | None = None,
    known: Parts | None = None,
) -> Any:
    """A jitted function as a part of what is being traced, rewritten where that is to be.

    It keeps nothing of the arrays that it closes over: a part holds copies (`apart`), and is
    itself kept in `known`, as JAX is made to forget what it has traced.
    """
    leaves, structure = jax.tree.flatten((args, kwargs))
    given = [n for n, leaf in enumerate(leaves) if isinstance(leaf, jax.core.Tracer)]
    own = [leaves[n] for n in given]
    kind = None if known is None else _kind_of_part(structure, leaves)
    if known is not None and kind in known:
        known.move_to_end(kind)
        whole_part, consts = known[kind]
        return whole_part(consts, own)

    def call(*values: Any) -> Any:
        filled = list(leaves)
        for n, value in zip(given, values, strict=True):
            filled[n] = value
        args, kwargs = jax.tree.unflatten(structure, filled)
        return inner(*args, **kwargs)

    whole, shapes = jax.make_jaxpr(call, return_shape=True)(*own)
    own_arrays = apart(whole)
    if own_arrays is not whole:
        inner.clear_cache()
    closed, form = abreast(own_arrays), jax.tree.structure(shapes)
    if rewriting is not None and rewriting.touches(closed.jaxpr):
        found = rewriting.run(closed.jaxpr, closed.consts, own)
    elif closed is not whole:
        if known is not None and kind is not None:
            known[kind] = _by_itself(closed.jaxpr, form), closed.consts
            if len(known) > MOST_PARTS:
                known.popitem(last=False)
            return known[kind][0](closed.consts, own)
        found = jaxpr_as_fun(closed)(*own)
    else:
        return inner(*args, **kwargs)  # traced already
    return jax.tree.unflatten(form, found)


def _by_itself(program: Any, form: Any) -> Callable[..., Any]:
    """A program whose constants are arguments: traced and lowered once, wherever it is a part."""

    def part(consts: Sequence[Any], own: Sequence[Any]) -> Any:
        found = jaxpr_as_fun(ClosedJaxpr(program, list(consts)))(*own)
        return jax.tree.unflatten(form, found)

    return jax.jit(part)


def _kind_of_part(structure: Any, leaves: Sequence[Any]) -> object:
    """What decides which program a part is; None where its arguments cannot tell."""
    own = [
        jax.typeof(leaf) if isinstance(leaf, jax.core.Tracer) else (type(leaf), leaf)
        for leaf in leaves
    ]
    kind = jax.config.jax_enable_x64, structure, *own  # type: ignore[attr-defined]
    try:
        hash(kind)
    except TypeError:
        return None
    return kind


def jit(function: Callable[..., Any], **options: Any) -> Jitted:
    """Compile a function, with the options of `jax.jit`."""
    return Jitted(function, **options)


def quickly(function: Callable[..., Any]) -> Jitted:
    """Jit the function for speed of compilation rather than of execution."""
    return Jitted(function, compiler_options=quick_options())


def briskly(function: Callable[..., Any]) -> Jitted:
    """Jit the function for both: what runs for seconds, and should not compile for longer."""
    return Jitted(function, compiler_options=brisk_options())
