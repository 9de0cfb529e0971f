"""Terms in which each latent number enters once.

z log z is one function of z, and phi1(a) phi2(a) one function of a: a factor q has one statistic
for each, which is what makes the energy affine in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lowerbound.joint.blocks.block import Entry
from lowerbound.joint.blocks.projections import Projection, site_projection
from lowerbound.joint.energy.integrals import squares
from lowerbound.joint.latents import Latent
from lowerbound.joint.terms.domain import REAL
from lowerbound.joint.terms.functions import element_key, fused, is_function
from lowerbound.joint.terms.labelled import Atom, Factor, Term


def fuse(term: Term, latents: Mapping[str, Latent]) -> Term:
    """The term with the functions of each latent number multiplied into one."""
    groups: dict[object, list[Factor[Atom]]] = {}
    for factor in term.latents:
        key = element_key(factor) if is_function(factor) else object()
        groups.setdefault(key, []).append(factor)
    made = []
    for group in groups.values():
        single = len(group) == 1
        factor = group[0] if single else fused(group)
        if _beyond_quadratic(factor.atom):
            factor = fused(group, named=False)
        made.append(_projected(factor, latents))
    return replace(term, latents=tuple(made))


def _beyond_quadratic(atom: Atom) -> bool:
    real = atom.domain is REAL and atom.projection is None
    return real and atom.function == "power" and atom.parameter not in (1.0, 2.0)


def _projected(factor: Factor[Atom], latents: Mapping[str, Latent]) -> Factor[Atom]:
    """A function of one real site as a function of a combination of one."""
    atom = factor.atom
    if atom.domain is not REAL or atom.function != "expression" or atom.projection is not None:
        return factor
    projection = site_projection(atom.site, latents[atom.site].shape)
    return Factor(replace(atom, projection=projection), factor.index)


def projections_of(entries: Sequence[Entry]) -> dict[Projection, tuple[Atom, ...]]:
    """The linear combinations that functions act on, with the functions of each."""
    found: dict[Projection, dict[Atom, None]] = {}
    for entry in entries:
        for factor in entry.term.latents:
            if factor.atom.projection is not None:
                found.setdefault(factor.atom.projection, {})[factor.atom] = None
    return {projection: tuple(atoms) for projection, atoms in found.items()}


def without_projections(
    entries: Sequence[Entry], projections: Mapping[Projection, object]
) -> list[Entry]:
    """What decides the blocks: terms of sites, and a^2 of every combination a.

    Sites that meet in a combination are then one Gaussian, as those of one quadratic form are.
    """
    plain = []
    for entry in entries:
        sites = tuple(f for f in entry.term.latents if f.atom.projection is None)
        plain.append(Entry(entry.site, replace(entry.term, latents=sites)))
    pairs = [Entry("", term) for projection in projections for term in squares(projection)]
    return plain + pairs
