"""log|M| and M^-1 of matrices that are a latent matrix, a scaled constant, or diagonal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from lowerbound.joint.terms.domain import MATRIX
from lowerbound.joint.terms.indicators import close, expose
from lowerbound.joint.terms.indices import Array, Gather, Index, Label, labels_of
from lowerbound.joint.terms.labelled import Atom, Constant, Factor, Term, substitute
from lowerbound.joint.terms.monomials import logarithm, power
from lowerbound.joint.terms.value import (
    Operand,
    Outcome,
    Poison,
    Value,
    add,
    constant,
    dense,
    first_poison,
    full,
    lift,
    poisoned,
    times,
    total,
)


def log_determinant(operand: Operand, triangular: bool = False) -> Outcome:
    """log|M| over the last two axes: D log c + log|Z| for M = c Z, sum_i log v_i for diag(v).

    M is positive definite, or `triangular` with a positive diagonal; NaN where it is not.
    """

    def on_constant(matrix: Array) -> Array:
        root = matrix if triangular else jnp.linalg.cholesky(matrix)
        half = jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
        return half if triangular else 2.0 * half

    def scaled(scale: Value, atom: Factor[Atom], size: int) -> Outcome:
        logdet = replace(scale, terms=(Term(1.0, (), (_matrix_function(atom, "logdet"),)),))
        sign = -1.0 if atom.atom.function == "inverse" else 1.0
        return add(times(logarithm(scale), float(size)), times(logdet, sign))

    def diagonal(vector: Value) -> Outcome:
        return total(logarithm(vector), [-1])

    return _matrix_rule("log|.|", operand, on_constant, scaled, diagonal, drop=2)


def inverse(operand: Operand) -> Outcome:
    """M^-1 over the last two axes."""

    def on_constant(matrix: Array) -> Array:
        inverted: Array = jnp.linalg.inv(matrix)
        return inverted

    def scaled(scale: Value, atom: Factor[Atom], size: int) -> Outcome:
        function = "power" if atom.atom.function == "inverse" else "inverse"
        flipped = Factor(replace(atom.atom, function=function, parameter=1.0), atom.index)
        i, j = (index if isinstance(index, Label) else None for index in atom.index[-2:])
        shape = (*scale.shape, size, size)
        matrix = Value(shape, (*scale.axes, i, j), (Term(1.0, (), (flipped,)),))
        reciprocal = power(scale, -1.0)
        if isinstance(reciprocal, Poison):
            return reciprocal
        spread = Value((*scale.shape, 1, 1), (*reciprocal.axes, None, None), reciprocal.terms)
        return times(spread, matrix)

    def diagonal(vector: Value) -> Outcome:
        size = vector.shape[-1]
        reciprocal = power(vector, -1.0)
        if isinstance(reciprocal, Poison):
            return reciprocal
        column = Value((*vector.shape, 1), (*reciprocal.axes, None), reciprocal.terms)
        return times(column, np.eye(size))

    return _matrix_rule("inverse", operand, on_constant, scaled, diagonal, drop=0)


def _matrix_rule(
    name: str,
    operand: Operand,
    on_constant: Callable[[Array], Array],
    scaled: Callable[[Value, Factor[Atom], int], Outcome],
    diagonal: Callable[[Value], Outcome],
    drop: int,
) -> Outcome:
    poison = first_poison([operand])
    if poison is not None:
        return poison.spread(poison.shape[: len(poison.shape) - drop])
    value = lift(operand)
    if value.is_constant:
        return lift(on_constant(full(value)))
    exposed = expose([value])
    outcome: Outcome | None = None
    indicators: list[Factor[Atom]] = []
    if exposed is not None:
        indicators, (opened,) = exposed
        count = len(indicators)
        # The categories join the batch axes, before the two matrix axes.
        rank = len(value.shape)
        order = [*range(rank - 2), *range(rank, rank + count), rank - 2, rank - 1]
        moved = Value(
            tuple(opened.shape[d] for d in order),
            tuple(opened.axes[d] for d in order),
            opened.terms,
        )
        outcome = _of_matrix(moved, on_constant, scaled, diagonal)
    if outcome is None:
        shape = value.shape[: len(value.shape) - drop]
        reason = f"{name} is known of a latent matrix times a scalar, or of a diagonal"
        return replace(poisoned(name, reason, value), shape=shape)
    if isinstance(outcome, Poison) or not indicators:
        return outcome
    rank = len(outcome.shape) - count
    batch = len(value.shape) - 2
    order = [*range(batch), *range(batch + count, rank + count), *range(batch, batch + count)]
    restored = Value(
        tuple(outcome.shape[d] for d in order),
        tuple(outcome.axes[d] for d in order),
        outcome.terms,
    )
    return close(indicators, restored)


def _of_matrix(
    value: Value,
    on_constant: Callable[[Array], Array],
    scaled: Callable[[Value, Factor[Atom], int], Outcome],
    diagonal: Callable[[Value], Outcome],
) -> Outcome | None:
    size = value.shape[-1]
    i, j = value.axes[-2:]
    vector = _diagonal_of(value)
    if vector is not None:
        return diagonal(vector)
    if len(value.terms) != 1:
        return None
    (term,) = value.terms
    matrices = [f for f in term.latents if f.atom.domain is MATRIX]
    others = replace(term, latents=tuple(f for f in term.latents if f.atom.domain is not MATRIX))
    batch = Value(value.shape[:-2], value.axes[:-2], (others,))
    if any(label not in batch.labels for label in others.labels() if label not in (i, j)):
        return None
    if len(matrices) == 1:
        (matrix,) = matrices
        plain = {i, j} == set(matrix.index[-2:]) or size == 1
        if plain and not {i, j} & set(others.labels()):
            return scaled(batch, matrix, size)
        return None
    if not matrices:  # a positive scalar times a constant matrix
        scalar = replace(others, constants=(), coefficient=1.0)
        if {i, j} & set(scalar.labels()):
            return None
        whole = Value(value.shape, value.axes, (replace(others, latents=()),))
        array, labels = dense(whole)
        moved = full(constant(array, labels, whole))
        result = on_constant(moved)
        scale = replace(batch, terms=(scalar,))
        if np.ndim(result) == len(value.shape):  # inverse
            reciprocal = power(scale, -1.0)
            if isinstance(reciprocal, Poison):
                return reciprocal
            return times(
                Value((*scale.shape, 1, 1), (*reciprocal.axes, None, None), reciprocal.terms),
                _labelled(result, value),
            )
        return add(times(logarithm(scale), float(size)), _labelled(result, batch))
    return None


def _labelled(array: Array, like: Value) -> Value:
    """An array of the value's full shape, on the value's own labels."""
    keep = [d for d, label in enumerate(like.axes) if label is not None]
    for d, label in enumerate(like.axes):
        if label is None:
            array = jnp.take(array, np.array([0]), axis=d)
    compact = array.reshape([like.shape[d] for d in keep])
    return constant(compact, like.labels, like)


def _diagonal_of(value: Value) -> Value | None:
    """The v of diag(v): every term holds a constant that vanishes off the diagonal."""
    i, j = value.axes[-2:]
    if i is None or j is None:
        return None
    terms = []
    for term in value.terms:
        deltas = [f for f in term.constants if _is_diagonal(f, i, j)]
        if not deltas:
            return None
        terms.append(substitute(term, {j: i}))
    return Value(value.shape[:-1], value.axes[:-1], tuple(terms))


def _is_diagonal(factor: Factor[Constant], i: Label, j: Label) -> bool:
    array = factor.atom.array
    if not isinstance(array, np.ndarray) or set(map(_only, factor.index)) != {i, j}:
        return False
    return array.ndim == 2 and not (array - np.diag(np.diag(array))).any()


def _only(index: Index) -> Label | None:
    labels = labels_of(index)
    return labels[0] if len(labels) == 1 and not isinstance(index, Gather) else None


def _matrix_function(factor: Factor[Atom], function: str) -> Factor[Atom]:
    return Factor(replace(factor.atom, function=function, parameter=1.0), factor.index[:-2])
