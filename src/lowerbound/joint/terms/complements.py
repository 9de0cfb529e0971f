"""The factors 1 - p of a polynomial, p an element of a unit interval: A - p A = (1 - p) A.

Terms are multiplied out, so the weights of sticks that are sites of their own, v (1 - u) or
(1 - u)(1 - v), are sums; their logs and powers are those of the factors.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from lowerbound.joint.terms.labelled import Atom, Factor, Term, factor_key
from lowerbound.joint.terms.value import Value

MOST_TERMS = 64  # of a polynomial whose factors are looked for


def without_complements(value: Value) -> tuple[tuple[Factor[Atom], ...], Value]:
    """The elements p with value = product of (1 - p) times the rest, and that rest."""
    found: list[Factor[Atom]] = []
    if len(value.terms) <= MOST_TERMS and len({_constants(term) for term in value.terms}) == 1:
        while (split := _split(value)) is not None:
            factor, value = split
            found.append(factor)
    return tuple(found), value


def is_one(value: Value) -> bool:
    """Whether a value is the number one."""
    return len(value.terms) == 1 and not value.terms[0].factors and value.terms[0].coefficient == 1


def _split(value: Value) -> tuple[Factor[Atom], Value] | None:
    """One factor 1 - p and what is left: the terms without p are minus those with it, less p."""
    if len(value.terms) % 2 or not all(set(t.labels()) <= set(value.labels) for t in value.terms):
        return None
    for factor in {factor_key(f): f for t in value.terms for f in t.latents}.values():
        if not _is_element(factor):
            continue
        key = factor_key(factor)
        parted = [(term, _less(term, key)) for term in value.terms]
        others = tuple(term for term, less in parted if less is None)
        negated = Counter(_key(less, -1.0) for _, less in parted if less is not None)
        if Counter(_key(term) for term in others) == negated:
            return factor, replace(value, terms=others)
    return None


def _is_element(factor: Factor[Atom]) -> bool:
    atom = factor.atom
    return atom.domain.complemented and atom.function == "power" and atom.parameter == 1.0


def _less(term: Term, key: object) -> Term | None:
    """The term without one of its factors; None where it has no such factor."""
    keys = [factor_key(f) for f in term.latents]
    if key not in keys:
        return None
    place = keys.index(key)
    return replace(term, latents=term.latents[:place] + term.latents[place + 1 :])


def _key(term: Term, sign: float = 1.0) -> Any:
    latents = frozenset(Counter(map(factor_key, term.latents)).items())
    return sign * term.coefficient, _constants(term), latents


def _constants(term: Term) -> Any:
    return frozenset(Counter(map(factor_key, term.constants)).items())
