"""Functions of monomials in latents: z^p, log and exp keep log p multi-affine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from lowerbound.joint.terms.domain import MATRIX
from lowerbound.joint.terms.expression import Tree
from lowerbound.joint.terms.functions import raised as raised_expression
from lowerbound.joint.terms.functions import split_log
from lowerbound.joint.terms.impossible import possible
from lowerbound.joint.terms.indicators import elementwise, expose
from lowerbound.joint.terms.indices import Array, is_static
from lowerbound.joint.terms.labelled import Atom, Factor, Term, factor_key
from lowerbound.joint.terms.value import Operand, Outcome, Value, add, constant, dense, lift, times

OPERAND: Final[Tree] = ("operand", 0)
MOST_TERMS = 64  # of a polynomial whose factors are looked for


def monomial(value: Value) -> tuple[Value, tuple[Factor[Atom], ...]] | None:
    """Split `constant * product of atoms` (one term, nothing summed), or None."""
    if len(value.terms) != 1:
        return None
    (term,) = value.terms
    if any(label not in value.labels for label in term.labels()):
        return None
    return replace(value, terms=(replace(term, latents=()),)), term.latents


def with_atom(value: Value, factor: Factor[Atom], **changes: Any) -> Value:
    """A value of the same axes whose only term is the changed atom at the factor's index."""
    changed = Factor(replace(factor.atom, **changes), factor.index)
    return replace(value, terms=(Term(1.0, (), (changed,)),))


def power(operand: Operand, exponent: float) -> Outcome:
    """The elementwise power; monomials in positive latents take any real exponent."""
    exponent = float(exponent)
    if exponent == 1.0:
        return operand if isinstance(operand, Outcome) else lift(operand)

    def inner(value: Value) -> Outcome | None:
        complements, rest = without_complements(value)
        if complements:
            raised_ones = [
                with_atom(value, p, function="power1m", parameter=exponent) for p in complements
            ]
            return times(*raised_ones, *([] if is_one(rest) else [power(rest, exponent)]))
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

    tree = ("power", OPERAND, ("number", exponent))

    if exponent in (2.0, 3.0, 4.0) and isinstance(operand, Value) and expose([operand]) is None:
        return times(*[operand] * int(exponent))
    return elementwise(f"power {exponent:g}", lambda a: _power(a, exponent), [operand], inner, tree)


def _power(array: Array, exponent: float) -> Array:
    if is_static(array):
        with np.errstate(all="ignore"):
            return np.asarray(array, dtype=float) ** exponent
    return jnp.asarray(array) ** exponent


def _raise(latents: tuple[Factor[Atom], ...], exponent: float) -> tuple[Factor[Atom], ...] | None:
    raised: list[Factor[Atom]] = []
    for factor in latents:
        atom = factor.atom
        if atom.function in ("power", "power1m") and (
            atom.domain.positive
            or (exponent >= 0 and exponent.is_integer() and atom.domain is not MATRIX)
        ):
            raised.append(Factor(replace(atom, parameter=atom.parameter * exponent), factor.index))
        elif atom.function == "expression":
            changed = raised_expression(factor, exponent)
            if changed is None:
                return None
            raised.append(changed)
        elif exponent >= 0 and exponent.is_integer():
            raised += [factor] * int(exponent)
        else:
            return None
    return tuple(raised)


def logarithm(operand: Operand) -> Outcome:
    """The log of a monomial of positive latents is a sum of their logs."""

    def inner(value: Value) -> Outcome | None:
        complements, rest = without_complements(value)
        if complements:
            logs = [with_atom(value, p, function="log1m", parameter=1.0) for p in complements]
            return add(*logs, *([] if is_one(rest) else [logarithm(rest)]))
        split = monomial(value)
        if split is None:
            return None
        parts: list[Operand] = [logarithm(split[0])]
        for factor in split[1]:
            atom = factor.atom
            if atom.function == "power" and atom.domain.positive:
                log = with_atom(value, factor, function="log", parameter=1.0)
            elif atom.function == "power1m":
                log = with_atom(value, factor, function="log1m", parameter=1.0)
            elif atom.function == "expression":
                found = split_log(factor)
                if found is None:
                    return None
                parts.append(found[0].expand(found[1], value))
                continue
            else:
                return None
            parts.append(times(log, atom.parameter))
        return add(*parts)

    def log(array: Array) -> Array:
        return possible(_numpy_or_jax("log")(array))

    return elementwise("log", log, [operand], inner, ("log", OPERAND))


def exponential(operand: Operand) -> Outcome:
    """The exponential of a constant plus multiples of logs of latents is a monomial."""

    def inner(value: Value) -> Outcome | None:
        fixed: list[Term] = []
        others: list[Term] = []
        factors: list[Factor[Atom]] = []
        for term in value.terms:
            if not term.latents:
                fixed.append(term)
                continue
            plain = len(term.latents) == 1 and not term.constants and _plain(term, value)
            function = {"log": "power", "log1m": "power1m"}.get(term.latents[0].atom.function)
            if not plain or function is None:
                others.append(term)
                continue
            (factor,) = term.latents
            atom = replace(factor.atom, function=function, parameter=term.coefficient)
            factors.append(Factor(atom, factor.index))
        if not factors:
            return None
        rest: Operand = 1.0
        if fixed or others:
            rest = exponential(replace(value, terms=(*fixed, *others)))
        return times(rest, replace(value, terms=(Term(1.0, (), tuple(factors)),)))

    return elementwise("exp", _numpy_or_jax("exp"), [operand], inner, ("exp", OPERAND))


def _plain(term: Term, value: Value) -> bool:
    return all(label in value.labels for label in term.labels())


def _numpy_or_jax(name: str) -> Callable[..., Array]:
    def function(*arrays: Array) -> Array:
        if all(map(is_static, arrays)):
            # NumPy takes the log of a flag, or of a short integer, in float16.
            wide = [a if np.issubdtype(a.dtype, np.floating) else a.astype(float) for a in arrays]
            with np.errstate(all="ignore"):
                result: Array = getattr(np, name)(*wide)
            return np.asarray(result)
        jax_result: Array = getattr(jnp, name)(*arrays)
        return jax_result

    return function


# -- the factors 1 - p of a polynomial, p an element of a unit interval: A - p A = (1 - p) A -------
# Terms are multiplied out, so the weights of sticks that are sites of their own, v (1 - u) or
# (1 - u)(1 - v), are sums; their logs and powers are those of the factors.


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
