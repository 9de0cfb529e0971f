"""Programs with some of their operations replaced, wherever in them these stand.

The loops, branches and calls of a program hold programs of their own as parameters. These are
rewritten in place, each into one of the same inputs and outputs, so that nothing need be known of
the operation that holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

from lowerbound.compiled.interpreting import bind, interpreted, itself
from lowerbound.compiled.tracing import traced

Values = list[Any]
# A replacement takes an equation and its inputs and returns its outputs; None keeps the equation.
Replacement = Callable[[Any, Sequence[Any]], Values]
# Their derivatives are functions, of no use in a program that will not be differentiated.
_INLINED = ("custom_jvp_call", "custom_vjp_call")


def inner(equation: Any) -> Iterator[Jaxpr]:
    """The programs that an operation holds."""
    for leaf in _leaves(equation.params.values()):
        yield leaf.jaxpr if isinstance(leaf, ClosedJaxpr) else leaf


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, ClosedJaxpr | Jaxpr):
            yield value
        elif isinstance(value, tuple | list):
            yield from _leaves(value)


@dataclass(frozen=True, eq=False)
class Rewriting:
    """A program with the operations that `wanted` chooses replaced by what `replacement` computes.

    It is to be compiled, not differentiated any further: custom derivatives are dropped.
    """

    wanted: Callable[[Any], bool]
    replacement: Replacement
    _touched: dict[int, tuple[Jaxpr, bool]] = field(default_factory=dict)
    _rewritten: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def touches(self, jaxpr: Jaxpr) -> bool:
        """Whether anything in the program is to be replaced."""
        if id(jaxpr) not in self._touched:  # the program is kept with its answer: ids are reused
            found = any(
                self.wanted(equation) or any(map(self.touches, inner(equation)))
                for equation in jaxpr.eqns
            )
            self._touched[id(jaxpr)] = jaxpr, found
        return self._touched[id(jaxpr)][1]

    def run(self, jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> Values:
        """Evaluate a program with its operations replaced."""
        return interpreted(jaxpr, consts, args, self._outputs, itself)

    def _outputs(self, equation: Any, inputs: Values) -> Values:
        if self.wanted(equation):
            return self.replacement(equation, inputs)
        params = equation.params
        if any(map(self.touches, inner(equation))):
            if equation.primitive.name in _INLINED:
                closed = params["call_jaxpr"]
                return self.run(closed.jaxpr, closed.consts, inputs)
            params = {name: self._replaced(value) for name, value in params.items()}
        return bind(equation.primitive, inputs, params)

    def _replaced(self, value: Any) -> Any:
        """A parameter with the programs in it rewritten."""
        if isinstance(value, ClosedJaxpr | Jaxpr):
            if id(value) not in self._rewritten:  # one program stays one, and is compiled once
                self._rewritten[id(value)] = value, self._program(value)
            return self._rewritten[id(value)][1]
        if isinstance(value, tuple | list) and any(True for _ in _leaves(value)):
            parts = [self._replaced(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        return value

    def _program(self, value: Any) -> Any:
        closed = isinstance(value, ClosedJaxpr)
        jaxpr, consts = (value.jaxpr, value.consts) if closed else (value, ())
        if not self.touches(jaxpr):
            return value
        shapes = [_shape(variable.aval) for variable in jaxpr.invars]
        new = traced(lambda *args: self.run(jaxpr, consts, args))(*shapes)
        if closed:
            return new
        if new.consts:
            raise TypeError("A program without constants was rewritten into one with some.")
        return new.jaxpr


def _shape(aval: Any) -> jax.ShapeDtypeStruct:
    weak = getattr(aval, "weak_type", False)
    return jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
        aval.shape, aval.dtype, weak_type=weak
    )


def inlined(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> Values:
    """Evaluate a program with the programs that it calls in place: sooner differentiated."""

    def outputs(equation: Any, inputs: Values) -> Values:
        if equation.primitive.name not in ("jit", "pjit"):
            return bind(equation.primitive, inputs, equation.params)
        called = equation.params["jaxpr"]
        return inlined(called.jaxpr, called.consts, inputs)

    return interpreted(jaxpr, consts, args, outputs, itself)
