"""Values: arrays of labelled terms, with the arithmetic that keeps log p multi-affine.

Addition, multiplication and summation act on terms alone; no array of the value's shape is formed.
What cannot be expressed becomes a `Poison` that remembers the operation, the line and the sites.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.joint.terms.impossible import finite
from lowerbound.joint.terms.indices import (
    Array,
    Gather,
    Index,
    Label,
    align,
    is_static,
    labels_read,
    take,
    unique,
)
from lowerbound.joint.terms.labelled import (
    Atom,
    Constant,
    Factor,
    Term,
    factor_key,
    refresh,
    substitute,
)
from lowerbound.joint.terms.products import multiply, normal_form

MOST_PRODUCTS = 20_000  # of terms, that are multiplied out
Operand = Union["Value", "Poison", np.ndarray, jax.Array, float, int]


@dataclass(frozen=True)
class Poison:
    """What could not be expressed: the operation, why, where, and every latent site it touches."""

    operation: str
    reason: str
    sites: frozenset[str]
    shape: tuple[int, ...] = ()
    where: str = ""

    def spread(self, shape: tuple[int, ...], others: Iterable[Operand] = ()) -> Poison:
        """The same poison in a result of another shape, touching the sites of the others too."""
        return replace(self, shape=shape, sites=self.sites | sites_of(*others))


@dataclass(frozen=True, eq=False)
class Value:
    """An array of `shape`, as a sum of terms; `axes[d]` is None where nothing varies along d."""

    shape: tuple[int, ...]
    axes: tuple[Label | None, ...]
    terms: tuple[Term, ...]

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels of the axes along which the value may vary."""
        return tuple(label for label in self.axes if label is not None)

    @property
    def is_constant(self) -> bool:
        """Whether no latent site enters."""
        return not any(term.latents for term in self.terms)


Outcome = Value | Poison


def sites_of(*operands: Operand) -> frozenset[str]:
    """Every latent site that the operands touch."""
    found: set[str] = set()
    for operand in operands:
        if isinstance(operand, Poison):
            found |= operand.sites
        elif isinstance(operand, Value):
            for atom in (f.atom for term in operand.terms for f in term.latents):
                found |= {atom.site} if atom.projection is None else atom.projection.sites
    return frozenset(found)


def shape_of(operand: Operand) -> tuple[int, ...]:
    """The shape of an operand of any kind."""
    return operand.shape if isinstance(operand, Outcome) else np.shape(operand)


def first_poison(operands: Iterable[Operand]) -> Poison | None:
    """The first operand that could not be expressed, if any."""
    return next((o for o in operands if isinstance(o, Poison)), None)


def poisoned(operation: str, reason: str, *operands: Operand) -> Poison:
    """A new poison of an operation on the operands; its shape is theirs where they broadcast."""
    try:
        shape = np.broadcast_shapes(*map(shape_of, operands))
    except ValueError:  # not an elementwise operation: the interpreter knows the shape
        shape = ()
    return Poison(operation, reason, sites_of(*operands), shape)


# --------------------------------------------------------------------------------------------------
# Constants


def lift(operand: Operand) -> Value:
    """A constant array (or number) as a value with one term."""
    if isinstance(operand, Value):
        return operand
    if isinstance(operand, Poison):
        raise TypeError("a poison cannot be lifted")
    array = operand if isinstance(operand, jax.Array) else np.asarray(operand)
    if isinstance(array, np.ndarray) and array.size and (array == array.flat[0]).all():
        # One repeated number: no axis varies. NaN never equals itself and stays an array.
        return Value(array.shape, (None,) * array.ndim, (Term(float(array.flat[0])),))
    axes = tuple(Label(size) if size > 1 else None for size in array.shape)
    index: tuple[Index, ...] = tuple(label for label in axes if label is not None)
    compact = array.reshape([label.size for label in axes if label is not None])
    return Value(array.shape, axes, (Term(1.0, (Factor(Constant(compact), index),)),))


