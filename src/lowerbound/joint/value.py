"""Values: arrays of labelled terms, with the arithmetic that keeps log p multi-affine.

`Value` overloads + - * / **, so that a density is written as on paper. Elementwise functions pass
inside indicators, f(sum_k 1[z=k] g_k) = sum_k 1[z=k] f(g_k), which replaces enumeration. What
cannot be expressed becomes a `Poison` that remembers the operation, the line and the sites.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.joint.terms import (
    Array,
    Atom,
    Constant,
    Factor,
    Gather,
    Index,
    Label,
    Term,
    align,
    factor_key,
    index_key,
    is_static,
    labels_of,
    multiply,
    normal_form,
    refresh,
    substitute,
    take,
    unique,
)

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

    __array_priority__ = 1000  # NumPy arrays on the left defer to the methods below

    @property
    def labels(self) -> tuple[Label, ...]:
        return tuple(label for label in self.axes if label is not None)

    @property
    def is_constant(self) -> bool:
        return not any(term.latents for term in self.terms)

    def __add__(self, other: Operand) -> Value | Poison:
        return add(self, other)

    def __radd__(self, other: Operand) -> Value | Poison:
        return add(other, self)

    def __sub__(self, other: Operand) -> Value | Poison:
        return add(self, times(other, -1.0))

    def __rsub__(self, other: Operand) -> Value | Poison:
        return add(other, times(self, -1.0))

    def __neg__(self) -> Value | Poison:
        return times(self, -1.0)

    def __mul__(self, other: Operand) -> Value | Poison:
        return times(self, other)

    def __rmul__(self, other: Operand) -> Value | Poison:
        return times(other, self)

    def __truediv__(self, other: Operand) -> Value | Poison:
        return times(self, power(other, -1.0))

    def __rtruediv__(self, other: Operand) -> Value | Poison:
        return times(other, power(self, -1.0))

    def __pow__(self, exponent: float) -> Value | Poison:
        return power(self, exponent)


def sites_of(*operands: Operand) -> frozenset[str]:
    found: set[str] = set()
    for operand in operands:
        if isinstance(operand, Poison):
            found |= operand.sites
        elif isinstance(operand, Value):
            found |= {f.atom.site for term in operand.terms for f in term.latents}
    return frozenset(found)


def shape_of(operand: Operand) -> tuple[int, ...]:
    return operand.shape if isinstance(operand, Value | Poison) else np.shape(operand)


def first_poison(operands: Iterable[Operand]) -> Poison | None:
    return next((o for o in operands if isinstance(o, Poison)), None)


def poisoned(operation: str, reason: str, *operands: Operand) -> Poison:
    shape = np.broadcast_shapes(*map(shape_of, operands))
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
    if is_static(array) and array.size and (array == array.flat[0]).all():  # type: ignore[union-attr]
        # One repeated number: no axis varies. NaN never equals itself and stays an array.
        return Value(array.shape, (None,) * array.ndim, (Term(float(array.flat[0])),))  # type: ignore[union-attr]
    axes = tuple(Label(size) if size > 1 else None for size in array.shape)
    index: tuple[Index, ...] = tuple(label for label in axes if label is not None)
    compact = array.reshape([label.size for label in axes if label is not None])
    return Value(array.shape, axes, (Term(1.0, (Factor(Constant(compact), index),)),))


def constant(array: Array, labels: tuple[Label, ...], like: Value) -> Value:
    """A constant value with the axes of `like`, varying along `labels` (all axes of `like`)."""
    if is_static(array) and array.ndim == 0:
        return Value(like.shape, like.axes, (Term(float(array)),))
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
    result: Array = np.einsum(*flat, out) if static else jnp.einsum(*flat, out)
    return result


def dense(value: Value) -> tuple[Array, tuple[Label, ...]]:
    """A constant value as an array over those of its axes along which it varies."""
    present = set(unique(term.labels() for term in value.terms))
    labels = tuple(label for label in value.labels if label in present)
    if len(value.terms) == 1 and value.terms[0].coefficient == 1.0 and value.terms[0].constants:
        return contract(value.terms[0].constants, labels), labels
    total: Array = np.zeros(())
    for term in value.terms:
        own = tuple(label for label in labels if label in set(term.labels()))
        part = contract(term.constants, own) if term.constants else np.ones(())
        total = total + term.coefficient * align(part, own, labels)  # type: ignore[operator]
    return total, labels


def full(value: Value) -> Array:
    """A constant value as an ordinary array of its full shape."""
    array, labels = dense(value)
    shape = [n if label in labels else 1 for n, label in zip(value.shape, value.axes, strict=True)]
    order = [labels.index(label) for label in value.axes if label in labels]  # type: ignore[arg-type]
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


def add(*operands: Operand) -> Value | Poison:
    """The sum: the union of the terms, with like terms merged."""
    poison = first_poison(operands)
    if poison:
        return poison.spread(np.broadcast_shapes(*map(shape_of, operands)), operands)
    values = broadcast([lift(o) for o in operands])
    terms = [term for value in values for term in value.terms]
    return Value(values[0].shape, values[0].axes, _merge_like(terms, values[0].labels))


def times(*operands: Operand) -> Value | Poison:
    """The product, term by term, with fresh names for summed labels."""
    poison = first_poison(operands)
    if poison:
        return poison.spread(np.broadcast_shapes(*map(shape_of, operands)), operands)
    first, *rest = broadcast([lift(o) for o in operands])
    axes = frozenset(first.labels)
    terms = list(first.terms)
    for value in rest:
        products = [multiply(a, refresh(b, axes), axes) for a in terms for b in value.terms]
        terms = [product for product in products if product is not None]
    return Value(first.shape, first.axes, _merge_like(terms, first.labels))


def _merge_like(terms: list[Term], axes: tuple[Label, ...]) -> tuple[Term, ...]:
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
    shared = {label for f in terms[0].latents for i in f.index for label in labels_of(i)}
    allowed = shared | set(axes)
    spans = [set(unique(labels_of(i) for f in t.constants for i in f.index)) for t in terms]
    union = set().union(*spans)
    if not union <= allowed or max(map(len, spans)) < len(union):
        return terms  # merging would sum a label too early, or build a larger array
    labels = tuple(label for label in unique(t.labels() for t in terms) if label in union)
    total_array: Array = np.zeros(())
    for term, span in zip(terms, spans, strict=True):
        own = tuple(label for label in labels if label in span)
        part = contract(term.constants, own) if term.constants else np.ones(())
        total_array = total_array + term.coefficient * align(part, own, labels)  # type: ignore[operator]
    return [Term(1.0, (Factor(Constant(total_array), labels),), terms[0].latents)]


def total(operand: Operand, dims: Iterable[int] | None = None) -> Value | Poison:
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
    return Value(kept_shape, axes, _merge_like(terms, tuple(kept)))


# --------------------------------------------------------------------------------------------------
# Indicators


def expose(values: Sequence[Value]) -> tuple[list[Factor[Atom]], list[Value]] | None:
    """Write values as sum_k 1[z=k] g_k: the indicators, and the g_k with one more axis each.

    All values must have one set of axes. None when an indicator is summed over its own elements,
    so that no function can pass inside.
    """
    axes = set(values[0].labels)
    found: dict[object, Factor[Atom]] = {}
    for term in (term for value in values for term in value.terms):
        for factor in term.latents:
            if factor.atom.function == "indicator":
                where = unique(labels_of(i) for i in factor.index[:-1])
                if any(label not in axes for label in where):
                    return None
                key = (factor.atom.site, tuple(map(index_key, factor.index[:-1])))
                if key not in found:
                    category = Label(int(factor.atom.parameter))
                    found[key] = Factor(factor.atom, (*factor.index[:-1], category))
    if not found:
        return [], list(values)
    opened = [
        Value(
            (*value.shape, *(int(f.atom.parameter) for f in found.values())),
            (*value.axes, *(f.index[-1] for f in found.values())),  # type: ignore[arg-type]
            tuple(_open(refresh(term, axes), found, axes) for term in value.terms),
        )
        for value in values
    ]
    return list(found.values()), opened


def _open(term: Term, found: dict[object, Factor[Atom]], axes: set[Label]) -> Term:
    for key, indicator in found.items():
        category = indicator.index[-1]
        for number, factor in enumerate(term.latents):
            if factor.atom.function != "indicator":
                continue
            if (factor.atom.site, tuple(map(index_key, factor.index[:-1]))) != key:
                continue
            rest = replace(term, latents=term.latents[:number] + term.latents[number + 1 :])
            own = factor.index[-1]
            if isinstance(own, Label) and own not in axes:
                term = substitute(rest, {own: category})
            else:
                size = int(indicator.atom.parameter)
                delta = Factor(Constant(np.eye(size)), (category, own))
                term = replace(rest, constants=(*rest.constants, delta))
            break
    return term


def close(indicators: list[Factor[Atom]], value: Value) -> Value:
    """Undo `expose`: multiply by the indicators and sum over the categories."""
    if not indicators:
        return value
    count = len(indicators)
    axes = value.axes[:-count]
    kept = frozenset(label for label in axes if label is not None)
    terms = []
    for term in value.terms:
        product = replace(term, latents=(*term.latents, *indicators))
        normal = normal_form(product, kept)
        if normal is not None:
            terms.append(refresh(normal, kept))
    return Value(value.shape[:-count], axes, _merge_like(terms, tuple(kept)))


def elementwise(
    name: str,
    function: Callable[..., Array],
    operands: Sequence[Operand],
    inner: Callable[..., Value | Poison | None] | None = None,
) -> Value | Poison:
    """Apply an elementwise function, inside indicators where there are any.

    `function` acts on constant arrays; `inner` gets the exposed values when they are not all
    constant, and returns None where it has no rule.
    """
    poison = first_poison(operands)
    if poison:
        return poison.spread(np.broadcast_shapes(*map(shape_of, operands)), operands)
    values = broadcast([lift(o) for o in operands])
    exposed = expose(values)
    if exposed is None:
        return poisoned(name, "it acts on a sum over assignments", *values)
    indicators, opened = exposed
    if all(value.is_constant for value in opened):
        arrays = [dense(value) for value in opened]
        labels = tuple(label for label in opened[0].labels if any(label in ls for _, ls in arrays))
        result = function(*(align(array, ls, labels) for array, ls in arrays))
        return close(indicators, constant(result, labels, opened[0]))
    outcome = inner(*opened) if inner is not None else None
    if outcome is None:
        return poisoned(name, f"{name} of a latent value has no closed form here", *values)
    if isinstance(outcome, Poison):
        return outcome.spread(values[0].shape, values)
    return close(indicators, broadcast([outcome], opened[0].shape)[0])


# --------------------------------------------------------------------------------------------------
# Functions of monomials


def monomial(value: Value) -> tuple[Value, tuple[Factor[Atom], ...]] | None:
    """Split `constant * product of atoms` (one term, nothing summed), or None."""
    if len(value.terms) != 1:
        return None
    (term,) = value.terms
    if any(label not in value.labels for label in term.labels()):
        return None
    return replace(value, terms=(replace(term, latents=()),)), term.latents


def one_minus(value: Value) -> Factor[Atom] | None:
    """The factor p when the value is 1 - p for an element p of a unit-interval site."""
    if len(value.terms) != 2:
        return None
    one, minus = sorted(value.terms, key=lambda term: len(term.latents))
    if one.latents or one.constants or one.coefficient != 1.0:
        return None
    if minus.constants or minus.coefficient != -1.0 or len(minus.latents) != 1:
        return None
    (factor,) = minus.latents
    atom = factor.atom
    if atom.domain == "unit" and atom.function == "power" and atom.parameter == 1.0:
        return factor
    return None


def with_atom(value: Value, factor: Factor[Atom], **changes: Any) -> Value:
    """A value of the same axes whose only term is the changed atom at the factor's index."""
    changed = Factor(replace(factor.atom, **changes), factor.index)
    return replace(value, terms=(Term(1.0, (), (changed,)),))


