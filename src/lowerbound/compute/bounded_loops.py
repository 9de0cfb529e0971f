"""Programs whose loops end: a solver that takes too many steps gives NaN, not an endless wait.

A differential equation is stiff where rates are extreme, as they are at some starting points: an
explicit solver would take millions of steps there, and all other points of a batch wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from lowerbound.compiled import traced
from lowerbound.compiled.interpreting import bind, interpreted, itself
from lowerbound.compiled.rewriting import inner
from lowerbound.model.dependence import scan_sizes

MOST_STEPS = 5000  # of all runs of a loop that ends by a condition
LEAST_STEPS = 200  # that every run may take all the same

Values = Sequence[Any]


def has_open_loops(closed: ClosedJaxpr) -> bool:
    """Whether a program has a loop that ends by a condition."""
    return _holds_loop(closed.jaxpr)


def _holds_loop(jaxpr: Any) -> bool:
    return any(
        equation.primitive.name == "while" or any(map(_holds_loop, inner(equation)))
        for equation in jaxpr.eqns
    )


def bounded(function: Callable[..., Any], *shapes: Any) -> Callable[..., Any]:
    """The function of arguments like `shapes`, with a limit to the steps of its loops.

    It is not to be differentiated any further. Loops of a form that is not known here, those of
    another JAX say, keep the function as it is, without a limit.
    """
    closed, outputs = traced(function, return_shape=True)(*shapes)
    structure = jax.tree.structure(outputs)

    def run(*args: Any) -> Any:
        return jax.tree.unflatten(structure, _run(closed, jax.tree.leaves(args), 1))

    try:
        jax.eval_shape(run, *shapes)
    except (LookupError, AttributeError, TypeError, ValueError):
        return function
    return run


def _run(closed: ClosedJaxpr, args: Values, runs: int) -> list[Any]:
    """Evaluate a program, which is run so many times, with its loops replaced."""
    if not has_open_loops(closed):
        return list(jaxpr_as_fun(closed)(*args))

    def found(equation: Any, inputs: Values) -> Values:
        return _LOOPS.get(equation.primitive.name, _plain)(equation, inputs, runs)

    return interpreted(closed.jaxpr, closed.consts, args, found, itself)


def _plain(equation: Any, inputs: Values, runs: int) -> Values:
    return bind(equation.primitive, inputs, equation.params)


def _call(equation: Any, inputs: Values, runs: int) -> Values:
    names = [name for name in ("jaxpr", "call_jaxpr", "fun_jaxpr") if name in equation.params]
    return _run(equation.params[names[0]], inputs, runs)


def _while(equation: Any, inputs: Values, runs: int) -> Values:
    parameters, most = equation.params, max(LEAST_STEPS, MOST_STEPS // runs)
    first, second = parameters["cond_nconsts"], parameters["body_nconsts"]
    given, fixed, carry = inputs[:first], inputs[first : first + second], inputs[first + second :]

    def more(loop: tuple[Any, list[Any]]) -> Any:
        step, carry = loop
        return _run(parameters["cond_jaxpr"], [*given, *carry], runs)[0] & (step < most)

    def body(loop: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
        step, carry = loop
        return step + 1, _run(parameters["body_jaxpr"], [*fixed, *carry], runs * most)

    step, carry = jax.lax.while_loop(more, body, (jnp.zeros((), jnp.int32), list(carry)))
    lost = step >= most
    return [
        jnp.where(lost, jnp.nan, a).astype(a.dtype) if jnp.issubdtype(a.dtype, jnp.inexact) else a
        for a in carry
    ]


def _scan(equation: Any, inputs: Values, runs: int) -> Values:
    parameters = equation.params
    fixed, carries = scan_sizes(parameters)
    given, rows = inputs[:fixed], inputs[fixed + carries :]

    def body(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        found = _run(parameters["jaxpr"], [*given, *carry, *row], runs * parameters["length"])
        return found[:carries], found[carries:]

    last, stacked = jax.lax.scan(
        body,
        list(inputs[fixed : fixed + carries]),
        list(rows),
        length=parameters["length"],
        reverse=parameters["reverse"],
    )
    return [*last, *stacked]


def _cond(equation: Any, inputs: Values, runs: int) -> Values:
    def branch(closed: ClosedJaxpr) -> Callable[..., Values]:
        return lambda *args: _run(closed, args, runs)

    index, *operands = inputs
    found: Values = jax.lax.switch(
        index.astype(jnp.int32), [branch(b) for b in equation.params["branches"]], *operands
    )
    return found


_LOOPS: dict[str, Callable[[Any, Values, int], Values]] = {
    "while": _while,
    "scan": _scan,
    "cond": _cond,
    **dict.fromkeys(("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call"), _call),
}
