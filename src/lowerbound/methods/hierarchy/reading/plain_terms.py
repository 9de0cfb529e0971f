"""A program rewritten so that each of its terms has one predictor, where algebra alone says so.

Products of exponentials are exponentials of sums, and the logarithm of one is affine again; loops
are opened. Sums along an axis and loops that need themselves have levels of their own, which are
more inputs of the program, as their definitions are more outputs. Of programs that hold nothing of
the kind, nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from lowerbound.compiled import traced
from lowerbound.compiled.interpreting import bind, interpreted
from lowerbound.methods.hierarchy.reading.affine_functions import MOST_COEFFICIENTS, as_products
from lowerbound.methods.hierarchy.reading.dependence_kinds import (
    AFFINE,
    CURVED,
    DATA,
    stays_affine,
)
from lowerbound.methods.hierarchy.reading.element_maps import MOVED, placed_inputs
from lowerbound.methods.hierarchy.reading.flat_program import Name, Operation, opened
from lowerbound.methods.hierarchy.reading.recurring.loops import Loop, opened_loop, running_sum


def _right_sides(one: Any) -> Sequence[int]:
    """The right-hand sides of a linear solve: its last inputs."""
    return range(sum(one.params["const_lengths"]), len(one.invars))


# Operations that are linear in some of their inputs, though nothing more is known of them.
LINEAR: dict[str, Callable[[Any], Sequence[int]]] = {
    "bcoo_dot_general": lambda one: (2,),
    "conv_general_dilated": lambda one: (0,),
    "scatter-add": lambda one: (0, 2),
    "custom_linear_solve": _right_sides,
}


@dataclass(frozen=True, eq=False)
class Value:
    """A value of a program: how it depends on z; `exponent`, where it is factor * exp(exponent)."""

    array: Any
    kind: int = DATA
    exponent: Any = None
    factor: Any = 1.0


@dataclass(frozen=True, eq=False)
class Plain:
    """A program in plain terms: its inputs, then its levels; log p, then their definitions.

    owners: the number of the loop or sum that each of the levels belongs to.
    """

    closed: ClosedJaxpr
    owners: tuple[int, ...] = ()


def in_plain_terms(closed: ClosedJaxpr, z: Collection[int], without: Collection[int] = ()) -> Plain:
    """The same program in plain terms; `z` are the positions of the inputs that are z.

    without: the numbers of the loops and sums that have no levels.
    """

    def passed(count: int, levels: Sequence[Any]) -> tuple[_Pass, ClosedJaxpr]:
        pass_ = _Pass(frozenset(without))

        def run(*args: Any) -> list[Any]:
            given = [Value(a, AFFINE if number in z else DATA) for number, a in enumerate(args)]
            pass_.given = [Value(a, AFFINE) for a in args[count:]]
            found = pass_.run(closed.jaxpr, closed.consts, given[:count])
            return [value.array for value in (*found, *pass_.definitions)]

        return pass_, traced(run)(*closed.in_avals, *levels)

    count = len(closed.in_avals)
    first, rewritten = passed(count, ())
    if not first.changed:
        return Plain(closed)
    if not first.owners:
        return Plain(rewritten)
    second, rewritten = passed(count, first.shapes)
    return Plain(rewritten, tuple(second.owners))


@dataclass(eq=False)
class _Pass:
    """One pass over a program. given: the values of levels, where they are inputs already."""

    without: frozenset[int]
    changed: bool = False
    given: list[Value] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    owners: list[int] = field(default_factory=list)
    shapes: list[Any] = field(default_factory=list)
    definitions: list[Value] = field(default_factory=list)
    rules: dict[str, Callable[[Any, list[Value]], Value | None]] = field(init=False)

    def __post_init__(self) -> None:
        self.rules = {
            "exp": self._exp,
            "log": self._log,
            "mul": self._mul,
            "div": self._div,
            "neg": self._neg,
            "sqrt": lambda one, given: self._power(given[0], 0.5),
            "square": lambda one, given: self._power(given[0], 2.0),
            "rsqrt": lambda one, given: self._power(given[0], -0.5),
            "integer_pow": lambda one, given: self._power(given[0], float(one.params["y"])),
        }

    def run(self, jaxpr: Any, consts: Sequence[Any], given: Sequence[Value]) -> list[Value]:
        return interpreted(jaxpr, map(Value, consts), given, self._outputs, Value)

    def _outputs(self, one: Any, given: list[Value]) -> list[Value]:
        if all(value.kind == DATA for value in given):
            return [Value(array) for array in _bound(one, given)]
        inner = opened(one)
        if inner is not None:
            return self.run(inner[0], inner[1], given)
        if one.primitive.name in ("scan", "cumsum"):
            looped = self._opened(one, given)
            if looped is not None:
                return looped
        if self._is_linear(one, given):
            self.changed = True
            own = [number for number, value in enumerate(given) if value.kind != DATA]

            def run(*inputs: Any) -> list[Any]:
                return list(bind(one.primitive, inputs, one.params))

            arrays = [value.array for value in given]
            product = traced(lambda *a: as_products(run, a, own))(*arrays)
            return self.run(product.jaxpr, product.consts, given)
        rule = self.rules.get(one.primitive.name)
        found = None if rule is None else rule(one, given)
        if found is not None:
            return [found]
        kind = self._kind(one, given)
        arrays = _bound(one, given)
        if one.primitive.name in MOVED and any(value.exponent is not None for value in given):
            return [self._moved(one, given, array, kind) for array in arrays]
        return [Value(array, kind) for array in arrays]

    def _opened(self, one: Any, given: list[Value]) -> list[Value] | None:
        """A loop or a running sum opened; None where it stays as it is."""
        # A loop within one that is opened is there once for each step: all are one loop, which has
        # levels or has none.
        body = one.params.get("jaxpr", one)
        number = self.numbers.setdefault(id(body), len(self.numbers))
        aval = one.outvars[0].aval
        loop: Loop | None = None
        if one.primitive.name == "scan":
            touched = [value.kind != DATA for value in given]
            arrays = [value.array for value in given]
            loop = opened_loop(one.params, touched, arrays, number not in self.without)
        elif given[0].kind == AFFINE and number not in self.without:
            loop = running_sum(one.params, aval.shape, aval.dtype)
        if loop is None:
            return None
        self.changed = True
        levels = []
        for shape, dtype in loop.levels:
            place = len(self.owners)
            zero = Value(jnp.zeros(shape, dtype), AFFINE)
            levels.append(self.given[place] if self.given else zero)
            self.owners.append(number)
            self.shapes.append(np.zeros(shape, dtype))
        whole = [*given, *levels]
        steps = traced(loop.run)(*(value.array for value in whole))
        found = self.run(steps.jaxpr, steps.consts, whole)
        outputs = len(one.outvars)
        self.definitions += found[outputs:]
        return found[:outputs]

    def _is_linear(self, one: Any, given: Sequence[Value]) -> bool:
        """Whether an operation is linear in what is affine, but of a kind that is no matrix yet."""
        places = LINEAR.get(one.primitive.name)
        if places is None:
            return False
        own = [number for number, value in enumerate(given) if value.kind != DATA]
        size = sum(one.invars[number].aval.size for number in own)
        return (
            all(given[number].kind == AFFINE and number in places(one) for number in own)
            and size * one.outvars[0].aval.size <= MOST_COEFFICIENTS
        )

    def _kind(self, one: Any, given: Sequence[Value]) -> int:
        kinds = [value.kind for value in given]
        names = [
            tuple(Name(0, tuple(v.aval.shape), v.aval.dtype) for v in variables)
            for variables in (one.invars, one.outvars)
        ]
        operation = Operation(one.primitive.name, one.primitive, one.params, *names)
        affine = max(kinds) == AFFINE and stays_affine(operation, kinds)
        return AFFINE if affine else CURVED

    # ----------------------------------------------------------------------------------------------
    # Exponentials

    def _exp(self, one: Any, given: list[Value]) -> Value | None:
        if given[0].kind != AFFINE:
            return None
        return Value(_bound(one, given)[0], CURVED, exponent=given[0])

    def _log(self, one: Any, given: list[Value]) -> Value | None:
        inside = given[0]
        if inside.exponent is None:
            return None
        self.changed = True
        return Value(jnp.log(inside.factor) + inside.exponent.array, AFFINE)

    def _mul(self, one: Any, given: list[Value]) -> Value | None:
        first, second = given
        if DATA in (first.kind, second.kind):
            inside, other = (second, first) if first.kind == DATA else (first, second)
            if inside.exponent is None:
                return None
            array = _bound(one, given)[0]
            return Value(array, CURVED, inside.exponent, inside.factor * other.array)
        if first.exponent is None or second.exponent is None:
            return None
        return self._joined(first, second, first.factor * second.factor, 1.0)

    def _div(self, one: Any, given: list[Value]) -> Value | None:
        first, second = given
        if second.kind == DATA:
            if first.exponent is None:
                return None
            factor = first.factor / second.array
            return Value(_bound(one, given)[0], CURVED, first.exponent, factor)
        if second.exponent is None:
            return None
        if first.kind == DATA:
            turned = Value(-second.exponent.array, AFFINE)
            return Value(_bound(one, given)[0], CURVED, turned, first.array / second.factor)
        if first.exponent is None:
            return None
        return self._joined(first, second, first.factor / second.factor, -1.0)

    def _joined(self, first: Value, second: Value, factor: Any, sign: float) -> Value:
        """The product or the quotient of two exponentials."""
        self.changed = True
        whole = first.exponent.array + sign * second.exponent.array
        return Value(factor * jnp.exp(whole), CURVED, Value(whole, AFFINE), factor)

    def _neg(self, one: Any, given: list[Value]) -> Value | None:
        inside = given[0]
        if inside.exponent is None:
            return None
        return Value(_bound(one, given)[0], CURVED, inside.exponent, -inside.factor)

    def _power(self, inside: Value, power: float) -> Value | None:
        if inside.exponent is None:
            return None
        self.changed = True
        factor = inside.factor**power
        whole = power * inside.exponent.array
        return Value(factor * jnp.exp(whole), CURVED, Value(whole, AFFINE), factor)

    def _moved(self, one: Any, given: list[Value], array: Any, kind: int) -> Value:
        """An exponential whose elements are moved: so are those of its exponent."""
        moves = [n for n in range(len(given)) if n not in placed_inputs(_operation(one))]
        inside = given[moves[0]]
        if len(moves) != 1 or inside.exponent is None:
            return Value(array, kind)

        def applied(other: Any) -> Any:
            whole = jnp.broadcast_to(other, inside.array.shape).astype(inside.array.dtype)
            arrays = [whole if n in moves else value.array for n, value in enumerate(given)]
            return bind(one.primitive, arrays, one.params)[0]

        scalar = np.ndim(inside.factor) == 0
        factor = inside.factor if scalar else applied(inside.factor)
        exponent = Value(applied(inside.exponent.array), AFFINE)
        return Value(array, kind, exponent, factor)


def _operation(one: Any) -> Operation:
    names = tuple(Name(0, tuple(v.aval.shape), v.aval.dtype) for v in one.invars)
    return Operation(one.primitive.name, one.primitive, one.params, names, ())


def _bound(one: Any, given: Sequence[Value]) -> list[Any]:
    return list(bind(one.primitive, [value.array for value in given], one.params))
