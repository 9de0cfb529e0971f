"""Which inputs of a jaxpr each output depends on, and evaluating a few of its outputs."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun, jaxprs_in_params

from lowerbound.compiled import Kept, jit, traced
from lowerbound.compiled.host import light
from lowerbound.compiled.host.operations import PLAIN, REDUCED, operation

Inputs = frozenset[int]

# Call-like primitives whose inner jaxpr has the equation's own inputs and outputs.
_CALLS = {
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "remat",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
}


def dependence(jaxpr: Jaxpr) -> list[Inputs]:
    """For each output the set of input positions it depends on.

    Scalars that a Python loop stacks and takes apart again stay apart: elements of small arrays are
    followed one by one. The outputs of a `scan` depend on what its steps hand on; those of other
    loops on all inputs.

    >>> squares = lambda x, y: jnp.stack([x, y]) ** 2
    >>> closed = jax.make_jaxpr(lambda x, y: (squares(x, y)[1], squares(x, y).sum()))(1.0, 2.0)
    >>> dependence(closed.jaxpr)
    [frozenset({1}), frozenset({0, 1})]
    """
    masks = _masks(jaxpr, [1 << i for i in range(len(jaxpr.invars))])
    return [frozenset(i for i in range(len(jaxpr.invars)) if all_of(m) >> i & 1) for m in masks]


# Inputs as the bits of a number: one for all elements of an array, or an array of one for each.
_Mask = Any
_LARGEST: Final = 4096  # elements that are followed one by one
_JOINS: Final = {"concatenate", "stack"}
_MOVES: Final = _JOINS | {
    "slice", "squeeze", "reshape", "broadcast_in_dim", "transpose", "rev", "expand_dims",
}  # fmt: skip
_ELEMENTWISE: Final = PLAIN.keys() | {"select_n", "integer_pow", "convert_element_type"}


def _masks(jaxpr: Jaxpr, inputs: Sequence[_Mask]) -> list[_Mask]:
    """What each output depends on, given what the inputs do."""
    known: dict[Any, _Mask] = dict(zip(jaxpr.invars, inputs, strict=True))

    def of(atom: Any) -> _Mask:
        return 0 if isinstance(atom, Literal) else known.get(atom, 0)

    for equation in jaxpr.eqns:
        given = [of(atom) for atom in equation.invars]
        inner = _inner(equation)
        if equation.primitive.name == "scan":
            outputs = _scanned(equation, given)
        elif equation.primitive.name == "unstack" and not isinstance(given[0], int):
            outputs = [_plain(part) for part in np.moveaxis(given[0], equation.params["axis"], 0)]
        elif inner is None:
            outputs = [_followed(equation, given)] * len(equation.outvars)
        else:
            outputs = _masks(inner, given)
        known.update(zip(equation.outvars, outputs, strict=True))
    return [of(atom) for atom in jaxpr.outvars]


def all_of(*masks: _Mask) -> int:
    """All inputs that some element depends on."""
    found = 0
    for mask in masks:
        found |= mask if isinstance(mask, int) else int(np.bitwise_or.reduce(mask, axis=None))
    return found


def _followed(equation: Any, given: Sequence[_Mask]) -> _Mask:
    """What the output of an operation depends on, element by element where that may differ."""
    name, shape = equation.primitive.name, equation.outvars[0].aval.shape
    joins = name in _JOINS and len(set(map(all_of, given))) > 1
    if not joins and all(isinstance(mask, int) for mask in given):
        return all_of(*given)
    if math.prod(shape) > _LARGEST:
        return all_of(*given)
    if name in _ELEMENTWISE:  # sizes of one may meet others
        found = np.broadcast_to(reduce(np.bitwise_or, given), shape)
    elif name in REDUCED:
        found = given[0]
        for axis in sorted(equation.params["axes"], reverse=True):
            found = np.bitwise_or.reduce(found, axis=axis)
    elif name in _MOVES and (move := operation(equation)) is not None:
        pairs = zip(given, equation.invars, strict=True)
        found = move(
            *[m if not isinstance(m, int) else np.full(a.aval.shape, m, object) for m, a in pairs]
        )
    else:
        return all_of(*given)
    return _plain(found)


def _plain(mask: Any) -> _Mask:
    """That of one number as a number."""
    return mask if np.ndim(mask) else int(np.asarray(mask).item())


def _scanned(equation: Any, given: Sequence[_Mask]) -> list[_Mask]:
    fixed, carries = scan_sizes(equation.params)
    known = [all_of(mask) for mask in given]
    while True:  # until the steps hand on nothing new
        outputs = [all_of(mask) for mask in _masks(equation.params["jaxpr"].jaxpr, known)]
        carried = [a | b for a, b in zip(known[fixed : fixed + carries], outputs, strict=False)]
        if carried == known[fixed : fixed + carries]:
            return [*carried, *outputs[carries:]]
        known[fixed : fixed + carries] = carried


def scan_sizes(parameters: Mapping[str, Any]) -> tuple[int, int]:
    """The numbers of constants and of carried values among the inputs of a scan."""
    if "ft_in" in parameters:  # JAX 0.11
        fixed, carries, _ = map(len, parameters["ft_in"].unpack())
        return fixed, carries
    return parameters["num_consts"], parameters["num_carry"]


def _inner(equation: Any) -> Jaxpr | None:
    if equation.primitive.name not in _CALLS:
        return None
    for name in ("jaxpr", "call_jaxpr"):
        inner = equation.params.get(name)
        if inner is not None:
            inner = getattr(inner, "jaxpr", inner)
            if len(inner.invars) == len(equation.invars):
                return inner  # type: ignore[no-any-return]
    return None


_compiled: Kept[Any] = Kept(64)


def digest(closed: ClosedJaxpr, *names: str) -> str:
    """A digest that equal programs share: equations, literals (exactly), constants, and `names`.

    A jaxpr has no names of sites and data; what is compiled for one program may go by them.
    """
    total = hashlib.sha256(str((closed.jaxpr, names)).encode())
    for array in (*closed.consts, *_literals(closed.jaxpr)):
        is_key = isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        known = np.asarray(jax.random.key_data(array) if is_key else array)
        total.update(f"{known.shape}{known.dtype}".encode() + known.tobytes())
    return total.hexdigest()


def _literals(jaxpr: Any) -> list[Any]:
    found = []
    for equation in jaxpr.eqns:
        found += [v.val for v in equation.invars if isinstance(v, Literal)]
        for inner in jaxprs_in_params(equation.params):
            found += _literals(inner)
    return found + [v.val for v in jaxpr.outvars if isinstance(v, Literal)]


def restrict(closed: ClosedJaxpr, outputs: Sequence[int]) -> ClosedJaxpr:
    """The jaxpr of some outputs only, without the equations they do not need."""
    jaxpr = closed.jaxpr
    wanted = [jaxpr.outvars[i] for i in outputs]
    needed = {atom for atom in wanted if not isinstance(atom, Literal)}
    equations = []
    for equation in reversed(jaxpr.eqns):
        if any(v in needed for v in equation.outvars):
            equations.append(equation)
            needed.update(atom for atom in equation.invars if not isinstance(atom, Literal))
    return ClosedJaxpr(jaxpr.replace(eqns=equations[::-1], outvars=wanted), closed.consts)


def equal_programs(closed: ClosedJaxpr) -> Callable[..., Any]:
    """The program as a function, compiled once for all that are equal to it."""
    found: Callable[..., Any]
    found = _compiled.of(digest(closed), partial(jit, jaxpr_as_fun(closed)))
    return found


def evaluator(
    closed: ClosedJaxpr, outputs: Sequence[int]
) -> Callable[[Sequence[Any]], list[np.ndarray]]:
    """Some outputs as a function of the inputs, only what these need.

    NumPy runs what is sooner done than compiled; the rest compiles once for equal programs.
    """
    part = restrict(closed, outputs)
    run = light(part)
    if run is not None:
        return lambda inputs: run(*inputs)
    function = equal_programs(part)

    def evaluate(inputs: Sequence[Any]) -> list[np.ndarray]:
        return [np.asarray(value) for value in function(*inputs)]

    return evaluate


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled once for all that trace to the same program.

    For functions that are made anew with every call. What is large should be an argument: arrays
    that it closes over are part of the program, and are kept with it.
    """

    def call(*args: Any) -> Any:
        closed, shapes = traced(function, return_shape=True)(*args)
        compiled = equal_programs(closed)
        return jax.tree.unflatten(jax.tree.structure(shapes), compiled(*jax.tree.leaves(args)))

    return call
