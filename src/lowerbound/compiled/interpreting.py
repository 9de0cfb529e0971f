"""A program evaluated in another domain: the one loop over its equations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from jax.extend.core import Jaxpr, Literal

V = TypeVar("V")


def interpreted(
    jaxpr: Jaxpr,
    consts: Iterable[V],
    inputs: Iterable[V],
    outputs: Callable[[Any, list[V]], Sequence[V]],
    literal: Callable[[Any], V],
    equations: Iterable[Any] | None = None,
) -> list[V]:
    """The outputs of a program, whose constants and inputs are values V of any domain.

    `outputs` makes those of an equation from its inputs, `literal` a value of a number in the
    program. `equations` are those that are evaluated, where not all are.

    >>> import jax
    >>> closed = jax.make_jaxpr(lambda x, y: 2.0 * x + y)(1.0, 1.0)
    >>> names = lambda equation, given: [f"{equation.primitive}({', '.join(given)})"]
    >>> interpreted(closed.jaxpr, closed.consts, ["x", "y"], names, str)
    ['add(mul(2.0..., x), y)']
    """
    known: dict[Any, V] = {}
    known.update(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> V:
        return literal(atom.val) if isinstance(atom, Literal) else known[atom]

    for equation in jaxpr.eqns if equations is None else equations:
        found = outputs(equation, [read(atom) for atom in equation.invars])
        known.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def itself(value: V) -> V:
    """The value: what a literal is where programs are evaluated as they are."""
    return value


def bind(primitive: Any, inputs: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """The outputs of an operation."""
    bound = primitive.get_bind_params(params)
    functions, parameters = bound if isinstance(bound, tuple) else ((), bound)
    found = primitive.bind(*functions, *inputs, **parameters)
    return list(found) if primitive.multiple_results else [found]
