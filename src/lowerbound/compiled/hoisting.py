"""A function of two arguments in two parts: what depends on the first alone, and the rest.

Draws from a mixture factor the matrices of a component once, not once a draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Literal

from lowerbound.compiled.interpreting import bind
from lowerbound.compiled.rewriting import Values
from lowerbound.compiled.tracing import traced


def in_two(
    function: Callable[[Any, Any], Any], first: Any, second: Any
) -> tuple[Callable[[Any], Values], Callable[[Values, Any], Any]]:
    """`prepare` and `finish`, with function(a, b) = finish(prepare(a), b) for arguments like these.

    What depends on neither argument is computed in both parts rather than handed over.
    """
    closed, shapes = traced(function, return_shape=True)(first, second)
    jaxpr, structure = closed.jaxpr, jax.tree.structure(shapes)
    count = len(jax.tree.leaves(first))
    known, unknown = {*jaxpr.invars[:count]}, {*jaxpr.invars[count:]}
    early, late = [], []
    for equation in jaxpr.eqns:
        inputs = {atom for atom in equation.invars if not isinstance(atom, Literal)}
        if equation.effects or inputs & unknown:
            unknown.update(equation.outvars)
            late.append(equation)
        elif inputs & known:
            known.update(equation.outvars)
            early.append(equation)
        else:
            early.append(equation)
            late.append(equation)
    read = [atom for equation in late for atom in equation.invars] + list(jaxpr.outvars)
    # In the order in which they are read, without repetition.
    handed = list(dict.fromkeys(a for a in read if not isinstance(a, Literal) and a in known))
    consts = list(zip(jaxpr.constvars, closed.consts, strict=True))

    def prepare(own: Any) -> Values:
        start = [*consts, *zip(jaxpr.invars[:count], jax.tree.leaves(own), strict=True)]
        return _evaluate(early, start, handed)

    def finish(prepared: Values, own: Any) -> Any:
        start = [*consts, *zip(handed, prepared, strict=True)]
        start += zip(jaxpr.invars[count:], jax.tree.leaves(own), strict=True)
        return jax.tree.unflatten(structure, _evaluate(late, start, jaxpr.outvars))

    return prepare, finish


def _evaluate(
    equations: Sequence[Any], start: Sequence[tuple[Any, Any]], wanted: Sequence[Any]
) -> Values:
    values = dict(start)

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in equations:
        found = bind(equation.primitive, [read(a) for a in equation.invars], equation.params)
        values.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in wanted]
