"""From terms to blocks: the atoms each latent site enters through decide its factor.

`find_blocks` groups sites into blocks; what fits no factor becomes a `Misfit` with its reason. The
rules look at terms alone, never at pairs of distributions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lowerbound.errors import BlockError
from lowerbound.joint.blocks.block import Block, Entry
from lowerbound.joint.blocks.gaussians import gaussian_groups, quadratic_pairs, with_precision
from lowerbound.joint.blocks.kind import FAMILIES, Kind, Misfit, Uses, takers
from lowerbound.joint.blocks.neighbours import paths_of
from lowerbound.joint.latents import Latent
from lowerbound.joint.terms.domain import REAL
from lowerbound.joint.terms.labelled import Atom, Factor


def find_blocks(
    entries: Sequence[Entry],
    latents: Mapping[str, Latent],
    fixed: Mapping[str, Block],
    partition: Sequence[Sequence[str]] | None = None,
    sequential: Iterable[str] = (),
    apart: Iterable[str] = (),
) -> tuple[list[Block], list[Misfit]]:
    """Group the latent sites into blocks, in program order.

    `fixed` are the blocks of sites whose support the data restrict; `partition` are the groups the
    user asks for; sites `apart` never join the others.
    """
    uses = _uses(entries, latents)
    ordered = set(sequential)
    chosen: dict[str, type[Kind]] = {}
    misfits: list[Misfit] = []
    for name, latent in latents.items():
        families = [fixed[name].family] if name in fixed else takers(latent.domain)
        found = _family(latent, uses[name], families, name in ordered)
        if isinstance(found, Misfit):
            misfits.append(found)
        else:
            chosen[name] = found
    paths = _paths(entries, latents, ordered, set(chosen) - set(fixed), partition)
    ordered -= {name for block in paths for name in block.sites}
    for name in list(chosen):
        if latents[name].domain is REAL:
            misfits += _check_degree(uses[name], name)
    bad = {misfit.latent for misfit in misfits}
    gaussian = [
        name
        for name, latent in latents.items()
        if latent.domain is REAL and name not in bad and name not in fixed
    ]
    alone = set(apart)
    groups = gaussian_groups(entries, latents, gaussian, partition, alone)
    blocks: list[Block] = list(paths)
    taken = {name for block in paths for name in block.sites}
    for group in groups:
        other_side = {n for n in latents if (n in alone) != (next(iter(group.layouts)) in alone)}
        scales = {
            name: (latents[name], family, uses[name])
            for name, family in chosen.items()
            if name not in bad | taken | other_side
        }
        block = with_precision(entries, scales, group, partition)
        taken |= set(block.sites)
        blocks.append(block)
    for name, latent in latents.items():
        if name in taken or name in bad:
            continue
        if name in fixed:
            blocks.append(replace(fixed[name], sequential=name in ordered))
        else:
            blocks.append(chosen[name].block(latent, uses[name], name in ordered))
    place = {name: i for i, name in enumerate(latents)}
    blocks.sort(key=lambda block: max(place[name] for name in block.sites))
    numbered = [replace(block, number=i) for i, block in enumerate(blocks)]
    for part in partition or ():
        if not any(set(part) == set(block.sites) for block in numbered):
            known = [name for name in part if name in latents and name not in bad]
            if known == list(part):
                reason = "no joint family has the statistics they need together"
                raise BlockError.together(part, reason)
    return numbered, misfits


def _paths(
    entries: Sequence[Entry],
    latents: Mapping[str, Latent],
    coupled: set[str],
    free: set[str],
    partition: Sequence[Sequence[str]] | None,
) -> list[Block]:
    """The blocks of discrete elements that follow each other; sites of a `partition` as it says."""
    asked = [set(part) for part in partition or ()]
    found = []
    for path in paths_of(entries, latents, coupled, free):
        own = set(path.layouts)
        if any(part & own and part != own for part in asked):
            continue
        made = (family.of_path(path) for family in FAMILIES.values())
        found += [block for block in made if block is not None][:1]
    return found


def _family(
    latent: Latent, uses: Uses, families: Sequence[type[Kind]], sequential: bool
) -> type[Kind] | Misfit:
    """The first family that takes the site, or why none does: a free form would be the last."""
    misfits: list[Misfit] = []
    for family in families:
        found = family.misfit(latent, uses, sequential)
        if found is None:
            return family
        misfits.append(found)
    if misfits:
        return misfits[-1] if families[-1].free_form else misfits[0]
    if not uses:  # its own density among them: nothing depends on what the site is
        return next(iter(FAMILIES.values()))
    entry, factors = uses[0]
    reason = "no factor has this statistic"
    return Misfit(latent.name, entry.site, str(factors[0].atom), reason)


def _uses(entries: Sequence[Entry], names: Iterable[str]) -> dict[str, Uses]:
    found: dict[str, list[tuple[Entry, list[Factor[Atom]]]]] = {name: [] for name in names}
    for entry in entries:
        own: dict[str, list[Factor[Atom]]] = {}
        for factor in entry.term.latents:
            own.setdefault(factor.atom.site, []).append(factor)
        for name, factors in own.items():
            if name in found:
                found[name].append((entry, factors))
    return dict(found)


def _check_degree(uses: Uses, name: str) -> list[Misfit]:
    for entry, factors in uses:
        if quadratic_pairs([entry], [name]) is None:
            own = [str(factor.atom) for factor in factors]
            reason = "it is not quadratic in a Gaussian"
            return [Misfit(name, entry.site, " * ".join(own), reason)]
    return []
