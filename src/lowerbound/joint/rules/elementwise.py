"""Rules for arithmetic and elementwise primitives, by primitive name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowerbound.joint.rules import static
from lowerbound.joint.terms.domain import REAL
from lowerbound.joint.terms.expression import OPERATIONS, Tree, evaluate
from lowerbound.joint.terms.impossible import is_finite, possible
from lowerbound.joint.terms.indicators import elementwise
from lowerbound.joint.terms.indices import Array, is_static
from lowerbound.joint.terms.labelled import Factor, Term
from lowerbound.joint.terms.monomials import exponential, logarithm, power
from lowerbound.joint.terms.value import Operand, Outcome, Poison, Value, add, lift, times

COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def _on_constants(
    name: str, function: Callable[..., Any], dtype: Any = None
) -> Callable[..., Array]:
    """The primitive on constant arrays: NumPy where all are static, else the `lax` function.

    Terms do not keep the type of an array (coefficients are floats), so that the type which the
    primitive acts on is given, where it matters.
    """

    def apply(*arrays: Array) -> Array:
        kind = np.result_type(*(a.dtype for a in arrays)) if dtype is None else np.dtype(dtype)
        cast = [a.astype(kind) for a in arrays]
        if all(map(is_static, cast)) and name in static.NUMPY:
            return np.asarray(static.NUMPY[name](*cast, aval=np.empty((), kind)))
        shape = np.broadcast_shapes(*(a.shape for a in cast))
        result: Array = function(*(jnp.broadcast_to(a, shape) for a in cast))
        return result

    return apply


def opaque(name: str, function: Callable[..., Any], operation: str = "") -> Callable[..., Outcome]:
    """A function that passes inside indicators, is known on constants, and is an `operation`."""

    def rule(*operands: Operand, aval: Any, **_: Any) -> Outcome:
        floating = np.issubdtype(aval.dtype, np.floating)
        tree = _tree(operation or name, operands) if floating else None
        return elementwise(name, _on_constants(name, function, aval.dtype), operands, tree=tree)

    return rule


def rule_of_operation(name: str) -> Callable[..., Outcome] | None:
    """The rule of a primitive that is an elementwise operation by its name."""
    return opaque(name, OPERATIONS[name].function) if name in OPERATIONS else None


def _tree(operation: str, operands: Sequence[Operand]) -> Tree | None:
    """The operation on its operands as a tree, where trees have it."""
    if operation not in OPERATIONS:
        return None
    return (operation, *(("operand", i) for i in range(len(operands))))


def _is_finite(a: Operand, *, aval: Any, **_: Any) -> Outcome:
    """Whether a number is finite; a latent value always is."""

    def inner(value: Value) -> Outcome:
        return replace(value, terms=(Term(1.0),))

    return elementwise("is_finite", is_finite, [a], inner)


def _logical(name: str, function: Callable[..., Any]) -> Callable[..., Outcome]:
    """Logic on p, q in {0, 1}: p and q = p q, p or q = p + q - p q, not p = 1 - p."""

    def inner(*values: Value) -> Outcome:
        product = times(*values)
        if name == "and":
            return product
        if name == "or":
            return add(*values, times(product, -1.0))
        return add(1.0, times(product, -1.0))

    def rule(*operands: Operand, aval: Any, **_: Any) -> Outcome:
        on_constants = _on_constants(name, function, aval.dtype)
        return elementwise(name, on_constants, operands, inner if aval.dtype == bool else None)

    return rule


def _subtract(a: Operand, b: Operand, **_: Any) -> Outcome:
    return add(a, times(b, -1.0))


def _divide(a: Operand, b: Operand, *, aval: Any, **_: Any) -> Outcome:
    if np.issubdtype(aval.dtype, np.integer):
        return elementwise("div", _on_constants("div", lax.div, aval.dtype), [a, b])
    return times(a, power(b, -1.0))


def _pow(base: Operand, exponent: Operand, *, aval: Any, **_: Any) -> Outcome:
    fixed = number_in(exponent)
    if fixed is not None:
        return power(base, fixed)
    operands = [base, exponent]
    on_constants = _on_constants("pow", lax.pow, aval.dtype)
    return elementwise("pow", on_constants, operands, tree=_tree("power", operands))


def number_in(operand: Operand) -> float | None:
    """The number that a static constant repeats, if it does."""
    if isinstance(operand, Poison):
        return None
    value = lift(operand)
    if len(value.terms) == 1 and not value.terms[0].factors:
        return value.terms[0].coefficient
    return None


def _log1p(a: Operand, **_: Any) -> Outcome:
    return logarithm(add(1.0, a))


def _polynomial(x: Operand, *coefficients: Operand, **_: Any) -> Outcome:
    """`jnp.polyval`, from JAX 0.12 on: the constant comes first."""
    *others, total = coefficients
    for coefficient in reversed(others):
        total = add(times(total, x), coefficient)
    return add(total, 0.0)


def _expm1(a: Operand, **_: Any) -> Outcome:
    return add(exponential(a), -1.0)


def _cast(a: Operand, *, aval: Any, **_: Any) -> Outcome:
    """Casting to a float, or between integers, keeps the value; rounding a latent does not."""
    if np.issubdtype(aval.dtype, np.floating):
        return add(a, 0.0)
    if _is_integral(a):
        return add(a, 0.0)
    return elementwise("convert_element_type", lambda x: x.astype(aval.dtype), [a])


def _is_integral(a: Operand) -> bool:
    """Whether every latent in the value is a count or an indicator with a unit coefficient."""
    if not isinstance(a, Value):
        return False
    return all(
        f.atom.domain.whole or f.atom.function == "step" for term in a.terms for f in term.latents
    )


def _select(which: Operand, *cases: Operand, **_: Any) -> Outcome:
    """select_n(p, a, b) = 1[p=0] a + 1[p=1] b, for p constant, an indicator or a step."""

    def on_constants(which: Array, *arrays: Array) -> Array:
        where = np.where if all(map(is_static, (which, *arrays))) else jnp.where
        arrays = tuple(possible(array) for array in arrays)
        chosen = arrays[-1]
        for number in reversed(range(len(arrays) - 1)):
            chosen = where(which == number, arrays[number], chosen)
        return chosen

    def inner(which: Value, *values: Value) -> Outcome | None:
        masks: list[Outcome]
        if which.is_constant:
            masks = [
                elementwise("==", lambda w, n=number: 1.0 * (w == n), [which])
                for number in range(len(values))
            ]
        elif len(values) == 2 and not _has_expression(which):
            masks = [add(1.0, times(which, -1.0)), which]
        else:
            return None
        return add(*(_masked(v, mask) for v, mask in zip(values, masks, strict=True)))

    tree = ("where", ("operand", 0), ("operand", 2), ("operand", 1)) if len(cases) == 2 else None
    return elementwise("where", on_constants, [which, *cases], inner, tree)


def _has_expression(value: Value) -> bool:
    return any(f.atom.function == "expression" for term in value.terms for f in term.latents)


def _masked(value: Value, mask: Outcome) -> Outcome:
    """The product, with constants set to zero where the mask is, even if they are no numbers."""
    if value.is_constant and isinstance(mask, Value) and mask.is_constant:

        def zeroed(array: Array, keep: Array) -> Array:
            where = np.where if is_static(array) and is_static(keep) else jnp.where
            return where(keep.astype(bool), possible(array), 0.0)

        return elementwise("where", zeroed, [value, mask])
    return times(value, mask)


def _compare(name: str, function: Callable[..., Any]) -> Callable[..., Outcome]:
    """Comparison with a fixed threshold is a step function of a real latent; inf is above all."""
    on_constants = _on_constants(name, function)
    flipped = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}

    def rule(a: Operand, b: Operand, **_: Any) -> Outcome:
        def inner(x: Value, y: Value) -> Outcome | None:
            for left, right, op in ((x, y, name), (y, x, flipped.get(name, name))):
                threshold = number_in(right)
                if threshold is not None and math.isinf(threshold):
                    below = (op in ("lt", "le")) == (threshold > 0) if op in flipped else op == "ne"
                    return replace(left, terms=(Term(1.0),) if below else ())
            if name in flipped:
                for left, right, op in ((x, y, name), (y, x, flipped[name])):
                    step = _step(left, right, op)
                    if step is not None:
                        return step
            return None

        return elementwise(name, on_constants, [a, b], inner, _tree(name, [a, b]))

    return rule


def _step(latent: Value, threshold: Value, operation: str) -> Value | None:
    if len(latent.terms) != 1 or len(threshold.terms) > 1:
        return None
    (term,) = latent.terms
    if term.constants or term.coefficient not in (1.0, -1.0) or len(term.latents) != 1:
        return None
    if threshold.terms and (threshold.terms[0].constants or threshold.terms[0].latents):
        return None
    (factor,) = term.latents
    if factor.atom.domain is not REAL or factor.atom.function != "power":
        return None
    if factor.atom.parameter != 1.0:
        return None
    level = threshold.terms[0].coefficient if threshold.terms else 0.0
    above = (operation in ("gt", "ge")) == (term.coefficient > 0)
    atom = replace(factor.atom, function="step", parameter=level * term.coefficient)
    step = Term(1.0, (), (Factor(atom, factor.index),))
    if above:
        return replace(latent, terms=(step,))
    return replace(latent, terms=(Term(1.0), replace(step, coefficient=-1.0)))


def applied(name: str, tree: Tree) -> Callable[..., Outcome]:
    """The function that a tree in its operands is, on values."""

    def on_constants(*arrays: Array) -> Array:
        # The operands take the place of the tree's constant arrays.
        floats = [jnp.asarray(a, float) if is_static(a) else a * 1.0 for a in arrays]
        result: Array = evaluate(_operands_as_arrays(tree), jnp.zeros(()), floats)
        return result

    def rule(*operands: Operand) -> Outcome:
        return elementwise(name, on_constants, operands, tree=tree)

    return rule


def _operands_as_arrays(tree: Tree) -> Tree:
    if tree[0] == "operand":
        return ("array", tree[1])
    if tree[0] == "number":
        return tree
    return (tree[0], *map(_operands_as_arrays, tree[1:]))


_A: Tree = ("operand", 0)
_B: Tree = ("operand", 1)

# Jitted functions that are known as a whole: their own guards would hide what they are.
NAMED: dict[str, Callable[..., Outcome]] = {
    "softplus": applied("softplus", ("softplus", _A)),
    "logaddexp": applied(
        "logaddexp", ("add", _B, ("softplus", ("add", _A, ("mul", ("number", -1.0), _B))))
    ),
    "log_ndtr": applied("log_ndtr", ("log Phi", _A)),
}

RULES: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, **_: add(a, b),
    "add_any": lambda a, b, **_: add(a, b),
    "sub": _subtract,
    "mul": lambda a, b, **_: times(a, b),
    "neg": lambda a, **_: times(a, -1.0),
    "div": _divide,
    "integer_pow": lambda a, *, y, **_: power(a, float(y)),
    "square": lambda a, **_: power(a, 2.0),
    "sqrt": lambda a, **_: power(a, 0.5),
    "rsqrt": lambda a, **_: power(a, -0.5),
    "pow": _pow,
    "log": lambda a, **_: logarithm(a),
    "log1p": _log1p,
    "log2": lambda a, **_: times(logarithm(a), 1.0 / math.log(2.0)),
    "one_minus_square": lambda a, **_: add(1.0, times(power(a, 2.0), -1.0)),
    "polynomial": _polynomial,
    "exp": lambda a, **_: exponential(a),
    "expm1": _expm1,
    "convert_element_type": _cast,
    "copy": lambda a, **_: add(a, 0.0),
    "copy_p": lambda a, **_: add(a, 0.0),
    "stop_gradient": lambda a, **_: add(a, 0.0),
    "is_finite": _is_finite,
    "select_n": _select,
    **{name: _compare(name, getattr(lax, name)) for name in COMPARISONS},
    "and": _logical("and", lax.bitwise_and),
    "or": _logical("or", lax.bitwise_or),
    "not": _logical("not", lax.bitwise_not),
    # Others of `expression.OPERATIONS` go by their own names.
    "lgamma": opaque("lgamma", lax.lgamma, "log Gamma"),
    "floor": opaque("floor", lax.floor),
    "ceil": opaque("ceil", lax.ceil),
    "rem": opaque("rem", lax.rem),
    "exp2": opaque("exp2", lax.exp2),
}
