"""Which inputs of a jaxpr each output depends on, and evaluating a few of its outputs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun, jaxprs_in_params

from lowerbound.compiled import Kept, jit, traced
from lowerbound.compiled.host import light

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

    The outputs of a `scan` depend on what its steps hand on; those of other loops on all inputs.
    """
    known: dict[Any, Inputs] = {v: frozenset([i]) for i, v in enumerate(jaxpr.invars)}

    def of(atom: Any) -> Inputs:
        return frozenset() if isinstance(atom, Literal) else known.get(atom, frozenset())

    for equation in jaxpr.eqns:
        inputs = [of(atom) for atom in equation.invars]
        inner = _inner(equation)
        if equation.primitive.name == "scan":
            outputs = _scanned(equation, inputs)
        elif inner is None:
            everything = frozenset[int]().union(*inputs)
            outputs = [everything] * len(equation.outvars)
        else:
            outputs = _through(dependence(inner), inputs)
        known.update(zip(equation.outvars, outputs, strict=True))
    return [of(atom) for atom in jaxpr.outvars]


def _through(inner: Sequence[Inputs], inputs: Sequence[Inputs]) -> list[Inputs]:
    return [frozenset[int]().union(*(inputs[i] for i in positions)) for positions in inner]


def _scanned(equation: Any, inputs: Sequence[Inputs]) -> list[Inputs]:
    fixed, carries = scan_sizes(equation.params)
    step = dependence(equation.params["jaxpr"].jaxpr)
    known = list(inputs)
    while True:  # until the steps hand on nothing new
        outputs = _through(step, known)
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