def power(operand: Operand, exponent: float) -> Value | Poison:
    """The elementwise power; monomials in positive latents take any real exponent."""
    exponent = float(exponent)
    if exponent == 1.0:
        return operand if isinstance(operand, Value | Poison) else lift(operand)

    def inner(value: Value) -> Value | Poison | None:
        complement = one_minus(value)
        if complement is not None:
            return with_atom(value, complement, function="power1m", parameter=exponent)
        split = monomial(value)
        if split is not None:
            raised = _raise(split[1], exponent)
            if raised is not None:
                array, labels = dense(split[0])
                scale = constant(_power(array, exponent), labels, value)
                return times(scale, replace(value, terms=(Term(1.0, (), raised),)))
        if exponent in (2.0, 3.0, 4.0):
            return times(*[value] * int(exponent))
        return None

    if exponent in (2.0, 3.0, 4.0) and isinstance(operand, Value) and expose([operand]) is None:
        return times(*[operand] * int(exponent))
    return elementwise(f"power {exponent:g}", lambda a: _power(a, exponent), [operand], inner)


def _power(array: Array, exponent: float) -> Array:
    if is_static(array):
        with np.errstate(all="ignore"):
            return np.asarray(array, dtype=float) ** exponent
    return jnp.asarray(array) ** exponent