def constant(array: Array, labels: tuple[Label, ...], like: Value) -> Value:
    """A constant value with the axes of `like`, varying along `labels` (all axes of `like`)."""
    if isinstance(array, np.ndarray) and array.size and (array == array.flat[0]).all():
        return Value(like.shape, like.axes, (Term(float(array.flat[0])),))
    return Value(like.shape, like.axes, (Term(1.0, (Factor(Constant(array), labels),)),))


def contract(factors: Sequence[Factor[Constant]], output: tuple[Label, ...]) -> Array:
    """The einsum of constant factors onto the labels `output` (every one must occur)."""
    operands = [take(f.atom.array, f.index) for f in factors]
    if len(operands) == 1 and operands[0][1] == output:
        return operands[0][0]
    number = {label: i for i, label in enumerate(unique(labels for _, labels in operands))}
    flat: list[Any] = []
    static = all(is_static(array) for array, _ in operands)
    for array, labels in operands:
        numeric = array.astype(float) if array.dtype == bool else array
        flat += [numeric, [number[label] for label in labels]]
    out = [number[label] for label in output]
    result: Array = np.einsum(*flat, out) if static else jnp.einsum(*flat, out, precision="highest")
    return result


def dense(value: Value) -> tuple[Array, tuple[Label, ...]]:
    """A constant value as an array over those of its axes along which it varies."""
    present = set(unique(term.labels() for term in value.terms))
    labels = tuple(label for label in value.labels if label in present)
    if len(value.terms) == 1 and value.terms[0].coefficient == 1.0 and value.terms[0].constants:
        return contract(value.terms[0].constants, labels), labels
    return _summed(value.terms, labels), labels


def _summed(terms: Iterable[Term], labels: tuple[Label, ...]) -> Array:
    """The constants of terms, with their coefficients, added up over these labels."""
    total: Array = np.zeros(())
    for term in terms:
        span = set(labels_read(term.constants))
        own = tuple(label for label in labels if label in span)
        part = contract(term.constants, own) if term.constants else np.ones(())
        total = total + term.coefficient * align(part, own, labels)
    return total


def full(value: Value) -> Array:
    """A constant value as an ordinary array of its full shape."""
    array, labels = dense(value)
    shape = [n if label in labels else 1 for n, label in zip(value.shape, value.axes, strict=True)]
    order = [labels.index(label) for label in value.axes if label in labels]
    spread = array.transpose(order).reshape(shape)
    if is_static(spread):
        return np.broadcast_to(spread, value.shape)
    return jnp.broadcast_to(spread, value.shape)


# --------------------------------------------------------------------------------------------------
# Broadcasting, addition, multiplication


def broadcast(values: Sequence[Value], shape: tuple[int, ...] | None = None) -> list[Value]:
    """Bring values to one shape and one set of axes, as NumPy broadcasting does."""
    if shape is None:
        shape = np.broadcast_shapes(*(value.shape for value in values))
    axes: list[Label | None] = [None] * len(shape)
    moved: list[Value] = []
    for value in values:
        lead = len(shape) - len(value.shape)
        mapping: dict[Label, Index] = {}
        for d, label in enumerate(value.axes):
            if label is None:
                continue
            if axes[lead + d] is None:
                # The same label may already stand on another axis (a transpose): rename this one.
                axes[lead + d] = label if label not in axes else label.fresh()
            target = axes[lead + d]
            assert target is not None
            if target is not label:
                mapping[label] = target
        moved.append(replace(value, terms=tuple(substitute(t, mapping) for t in value.terms)))
    return [Value(shape, tuple(axes), value.terms) for value in moved]


def add(*operands: Operand) -> Outcome:
    """The sum: the union of the terms, with like terms merged."""
    poison = first_poison(operands)
    if poison:
        return poison.spread(np.broadcast_shapes(*map(shape_of, operands)), operands)
    values = broadcast([lift(o) for o in operands])
    terms = [term for value in values for term in value.terms]
    return Value(values[0].shape, values[0].axes, merge_like(terms, values[0].labels))


