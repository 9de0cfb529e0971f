"""Functions that the densities need beyond + - * / **, on values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, xlogy

from lowerbound.joint.rules.structural import reindexed
from lowerbound.joint.terms.algebra import is_positive
from lowerbound.joint.terms.domain import COUNT
from lowerbound.joint.terms.expression import OPERATIONS, log_beta_function
from lowerbound.joint.terms.impossible import possible
from lowerbound.joint.terms.indicators import elementwise
from lowerbound.joint.terms.indices import Array, Gather, Index, is_static
from lowerbound.joint.terms.labelled import Atom
from lowerbound.joint.terms.monomials import exponential, logarithm, monomial, with_atom
from lowerbound.joint.terms.value import (
    Operand,
    Outcome,
    Poison,
    Value,
    broadcast,
    dense,
    first_poison,
    lift,
    shape_of,
    times,
    total,
)


def special(name: str, function: Callable[..., Any]) -> Callable[..., Outcome]:
    """An elementwise function of values, which `function` is on constants."""

    def apply(*operands: Operand) -> Outcome:
        tree = (name, *(("operand", i) for i in range(len(operands))))
        return elementwise(
            name,
            lambda *arrays: function(*map(as_float, arrays)),
            operands,
            tree=tree if name in OPERATIONS else None,
        )

    return apply


def as_float(array: Array) -> Any:
    """A constant array in a floating type."""
    return jnp.asarray(array, dtype=float) if is_static(array) else array * 1.0


log_gamma = special("log Gamma", gammaln)
log_beta = special("log Beta", log_beta_function)
softplus = special("softplus", lambda a: jnp.logaddexp(a, 0.0))


def log_factorial(operand: Operand) -> Outcome:
    """The log factorial log x!, an atom of its own when x is a latent count."""

    def inner(value: Value) -> Outcome | None:
        split = monomial(value)
        if split is None or split[0].terms[0].constants or split[0].terms[0].coefficient != 1.0:
            return None
        if len(split[1]) != 1 or split[1][0].atom != _count(split[1][0].atom.site):
            return None
        return with_atom(value, split[1][0], function="logfactorial", parameter=1.0)

    return elementwise("log x!", lambda a: gammaln(as_float(a) + 1.0), [operand], inner)


def _count(site: str) -> Atom:
    return Atom(site, domain=COUNT)


def log_sum_exp(operand: Operand) -> Outcome:
    """The sum log sum_k exp(a_k) over the last axis; log pi is normalised already."""
    result = logarithm(total(exponential(operand), [-1]))
    return replace(result, operation="logsumexp") if isinstance(result, Poison) else result


def pick(table: Operand, x: Operand) -> Outcome:
    """table[..., x]: the entry of the last axis that x names, latent or observed."""
    poison = first_poison([table, x])
    if poison is not None:
        return poison.spread(np.broadcast_shapes(shape_of(table)[:-1], shape_of(x)), [table, x])
    categories = shape_of(table)[-1]
    which = lift(x)
    column = Value((*which.shape, 1), (*which.axes, None), which.terms)
    if not which.is_constant:
        hot = elementwise("==", lambda a, k: 1.0 * (a == k), [column, np.arange(categories)])
        return total(times(hot, table), [-1])
    entries, column = broadcast([lift(table), column])
    array, labels = dense(column)
    last = entries.axes[-1]
    if last is None:
        return replace(entries, shape=entries.shape[:-1], axes=entries.axes[:-1])
    where: Index = Gather(array.astype(int), labels)
    index: list[Index | None] = [*entries.axes[:-1], where]
    return reindexed(entries, index, entries.shape[:-1], entries.axes[:-1])


def x_log(x: Operand, y: Operand) -> Operand:
    """The product x log y, which is 0 at x = 0 even where y is 0."""

    def on_constants(a: Array, b: Array) -> Array:
        return possible(xlogy(as_float(a), as_float(b)))

    if not (isinstance(x, Value) and not x.is_constant) and not isinstance(y, Poison):
        value = lift(y)
        if value.is_constant:
            return elementwise("x log y", on_constants, [x, y])
    log = logarithm(y)
    if isinstance(log, Value) and _may_diverge(log):
        tree = ("x log y", ("operand", 0), ("operand", 1))
        return elementwise("x log y", on_constants, [x, y], tree=tree)
    return times(x, log)


def _may_diverge(log: Value) -> bool:
    """Whether the log of something that may be zero is in the value."""
    trees = [
        f.atom.expression.tree for term in log.terms for f in term.latents if f.atom.expression
    ]
    return any(t[0] == "log" and not is_positive(t[1], False) for t in trees)


def finite_logits(logits: Operand) -> Outcome:
    """Logits with infinite ones as `IMPOSSIBLE`, or its opposite."""
    return elementwise("logits", possible, [logits], lambda value: value)


def expand(operand: Operand, axis: int) -> Operand:
    """A new axis of length one."""
    if isinstance(operand, Poison):
        shape = list(operand.shape)
        shape.insert(len(shape) + 1 + axis, 1)
        return replace(operand, shape=tuple(shape))
    value = lift(operand)
    shape, axes = list(value.shape), list(value.axes)
    where = len(shape) + 1 + axis
    shape.insert(where, 1)
    axes.insert(where, None)
    return Value(tuple(shape), tuple(axes), value.terms)


def transposed(operand: Operand) -> Operand:
    """The last two axes exchanged."""
    if isinstance(operand, Poison):
        return operand
    value = lift(operand)
    order = [*range(len(value.shape) - 2), len(value.shape) - 1, len(value.shape) - 2]
    return Value(
        tuple(value.shape[d] for d in order), tuple(value.axes[d] for d in order), value.terms
    )


def matmul(a: Operand, b: Operand) -> Outcome:
    """The product of matrices."""
    return total(times(expand(a, -1), expand(b, -3)), [-2])