def _raise(latents: tuple[Factor[Atom], ...], exponent: float) -> tuple[Factor[Atom], ...] | None:
    raised: list[Factor[Atom]] = []
    for factor in latents:
        atom = factor.atom
        free = atom.domain in ("positive", "unit", "simplex")
        if atom.function in ("power", "power1m") and (
            free or (exponent >= 0 and exponent.is_integer() and atom.domain != "matrix")
        ):
            raised.append(Factor(replace(atom, parameter=atom.parameter * exponent), factor.index))
        elif exponent >= 0 and exponent.is_integer():
            raised += [factor] * int(exponent)
        else:
            return None
    return tuple(raised)


def logarithm(operand: Operand) -> Value | Poison:
    """log of a monomial of positive latents is a sum of their logs."""

    def inner(value: Value) -> Value | Poison | None:
        complement = one_minus(value)
        if complement is not None:
            return with_atom(value, complement, function="log1m", parameter=1.0)
        split = monomial(value)
        if split is None:
            return None
        parts: list[Operand] = [logarithm(split[0])]
        for factor in split[1]:
            atom = factor.atom
            if atom.function == "power" and atom.domain in ("positive", "unit", "simplex"):
                log = with_atom(value, factor, function="log", parameter=1.0)
            elif atom.function == "power1m":
                log = with_atom(value, factor, function="log1m", parameter=1.0)
            else:
                return None
            parts.append(times(log, atom.parameter))
        return add(*parts)

    return elementwise("log", _numpy_or_jax("log"), [operand], inner)


