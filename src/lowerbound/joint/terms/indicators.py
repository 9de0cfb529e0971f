"""Indicators of discrete latents: elementwise functions pass inside them.

f(sum_k 1[z=k] g_k) = sum_k 1[z=k] f(g_k), which replaces enumeration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from lowerbound.joint.terms.algebra import substituted
from lowerbound.joint.terms.expression import Tree
from lowerbound.joint.terms.functions import functions_of, is_function, refused
from lowerbound.joint.terms.indices import Array, Label, align, index_key, labels_along
from lowerbound.joint.terms.labelled import Atom, Constant, Factor, Term, refresh, substitute
from lowerbound.joint.terms.pieces import pieces_of, stacked
from lowerbound.joint.terms.products import normal_form
from lowerbound.joint.terms.value import (
    Operand,
    Outcome,
    Poison,
    Value,
    add,
    broadcast,
    constant,
    dense,
    first_poison,
    lift,
    merge_like,
    poisoned,
    shape_of,
    times,
)


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
                where = labels_along(factor.index[:-1])
                if any(label not in axes for label in where):
                    return None
                key = (factor.atom.site, tuple(map(index_key, factor.index[:-1])))
                if key not in found:
                    category = Label(int(factor.atom.parameter))
                    found[key] = Factor(factor.atom, (*factor.index[:-1], category))
    if not found:
        return [], list(values)
    categories: list[Label] = [f.index[-1] for f in found.values()]  # type: ignore[misc]
    opened = []
    for value in values:
        # a - a 1[z=k] k is one term in a once k is an axis: a (1 - k).
        terms = [_open(refresh(term, axes), found, axes) for term in value.terms]
        opened.append(
            Value(
                (*value.shape, *(int(f.atom.parameter) for f in found.values())),
                (*value.axes, *categories),
                merge_like(terms, (*axes, *categories)),
            )
        )
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
    return Value(value.shape[:-count], axes, merge_like(terms, tuple(kept)))


def of_one_number(name: str, tree: Tree, values: Sequence[Value]) -> Outcome | None:
    """The tree in the given values, where they are functions of one latent number."""
    found = functions_of(values)
    if found is None:
        return None
    functions, operands = found
    exponent = operands[1][1] if len(operands) > 1 and operands[1][0] == "number" else 0.5
    if tree[0] == "power" and tree[2][0] == "number":
        exponent = tree[2][1]
    reason = refused(tree[0], operands[0], exponent, functions.element)
    if reason is not None:
        return poisoned(name, reason, *values)
    return functions.expand(substituted(tree, operands), values[0])


def _reason(name: str, values: Sequence[Value], tree: Tree | None) -> str:
    factors = [f for value in values for term in value.terms for f in term.latents]
    if tree is not None and all(map(is_function, factors)):
        return f"{name} acts on several latent values at once"
    return f"{name} of a latent value has no closed form here"


def _by_pieces(
    name: str,
    function: Callable[..., Array],
    value: Value,
    inner: Callable[..., Outcome | None],
) -> Outcome | None:
    """The function of each piece of a value in its place."""
    pieces = pieces_of(value)
    if pieces is None:
        return None
    parts: list[Operand] = []
    for mask, piece in zip(pieces.masks, pieces.values, strict=True):
        part = elementwise(name, function, [piece], inner)
        if isinstance(part, Poison):
            return None
        parts.append(times(constant(mask, pieces.labels, value), part))
    if pieces.rest.any():
        off = pieces.rest * np.asarray(function(np.zeros(())))
        parts.append(constant(off, pieces.labels, value))
    total = add(*parts)
    return (
        total
        if isinstance(total, Poison)
        else replace(total, terms=stacked(total.terms, value.labels))
    )


def elementwise(
    name: str,
    function: Callable[..., Array],
    operands: Sequence[Operand],
    inner: Callable[..., Outcome | None] | None = None,
    tree: Tree | None = None,
) -> Outcome:
    """Apply an elementwise function, inside indicators where there are any.

    `function` acts on constant arrays; `inner` gets the exposed values when they are not all
    constant, and returns None where it has no rule. Then `tree`, the function as a tree in its
    operands, applies where they are functions of one latent number.
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
    if outcome is None and tree is not None:
        outcome = of_one_number(name, tree, opened)
    if outcome is None and inner is not None and len(opened) == 1:
        outcome = _by_pieces(name, function, opened[0], inner)
    if outcome is None:
        return poisoned(name, _reason(name, opened, tree), *values)
    if isinstance(outcome, Poison):
        return outcome.spread(values[0].shape, values)
    return close(indicators, broadcast([outcome], opened[0].shape)[0])
