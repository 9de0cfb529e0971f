"""Interpret a jaxpr in the domain of labelled terms.

Equations that no latent site touches are evaluated as they are (in NumPy where their inputs are
known while deriving, so that index arithmetic stays visible). The others go through the rules of
`elementwise`, `structural`, `indexing` and `multiplied`; a primitive without a rule yields a
`Poison`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from lowerbound.compiled import traced
from lowerbound.compiled.interpreting import interpreted
from lowerbound.joint.rules import elementwise, indexing, multiplied, static, structural
from lowerbound.joint.rules.scans import Scan
from lowerbound.joint.terms.impossible import holds_infinity, is_finite, possible
from lowerbound.joint.terms.value import (
    Operand,
    Outcome,
    Poison,
    Value,
    add,
    first_poison,
    full,
    sites_of,
)

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **structural.RULES,
    **indexing.RULES,
    **multiplied.RULES,
}

LONGEST = 1_000  # steps that hand on numbers: the covariance along them is dense

# Names of jitted functions that say less than the primitive inside them.
_ANONYMOUS = {"<lambda>", "_where", "clip", "fn", "f", "_einsum", "jit"}

_LOGARITHMS = {"log", "log1p"}  # where data that are finite become -inf, the log of what cannot be


def interpret(closed: jex.ClosedJaxpr, inputs: Sequence[Operand]) -> list[Operand]:
    """Evaluate the jaxpr on operands that may be arrays, values or poisons."""
    return _Interpreter().run(closed.jaxpr, closed.consts, inputs)


class _Interpreter:
    """One pass over a jaxpr; remembers equal constant equations, so that equal indices meet."""

    def __init__(self) -> None:
        self.known: dict[object, tuple[Any, list[Operand]]] = {}

    def run(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Operand]) -> list[Operand]:
        known = [_concrete(one) for one in consts]
        return interpreted(jaxpr, known, inputs, self.equation, np.asarray, _live(jaxpr))

    def equation(self, equation: Any, inputs: list[Operand]) -> list[Operand]:
        name = equation.primitive.name
        inner = _called(equation)
        if inner is not None:
            return self.call(equation, inner, inputs)
        if name == "cond" and isinstance(inputs[0], np.ndarray):  # the branch is known
            return self.call(equation, equation.params["branches"][int(inputs[0])], inputs[1:])
        shapes = [v.aval.shape for v in equation.outvars]
        if all(not isinstance(o, Outcome) for o in inputs):
            return self.constant(equation, inputs)
        if name == "select_n" and (number := elementwise.number_in(inputs[0])) is not None:
            return [add(inputs[1 + int(number)], 0.0)]  # whatever the others are
        poison = first_poison(inputs)
        if poison is not None:
            return [poison.spread(shape, inputs) for shape in shapes]
        if name == "scan" and sites_of(*inputs):
            scan = Scan(equation.params, [bool(sites_of(o)) for o in inputs])
            order = scan.order()
            if order is not None and not (scan.length > LONGEST and scan.hands_on_numbers):
                return self.side_by_side(scan, order, equation, inputs)
        rule = RULES.get(name) or elementwise.rule_of_operation(name)
        if rule is None:
            if not sites_of(*inputs):
                arrays = [
                    full(o).astype(v.aval.dtype) if isinstance(o, Value) else o
                    for o, v in zip(inputs, equation.invars, strict=True)
                ]
                return self.constant(equation, arrays)
            reason = f"no rule for the operation {name}"
            outcome: Any = [Poison(name, reason, sites_of(*inputs), s) for s in shapes]
        else:
            outcome = rule(*inputs, aval=equation.outvars[0].aval, **equation.params)
        outputs = outcome if isinstance(outcome, list) else [outcome]
        return [
            replace(o, shape=shape, where=o.where or user_line(equation))
            if isinstance(o, Poison)
            else o
            for o, shape in zip(outputs, shapes, strict=True)
        ]

    def call(self, equation: Any, inner: Any, inputs: list[Operand]) -> list[Operand]:
        jaxpr, consts = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, [])
        known = elementwise.NAMED.get(str(equation.params.get("name", "")).lstrip("_"))
        if known is not None and sites_of(*inputs) and first_poison(inputs) is None:
            outcome = known(*inputs)
            if not isinstance(outcome, Poison):  # else say which operation inside it fails
                return [outcome]
        if all(not isinstance(o, Outcome) for o in inputs) and not jaxpr.eqns:
            return self.run(jaxpr, consts, inputs)
        outputs = self.run(jaxpr, consts, inputs)
        if first_poison(inputs) is not None or first_poison(outputs) is None:
            return outputs
        name = str(equation.params.get("name", ""))
        where = user_line(equation)
        named = bool(name) and name not in _ANONYMOUS

        def seen_from_outside(poison: Poison) -> Poison:
            if named:  # the traceback inside a cached jaxpr may be that of an earlier call
                return replace(poison, operation=name.lstrip("_"), where=where or poison.where)
            return replace(poison, where=poison.where or where)

        return [seen_from_outside(o) if isinstance(o, Poison) else o for o in outputs]

    def side_by_side(
        self, scan: Scan, order: Sequence[int], equation: Any, inputs: list[Operand]
    ) -> list[Operand]:
        """A loop whose steps do not wait for each other, as one step with an axis of times."""
        given = [abstract_of(v.aval) for v in equation.invars]
        wide = any(dtype.itemsize == 8 for dtype in (one.dtype for one in given))
        with jax.enable_x64(wide):  # in the types in which the program was traced
            closed = traced(lambda *arrays: scan.side_by_side(order, arrays))(*given)
        return self.run(closed.jaxpr, closed.consts, inputs)

    def constant(self, equation: Any, inputs: list[Any]) -> list[Operand]:
        name, params = equation.primitive.name, equation.params
        aval = equation.outvars[0].aval
        key: object = None
        if name in static.SHARED:
            key = (name, str(sorted(params.items())), tuple(map(_identity, inputs)))
            if key in self.known:
                return self.known[key][1]
        outputs: list[Operand]
        if name == "broadcast_in_dim" and np.prod(aval.shape) > np.size(inputs[0]):
            outputs = [structural.broadcast_in_dim(inputs[0], aval=aval, **params)]
        elif name in static.NUMPY and all(isinstance(a, np.ndarray) for a in inputs):
            result = static.NUMPY[name](*inputs, aval=aval, **params)
            outputs = (
                [np.asarray(r, dtype=aval.dtype) for r in result]
                if isinstance(result, list)
                else [np.asarray(result, dtype=aval.dtype)]
            )
        elif name == "scan" and all(isinstance(a, np.ndarray) for a in inputs):
            # A counter: positions that are known.
            with jax.enable_x64(True), jax.ensure_compile_time_eval():
                outputs = [np.asarray(array) for array in _evaluated(equation, inputs)]
        else:
            outputs = _evaluated(equation, inputs)
        if key is not None:
            self.known[key] = (inputs, outputs)  # the inputs are kept so that ids stay unique
        return outputs


def _evaluated(equation: Any, inputs: list[Any]) -> list[Operand]:
    """What the equation is on data; a logarithm of zero is a number, and -inf to the program."""
    name = equation.primitive.name
    if name == "is_finite":
        return [is_finite(inputs[0])]
    if name in elementwise.COMPARISONS and any(map(holds_infinity, inputs)):
        inputs = [possible(array) for array in inputs]
    bound = equation.primitive.bind(*inputs, **equation.params)
    if name in _LOGARITHMS:
        return [possible(bound)]
    return list(bound) if equation.primitive.multiple_results else [bound]


def abstract_of(aval: Any) -> Any:
    """An array of which only shape and type are known."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)  # type: ignore[no-untyped-call]