def exponential(operand: Operand) -> Value | Poison:
    """exp of a constant plus multiples of logs of latents is a monomial."""

    def inner(value: Value) -> Value | Poison | None:
        fixed = tuple(term for term in value.terms if not term.latents)
        factors: list[Factor[Atom]] = []
        for term in value.terms:
            if not term.latents:
                continue
            if len(term.latents) != 1 or term.constants or not _plain(term, value):
                return None
            (factor,) = term.latents
            function = {"log": "power", "log1m": "power1m"}.get(factor.atom.function)
            if function is None:
                return None
            atom = replace(factor.atom, function=function, parameter=term.coefficient)
            factors.append(Factor(atom, factor.index))
        scale: Operand = exponential(replace(value, terms=fixed)) if fixed else 1.0
        return times(scale, replace(value, terms=(Term(1.0, (), tuple(factors)),)))

    return elementwise("exp", _numpy_or_jax("exp"), [operand], inner)


def _plain(term: Term, value: Value) -> bool:
    return all(label in value.labels for label in term.labels())


def _numpy_or_jax(name: str) -> Callable[..., Array]:
    def function(*arrays: Array) -> Array:
        if all(map(is_static, arrays)):
            with np.errstate(all="ignore"):
                result: Array = getattr(np, name)(*arrays)
            return np.asarray(result)
        jax_result: Array = getattr(jnp, name)(*arrays)
        return jax_result

    return function


def atom_value(atom: Atom, shape: tuple[int, ...]) -> Value:
    """A latent site (or a function of it) of `shape` as a value with one factor."""
    axes = tuple(Label(size) if size > 1 else None for size in shape)
    index = tuple(Gather(np.asarray(0), ()) if label is None else label for label in axes)
    return Value(shape, axes, (Term(1.0, (), (Factor(atom, index),)),))
