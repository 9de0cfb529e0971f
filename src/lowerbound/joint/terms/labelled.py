"""Labelled terms: the lazy einsum in which log p(x, z) is written.

A term is `coefficient * product of factors`, summed over every label that is not an axis of the
value it belongs to. A factor is an atom (a constant array, or a scalar function of one latent
site) with one index expression per array axis. Nothing here evaluates a density: terms are only
renamed, multiplied and brought to a normal form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lowerbound.joint.terms.domain import REAL, Domain
from lowerbound.joint.terms.expression import Expression, array_key, text
from lowerbound.joint.terms.indices import (
    Array,
    Index,
    Label,
    index_key,
    labels_read,
    substitute_index,
)

A = TypeVar("A", "Atom", "Constant")


@dataclass(frozen=True)
class Atom:
    """A scalar function of a latent site, elementwise unless the name says otherwise.

    `function` is one of power (z^p), log, log1m (log(1 - z)), power1m ((1 - z)^p), indicator
    (one trailing axis of categories, `parameter` many), logdet and inverse (of the trailing
    matrix), logfactorial, step (1[z > threshold], with `parameter` the threshold), and expression
    (any scalar function, with trailing axes for the constants in it). With a `projection`, the
    function is one of a linear combination of real sites.
    """

    site: str
    function: str = "power"
    parameter: float = 1.0
    domain: Domain = REAL
    expression: Expression | None = None
    projection: Any = None  # projections.Projection

    @property
    def sizes(self) -> tuple[int, ...]:
        """The axes that the function adds after those of the site."""
        if self.function == "indicator":
            return (int(self.parameter),)
        return self.expression.sizes if self.expression is not None else ()

    @property
    def is_base(self) -> bool:
        """Whether it belongs to the base measure, which energy and entropy leave out."""
        return self.function == "logfactorial"

    def __str__(self) -> str:
        match self.function:
            case "power" if self.parameter == 1.0:
                return self.site
            case "power":
                return f"{self.site}^{self.parameter:g}"
            case "log1m":
                return f"log(1 - {self.site})"
            case "power1m":
                return f"(1 - {self.site})^{self.parameter:g}"
            case "indicator":
                return f"1[{self.site}]"
            case "logdet":
                return f"log|{self.site}|"
            case "inverse":
                return f"{self.site}^-1"
            case "expression" if self.expression is not None:
                return text(self.expression.tree, self.site)
            case "step":
                return f"1[{self.site} > {self.parameter:g}]"
            case other:
                return f"{other}({self.site})"


@dataclass(frozen=True, eq=False)
class Constant:
    """An array that no latent site touches: data, a hyperparameter, a mask."""

    array: Array


@dataclass(frozen=True, eq=False)
class Factor(Generic[A]):
    """An atom read at one index expression per axis."""

    atom: A
    index: tuple[Index, ...]

    @property
    def own(self) -> tuple[Index, ...]:
        """The index of the latent element, without the trailing axes of the function of it."""
        if not isinstance(self.atom, Atom):
            return self.index
        return self.index[: len(self.index) - len(self.atom.sizes)]


@dataclass(frozen=True, eq=False)
class Term:
    """coefficient * product of constants * product of latent atoms, summed over unbound labels."""

    coefficient: float
    constants: tuple[Factor[Constant], ...] = ()
    latents: tuple[Factor[Atom], ...] = ()

    @property
    def factors(self) -> tuple[Factor[Any], ...]:
        """The constants, then the latent factors."""
        return (*self.constants, *self.latents)

    def labels(self) -> list[Label]:
        """Every label of the term, in order of first appearance."""
        return labels_read(self.factors)

    def __str__(self) -> str:
        data = ["data"] if self.constants else []
        return " * ".join(data + [str(f.atom) for f in self.latents]) or "constant"


def factor_key(factor: Factor[Any]) -> object:
    """Equal keys mean equal factors."""
    atom = factor.atom
    head = array_key(atom.array) if isinstance(atom, Constant) else atom
    return (head, tuple(map(index_key, factor.index)))


def substitute(term: Term, mapping: Mapping[Label, Index]) -> Term:
    """Replace labels by index expressions everywhere in the term, all at once."""
    if not mapping:
        return term

    def move(factor: Factor[A]) -> Factor[A]:
        return Factor(factor.atom, tuple(substitute_index(i, mapping) for i in factor.index))

    return Term(term.coefficient, tuple(map(move, term.constants)), tuple(map(move, term.latents)))


def refresh(term: Term, axes: Iterable[Label]) -> Term:
    """Give the term's summed labels new names, so that it can meet a term that shares them."""
    keep = set(axes)
    return substitute(term, {label: label.fresh() for label in term.labels() if label not in keep})
