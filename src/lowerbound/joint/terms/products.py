"""Products of terms in normal form: powers merged, indicators unified, sums of one dropped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from lowerbound.joint.terms.domain import MATRIX
from lowerbound.joint.terms.indices import (
    Array,
    Gather,
    Index,
    Label,
    index_key,
    is_static,
    labels_of,
)
from lowerbound.joint.terms.labelled import Atom, Constant, Factor, Term, factor_key, substitute


def multiply(first: Term, second: Term, axes: Iterable[Label]) -> Term | None:
    """The product of two terms whose summed labels are distinct; None when it vanishes."""
    return normal_form(
        Term(
            first.coefficient * second.coefficient,
            first.constants + second.constants,
            first.latents + second.latents,
        ),
        frozenset(axes),
    )


def normal_form(term: Term, axes: frozenset[Label]) -> Term | None:
    """Merge powers, unify indicators, and drop sums that are one; None when the term is zero.

    z_i^a z_i^b = z_i^(a+b);  1[z=k] 1[z=l] = 1[z=k] 1[k=l];  sum_k 1[z=k] = 1;
    sum_k pi_k = 1 on the simplex.
    """
    if term.coefficient == 0.0:
        return None
    before = term.labels()
    term = replace(term, latents=_merge_powers(term.latents))
    left = set(term.labels())
    for label in before:  # z^0 = 1 summed over a label counts its size
        if label not in left and label not in axes:
            term = replace(term, coefficient=term.coefficient * label.size)
    for simplify in (_unify_indicators, _contract_deltas):
        simpler = simplify(term, axes)
        if simpler is not term:
            return None if simpler is None else normal_form(simpler, axes)
    return _drop_unit_sums(term, axes)


def _merge_powers(latents: tuple[Factor[Atom], ...]) -> tuple[Factor[Atom], ...]:
    merged: dict[object, Factor[Atom]] = {}
    for factor in latents:
        atom = factor.atom
        if atom.function in ("power", "power1m") and atom.domain is not MATRIX:
            key: object = (atom.site, atom.function, tuple(map(index_key, factor.index)))
            if key in merged:
                total = merged[key].atom.parameter + atom.parameter
                merged[key] = Factor(replace(atom, parameter=total), factor.index)
                continue
        elif atom.function == "step":
            key = factor_key(factor)  # a step function is its own square
        else:
            key = object()
        merged[key] = factor
    return tuple(
        f
        for f in merged.values()
        if not (f.atom.function in ("power", "power1m") and f.atom.parameter == 0.0)
    )


def _unify_indicators(term: Term, axes: frozenset[Label]) -> Term | None:
    seen: dict[object, Factor[Atom]] = {}
    for number, factor in enumerate(term.latents):
        if factor.atom.function != "indicator":
            continue
        key = (factor.atom.site, tuple(map(index_key, factor.index[:-1])))
        if key not in seen:
            seen[key] = factor
            continue
        first, second = seen[key].index[-1], factor.index[-1]
        rest = replace(term, latents=term.latents[:number] + term.latents[number + 1 :])
        if index_key(first) == index_key(second):
            return rest
        for old, new in ((second, first), (first, second)):
            if isinstance(old, Label) and old not in axes:
                return substitute(rest, {old: new})
        if _fixed(first) and _fixed(second):  # two different categories
            return None
        delta = Factor(Constant(np.eye(int(factor.atom.parameter))), (first, second))
        return replace(rest, constants=(*rest.constants, delta))
    return term


def _contract_deltas(term: Term, axes: frozenset[Label]) -> Term:
    """sum_k 1[k=l] f_k = f_l, for a constant identity matrix and a summed label k."""
    for number, factor in enumerate(term.constants):
        if len(factor.index) != 2 or not _is_identity(factor.atom.array):
            continue
        first, second = factor.index
        rest = replace(term, constants=term.constants[:number] + term.constants[number + 1 :])
        if index_key(first) == index_key(second):
            return rest
        for old, new in ((first, second), (second, first)):
            if isinstance(old, Label) and old not in axes and old not in labels_of(new):
                return substitute(rest, {old: new})
    return term


def _is_identity(array: Array) -> bool:
    return (
        isinstance(array, np.ndarray)
        and array.ndim == 2
        and array.shape[0] == array.shape[1]
        and array[0, 0] == 1
        and np.array_equal(array, np.eye(len(array)))
    )


def _fixed(index: Index) -> bool:
    return isinstance(index, Gather) and not index.labels and is_static(index.array)


def _drop_unit_sums(term: Term, axes: frozenset[Label]) -> Term:
    counts: dict[Label, int] = {}
    for factor in term.factors:
        for index in factor.index:
            for label in labels_of(index):
                counts[label] = counts.get(label, 0) + 1

    def sums_to_one(factor: Factor[Atom]) -> bool:
        atom = factor.atom
        whole = atom.function == "indicator" or (
            atom.domain.sums_to_one and atom.function == "power" and atom.parameter == 1.0
        )
        if not whole:
            return False
        last = factor.index[-1]
        return isinstance(last, Label) and last not in axes and counts[last] == 1

    kept: list[Factor[Atom]] = []
    scale = term.coefficient
    for factor in term.latents:
        if not sums_to_one(factor):
            kept.append(factor)
            continue
        for index in factor.index[:-1]:  # a summed label that now occurs nowhere counts its size
            for label in labels_of(index):
                counts[label] -= 1
                if counts[label] == 0 and label not in axes:
                    scale *= label.size
    if len(kept) == len(term.latents):
        return term
    return replace(term, coefficient=scale, latents=tuple(kept))