def _identity(array: Any) -> object:
    if isinstance(array, np.ndarray) and array.size <= 64:
        return (array.shape, array.dtype.str, array.tobytes())
    return id(array)


def _concrete(array: Any) -> Any:
    """Closed-over arrays are known while deriving; tracers are not."""
    if isinstance(array, jax.core.Tracer):
        return array
    return np.asarray(array) if not jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array


def _called(equation: Any) -> Any:
    """The jaxpr that the equation merely calls (jit, custom_jvp, remat, ...), if it does."""
    if equation.primitive.name in ("scan", "while", "cond"):
        return None
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if key in equation.params:
            return equation.params[key]
    return None


def _live(jaxpr: Any) -> list[Any]:
    """The equations that the outputs depend on, in order (guards and checks fall away)."""
    needed = {v for v in jaxpr.outvars if not isinstance(v, jex.Literal)}
    kept: list[Any] = []
    for equation in reversed(jaxpr.eqns):
        if any(v in needed for v in equation.outvars):
            kept.append(equation)
            needed |= {v for v in equation.invars if not isinstance(v, jex.Literal)}
    return kept[::-1]


_LIBRARIES = ("/jax/", "/jaxlib/", "/numpyro/", "/lowerbound/", "/contextlib.py", "/functools.py")


def user_line(equation: Any) -> str:
    """'model.py:14', the innermost line of the user's program behind an equation."""
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        path = frame.file_name.replace("\\", "/")
        if not any(part in path for part in _LIBRARIES):
            return f"{Path(path).name}:{frame.line_num}"
    return ""