def times(*operands: Operand) -> Outcome:
    """The product, term by term, with fresh names for summed labels."""
    poison = first_poison(operands)
    if poison:
        return poison.spread(np.broadcast_shapes(*map(shape_of, operands)), operands)
    first, *rest = broadcast([_finite(lift(o)) for o in operands])
    axes = frozenset(first.labels)
    terms = list(first.terms)
    for value in rest:
        if len(terms) * len(value.terms) > MOST_PRODUCTS:
            count = f"{len(terms):,} times {len(value.terms):,} terms"
            return Poison("mul", f"a product of {count}", sites_of(*operands), first.shape)
        products = [multiply(a, refresh(b, axes), axes) for a in terms for b in value.terms]
        terms = [product for product in products if product is not None]
    return Value(first.shape, first.axes, merge_like(terms, first.labels))


def _finite(value: Value) -> Value:
    return replace(value, terms=tuple(map(finite, value.terms)))


def merge_like(terms: list[Term], axes: tuple[Label, ...]) -> tuple[Term, ...]:
    """Add up terms with the same latent factors; their constants become one array."""
    groups: dict[object, list[Term]] = {}
    for term in terms:
        key = frozenset(Counter(map(factor_key, term.latents)).items())
        groups.setdefault(key, []).append(term)
    merged: list[Term] = []
    for group in groups.values():
        merged += _sum_group(group, axes) if len(group) > 1 else group
    return tuple(term for term in merged if term.coefficient != 0.0)


def _sum_group(group: list[Term], axes: tuple[Label, ...]) -> list[Term]:
    by_constant: dict[object, Term] = {}
    for term in group:  # first those that differ in the coefficient alone
        key = frozenset(Counter(map(factor_key, term.constants)).items())
        if key in by_constant:
            total = by_constant[key].coefficient + term.coefficient
            by_constant[key] = replace(term, coefficient=total)
        else:
            by_constant[key] = term
    terms = [term for term in by_constant.values() if term.coefficient != 0.0]
    if len(terms) < 2:
        return terms
    allowed = {*labels_read(terms[0].latents), *axes}
    spans = [set(labels_read(t.constants)) for t in terms]
    union = set().union(*spans)
    if not union <= allowed or max(map(len, spans)) < len(union):
        return terms  # merging would sum a label too early, or build a larger array
    labels = tuple(label for label in unique(t.labels() for t in terms) if label in union)
    constants = (Factor(Constant(_summed(terms, labels)), labels),)
    return [Term(1.0, constants, terms[0].latents)]


def total(operand: Operand, dims: Iterable[int] | None = None) -> Outcome:
    """Sum over the given axes (all by default): labels are unbound, no array is formed."""
    shape = shape_of(operand)
    dims = range(len(shape)) if dims is None else sorted(d % len(shape) for d in dims)
    dims = list(dims)
    kept_shape = tuple(n for d, n in enumerate(shape) if d not in dims)
    if isinstance(operand, Poison):
        return operand.spread(kept_shape)
    value = lift(operand)
    summed = [value.axes[d] for d in dims]
    axes = tuple(label for d, label in enumerate(value.axes) if d not in dims)
    kept = frozenset(label for label in axes if label is not None)
    terms: list[Term] = []
    for term in value.terms:
        present = set(term.labels())
        missing = math.prod(
            shape[d] for d, label in zip(dims, summed, strict=True) if label not in present
        )
        bound = {label: label.fresh() for label in summed if label is not None and label in present}
        moved = substitute(replace(term, coefficient=term.coefficient * missing), bound)
        normal = normal_form(moved, kept)
        if normal is not None:
            terms.append(normal)
    return Value(kept_shape, axes, merge_like(terms, tuple(kept)))


def atom_value(atom: Atom, shape: tuple[int, ...]) -> Value:
    """A latent site (or a function of it) of `shape` as a value with one factor."""
    axes = tuple(Label(size) if size > 1 else None for size in shape)
    index = tuple(Gather(np.asarray(0), ()) if label is None else label for label in axes)
    return Value(shape, axes, (Term(1.0, (), (Factor(atom, index),)),))
