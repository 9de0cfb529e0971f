"""Elements of one site that meet in one term, and data that restrict a latent site's support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from lowerbound.joint.blocks.block import Entry
from lowerbound.joint.blocks.kind import FAMILIES, Observed, Restriction
from lowerbound.joint.derive import Constraint
from lowerbound.joint.latents import Latent
from lowerbound.joint.terms.domain import REAL
from lowerbound.joint.terms.indices import Array, align, as_array, is_static, labels_along
from lowerbound.joint.terms.labelled import Constant, Factor, Term
from lowerbound.joint.terms.normal import fuse
from lowerbound.joint.terms.products import normal_form
from lowerbound.joint.terms.value import Poison, broadcast, dense, sites_of

# --------------------------------------------------------------------------------------------------
# Coupled elements


def separate(
    entries: Sequence[Entry], latents: Mapping[str, Latent]
) -> tuple[list[Entry], set[str]]:
    """Split sums over pairs of elements of one site into distinct pairs and equal ones.

    sum_ij c_ij 1[z_i=k] 1[z_j=l] = (i != j part) + sum_i c_ii 1[z_i=k] 1[k=l]: in the first the
    expectation of the product is the product of expectations. Returns the coupled sites, whose
    elements must be updated in turn. Gaussian sites are left alone: there a vector axis does it.
    """
    done: list[Entry] = []
    coupled: set[str] = set()
    todo = list(entries)
    while todo:
        entry = todo.pop()
        found = _first_pair(entry.term, latents)
        if found is None:
            done.append(entry)
            continue
        a, b = found
        coupled.add(entry.term.latents[a].atom.site)
        distinct, equal = _split(entry.term, a, b)
        done_or_todo = Entry(entry.site, distinct)
        todo.append(done_or_todo)
        if equal is not None:  # two functions of one element are one
            todo.append(Entry(entry.site, fuse(equal, latents)))
    for entry in done:
        plain = [f for f in entry.term.latents if f.atom.projection is None]
        for site in {f.atom.site for f in plain}:
            factors = [f for f in plain if f.atom.site == site]
            domain = latents[site].domain
            if len(factors) > 1 and domain is not REAL and domain.event_dim < 2:
                coupled.add(site)
    return [_unmarked(entry) for entry in done[::-1]], coupled


@dataclass(frozen=True, eq=False)
class _Distinct(Constant):
    """The mask of distinct elements for a pair of factors, so that the pair is split once."""

    pair: tuple[int, int] = (-1, -1)


def _first_pair(term: Term, latents: Mapping[str, Latent]) -> tuple[int, int] | None:
    split = {f.atom.pair for f in term.constants if isinstance(f.atom, _Distinct)}
    for a, first in enumerate(term.latents):
        for b in range(a + 1, len(term.latents)):
            second = term.latents[b]
            if first.atom.site != second.atom.site or (a, b) in split:
                continue
            if first.atom.projection is not None or second.atom.projection is not None:
                continue
            domain = latents[first.atom.site].domain
            # Two functions of one element are one; those of two entries of a matrix are none.
            if domain is not REAL and domain.event_dim < 2:
                return a, b
    return None


def _split(term: Term, a: int, b: int) -> tuple[Term, Term | None]:
    first, second = term.latents[a], term.latents[b]
    one, two = first.own, second.own
    labels = tuple(labels_along((*one, *two)))
    equal: Array = np.ones((), bool)
    for i, j in zip(one, two, strict=True):
        left, right = (align(*as_array(x), labels) for x in (i, j))
        equal = equal & (left == right)
    both_static = is_static(equal)
    shape = tuple(label.size for label in labels)
    spread = np.broadcast_to(equal, shape) if both_static else jnp.broadcast_to(equal, shape)
    mask = Factor(_Distinct(1.0 - spread, (a, b)), labels)
    distinct = replace(term, constants=(*term.constants, mask))
    if both_static and not spread.any():
        return distinct, None
    index = (*one, *second.index[len(two) :])
    merged = (*term.latents[:b], Factor(second.atom, index), *term.latents[b + 1 :])
    same = Factor(Constant(spread * 1.0), labels)
    kept = tuple(map(_plain, term.constants))  # the pairs that they mark are numbered anew
    return distinct, normal_form(Term(term.coefficient, (*kept, same), merged), frozenset())


def _plain(factor: Factor[Constant]) -> Factor[Constant]:
    return Factor(Constant(factor.atom.array), factor.index)


def _unmarked(entry: Entry) -> Entry:
    """Ordinary constants again; masks that exclude nothing are dropped."""
    constants = []
    for factor in entry.term.constants:
        array = factor.atom.array
        if isinstance(factor.atom, _Distinct):
            if is_static(array) and (np.asarray(array) == 1.0).all():
                continue
            factor = _plain(factor)
        constants.append(factor)
    return Entry(entry.site, replace(entry.term, constants=tuple(constants)))


# --------------------------------------------------------------------------------------------------
# Restricted supports


def restriction(constraint: Constraint, latents: Mapping[str, Latent]) -> Restriction | str:
    """What an observed Delta says of a latent site, or the reason why it cannot be used.

    1[z > t] = y truncates z; sum_k z_k = x makes counts multinomial.
    """
    if isinstance(constraint.value, Poison):
        return constraint.value.reason
    if isinstance(constraint.observed, Poison):
        return constraint.observed.reason
    value, observed = broadcast([constraint.value, constraint.observed])
    sites = sites_of(value)
    if len(sites) != 1:
        return "an observed Delta must be a function of one latent site"
    latent = latents[next(iter(sites))]
    terms = sorted(value.terms, key=lambda term: len(term.latents))
    seen = Observed(latent, terms, value.labels, *dense(observed))
    for family in FAMILIES.values():
        found = family.restriction(seen)
        if found is not None:
            return found
    return "only z > threshold and sums of counts can be observed exactly"
