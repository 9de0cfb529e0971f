"""Linear combinations of real sites, a = sum_d x_d w_d, that a function acts on.

Under a Gaussian factor a is Gaussian, so that E[phi(a)] is a one-dimensional integral.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowerbound.joint.terms.domain import REAL
from lowerbound.joint.terms.expression import array_key
from lowerbound.joint.terms.indices import Index, Label, position
from lowerbound.joint.terms.labelled import Atom, Factor, Term, refresh, substitute
from lowerbound.joint.terms.numbered import Numbered
from lowerbound.joint.terms.value import Value


@dataclass(frozen=True, eq=False)
class Projection:
    """An array of linear combinations of real sites, one term per product."""

    value: Value
    key: object
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Projection) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def sites(self) -> frozenset[str]:
        """The real sites that are combined."""
        return frozenset(f.atom.site for term in self.value.terms for f in term.latents)

    def at(self, index: Sequence[Index]) -> list[Term]:
        """Its terms, read at `index`."""
        mapping = {
            label: i
            for label, i in zip(self.value.axes, index, strict=True)
            if label is not None and label is not i
        }
        keep = set(self.value.labels)
        return [substitute(refresh(term, keep), mapping) for term in self.value.terms]


def is_linear(term: Term) -> bool:
    """Whether the term is a constant times one real site."""
    if len(term.latents) != 1:
        return False
    atom = term.latents[0].atom
    plain = atom.function == "power" and atom.parameter == 1.0 and atom.projection is None
    return plain and atom.domain is REAL


def linear_part(value: Value) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """The terms that are linear in real sites, and the others."""
    linear = tuple(term for term in value.terms if is_linear(term))
    return linear, tuple(term for term in value.terms if not is_linear(term))


def project(terms: Sequence[Term], like: Value) -> tuple[Projection, tuple[Index, ...], float]:
    """The combination that linear terms make: its definition, where it is read, and a factor.

    Combinations that differ in one overall number are the same.
    """
    present = {label for term in terms for label in term.labels()}
    labels = tuple(label for label in like.labels if label in present)
    # The order decides that of the stored constants, which every trace must repeat: no identities.
    ordered = sorted(terms, key=lambda term: repr(_term_key(term, labels, _outline)))
    keyed = [(_term_key(term, labels, array_key), term) for term in ordered]
    scale = keyed[0][1].coefficient
    key = tuple((k, t.coefficient / scale) for k, t in keyed)
    definition = Value(
        tuple(label.size for label in labels),
        labels,
        tuple(replace(t, coefficient=t.coefficient / scale) for _, t in keyed),
    )
    shape = tuple(label.size for label in labels)
    return Projection(definition, (shape, key), _name(definition)), labels, scale


def site_projection(site: str, shape: tuple[int, ...]) -> Projection:
    """A real site itself as a combination of one."""
    axes = tuple(Label(size) if size > 1 else None for size in shape)
    index = tuple(position(0) if label is None else label for label in axes)
    term = Term(1.0, (), (Factor(Atom(site), index),))
    return Projection(Value(shape, axes, (term,)), ("site", site), site)


def _outline(array: Any) -> object:
    return np.shape(array)


def _term_key(
    term: Term, labels: Sequence[Label], array_key: Callable[[Any], object]
) -> tuple[object, ...]:
    name = Numbered(array_key, labels)
    latents = tuple((f.atom, tuple(map(name, f.index))) for f in term.latents)
    constants = tuple((array_key(f.atom.array), tuple(map(name, f.index))) for f in term.constants)
    return latents, constants


def _name(value: Value) -> str:
    parts = [str(term) for term in value.terms]
    return f"({' + '.join(dict.fromkeys(parts))})"
