"""Latent sites as the derivation sees them: a name, a shape, and the set that they live in."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from numpyro.distributions import constraints

from lowerbound.joint.blocks.kind import FAMILIES
from lowerbound.joint.terms.domain import DISCRETE, INTERVAL, OTHER, POSITIVE, UNIT, Domain
from lowerbound.joint.terms.indices import Label
from lowerbound.joint.terms.labelled import Atom, Constant, Factor, Term
from lowerbound.joint.terms.value import Value, atom_value
from lowerbound.model import Site


@dataclass(frozen=True)
class Latent:
    """What the derivation needs to know of a latent site."""

    name: str
    shape: tuple[int, ...]
    domain: Domain
    support_values: np.ndarray | None = None
    lower: float = -math.inf  # the bounds of an interval
    upper: float = math.inf

    def value(self) -> Value:
        """The site as a value: sum_k v_k 1[z=k] when discrete, else itself."""
        if self.support_values is None:
            positive = self.domain is INTERVAL and self.lower >= 0.0
            domain = POSITIVE if positive else self.domain
            return atom_value(Atom(self.name, domain=domain), self.shape)
        count = len(self.support_values)
        atom = Atom(self.name, "indicator", float(count), DISCRETE)
        indicator = atom_value(atom, self.shape)
        (term,) = indicator.terms
        category = Label(count)
        factor = Factor(atom, (*term.latents[0].index, category))
        support = Factor(Constant(np.asarray(self.support_values)), (category,))
        return replace(indicator, terms=(Term(1.0, (support,), (factor,)),))


def latent_of(site: Site) -> Latent:
    """A latent site as the derivation sees it."""
    domain = domain_of(site)
    bounds = _bounds(site) if domain is INTERVAL else None
    lower, upper = bounds or (-math.inf, math.inf)
    return Latent(site.name, site.shape, domain, site.support_values, lower, upper)


def domain_of(site: Site) -> Domain:
    """The set that a latent site lives in, which decides the functions that may act on it."""
    if site.support_values is not None:
        return DISCRETE
    known = dict.fromkeys(domain for family in FAMILIES.values() for domain in family.domains)
    for domain in known:
        if site.distribution in domain.laws:
            return domain
    support = _innermost(site)
    for domain in known:
        if domain.says(support):
            return domain
    match _bounds(site):
        case None:
            return OTHER
        case (0.0, 1.0):
            return UNIT
        case (0.0, math.inf):
            return POSITIVE
    return INTERVAL


def _innermost(site: Site) -> Any:
    support: Any = site.support
    while isinstance(support, type(constraints.independent(constraints.real, 1))):
        support = support.base_constraint
    return support


_INTERVALS = tuple(
    type(constraint)
    for constraint in (
        constraints.interval(0.0, 1.0),
        constraints.open_interval(0.0, 1.0),
        constraints.greater_than(0.0),
        constraints.greater_than_eq(0.0),
        constraints.less_than(0.0),
        constraints.less_than_eq(0.0),
    )
)


def _bounds(site: Site) -> tuple[float, float] | None:
    """The fixed bounds of an interval, the same for all elements of the site; else None."""
    support = _innermost(site)
    if not isinstance(support, _INTERVALS):
        return None
    found = []
    for name, unbounded in (("lower_bound", -math.inf), ("upper_bound", math.inf)):
        bound = getattr(support, name, unbounded)
        if isinstance(bound, jax.core.Tracer):
            return None
        array = np.asarray(bound, dtype=float)
        if not array.size or not (array == array.flat[0]).all():
            return None
        found.append(float(array.flat[0]))
    return found[0], found[1]
