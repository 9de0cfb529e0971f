"""From terms to blocks: the atoms each latent site enters through decide its factor.

`find_blocks` groups sites into blocks; what fits no factor becomes a `Misfit` with its reason. The
rules look at terms alone, never at pairs of distributions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lowerbound.errors import BlockError
from lowerbound.joint.blocks.block import Block, Entry, Layout
from lowerbound.joint.blocks.gaussians import (
    Uses,
    gaussian_groups,
    powers_of,
    quadratic_pairs,
    with_precision,
)
from lowerbound.joint.derive import Latent
from lowerbound.joint.terms.expression import Expression
from lowerbound.joint.terms.functions import Element, Functions
from lowerbound.joint.terms.labelled import Atom, Factor


@dataclass(frozen=True)
class Misfit:
    """A latent site with a term (of another site's density) that no factor can absorb."""

    latent: str
    site: str
    left_over: str
    reason: str


def find_blocks(
    entries: Sequence[Entry],
    latents: Mapping[str, Latent],
    fixed: Mapping[str, tuple[str, dict[str, object]]],
    partition: Sequence[Sequence[str]] | None = None,
    sequential: Iterable[str] = (),
    apart: Iterable[str] = (),
) -> tuple[list[Block], list[Misfit]]:
    """Group the latent sites into blocks, in program order.

    `fixed` gives the kind of sites whose support the data restrict: site -> (kind, settings);
    `partition` are the groups the user asks for; sites `apart` never join the others.
    """
    uses = {name: _uses(entries, name) for name in latents}
    ordered = set(sequential)
    free: set[str] = set()
    misfits: list[Misfit] = []
    for name, latent in latents.items():
        found = _check_atoms(latent, uses[name])
        if found and latent.domain in FREE_DOMAINS and name not in fixed:
            free.add(name)
            found = _check_free(latent, uses[name], name in ordered)
        misfits += found
    for name, latent in latents.items():
        if latent.domain == "real" and name not in {m.latent for m in misfits}:
            misfits += _check_degree(entries, name)
    bad = {misfit.latent for misfit in misfits}
    gaussian = [
        name
        for name, latent in latents.items()
        if latent.domain == "real" and name not in bad and name not in fixed
    ]
    alone = set(apart)
    groups = gaussian_groups(entries, latents, gaussian, partition, alone)
    blocks: list[Block] = []
    taken: set[str] = set()
    for group in groups:
        other_side = {n for n in latents if (n in alone) != (next(iter(group.layouts)) in alone)}
        excluded = bad | taken | other_side | free
        block = with_precision(entries, latents, uses, group, excluded, partition)
        taken |= set(block.sites)
        blocks.append(block)
    for name, latent in latents.items():
        if name in taken or name in bad:
            continue
        if name in free:
            blocks.append(_free(latent, uses[name]))
            continue
        blocks.append(_leaf(latent, uses[name], fixed.get(name), name in ordered))
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


def _uses(entries: Sequence[Entry], name: str) -> Uses:
    found = []
    for entry in entries:
        factors = [f for f in entry.term.latents if f.atom.site == name]
        if factors:
            found.append((entry, factors))
    return found


# --------------------------------------------------------------------------------------------------
# Single sites


_ALLOWED: dict[str, set[str]] = {
    "real": {"power"},
    "positive": {"log", "power"},
    "unit": {"log", "log1m"},
    "simplex": {"log"},
    "matrix": {"power", "inverse", "logdet"},
    "discrete": {"indicator"},
    "count": {"power", "logfactorial"},
    "polya_gamma": {"power"},
    "inverse_gaussian": {"power"},
    "point": {"power"},
}


def _check_atoms(latent: Latent, uses: Uses) -> list[Misfit]:
    """The first use of a site that no factor of its own can absorb, if there is one."""
    allowed = _ALLOWED.get(latent.domain, set())
    if latent.domain == "interval":  # no named family lives there
        return [Misfit(latent.name, latent.name, latent.name, "its support is an interval")]
    powers: dict[float, Entry] = {}
    for entry, factors in uses:
        for factor in factors:
            atom = factor.atom
            if atom.function not in allowed:
                return [Misfit(latent.name, entry.site, str(atom), "no factor has this statistic")]
            if latent.domain == "real" and atom.parameter not in (1.0, 2.0):
                reason = "it is not quadratic in a Gaussian"
                return [Misfit(latent.name, entry.site, str(atom), reason)]
            if latent.domain == "positive" and atom.function == "power":
                powers.setdefault(atom.parameter, entry)
            if latent.domain == "matrix" and atom.function != "logdet":
                powers.setdefault(-1.0 if atom.function == "inverse" else 1.0, entry)
    if len(powers) > 1:
        first, *others = powers
        last = powers[others[-1]]
        reason = f"{latent.name}^{first:g} and {latent.name}^{others[-1]:g} share no closed form"
        left = f"{latent.name}^{others[-1]:g}"
        return [Misfit(latent.name, last.site, left, reason)]
    return []


# --------------------------------------------------------------------------------------------------
# Free-form factors


FREE_DOMAINS = ("positive", "unit", "interval")
MAX_FREE_NUMBERS = 200_000  # numbers in a statistic, each evaluated at every node of a quadrature


def _check_free(latent: Latent, uses: Uses, sequential: bool) -> list[Misfit]:
    """What no factor of one number at a time can absorb."""
    for entry, factors in uses:
        if sequential and len(factors) > 1:
            left = " * ".join(str(f.atom) for f in factors)
            return [Misfit(latent.name, entry.site, left, "its elements meet in one term")]
        for factor in factors:
            expression = _expression(factor)
            size = math.prod((*latent.shape, *expression.sizes))
            if size > MAX_FREE_NUMBERS:
                reason = f"{size} functions of it are too many for a quadrature"
                return [Misfit(latent.name, entry.site, str(factor.atom), reason)]
    return []


def _expression(factor: Factor[Atom]) -> Expression:
    if factor.atom.expression is not None:
        return factor.atom.expression
    return Expression(Functions(Element.of(factor)).factor(factor))


def _free(latent: Latent, uses: Uses) -> Block:
    """The optimal factor of a scalar whose statistics have no name (eq:optimal-qj)."""
    atoms = {f.atom: _expression(f) for _, factors in uses for f in factors}
    bounds = {"positive": (0.0, math.inf), "unit": (0.0, 1.0)}
    lower, upper = bounds.get(latent.domain, (latent.lower, latent.upper))
    static: dict[str, Any] = {
        "trees": tuple(e.tree for e in atoms.values()),
        "sizes": tuple(e.sizes for e in atoms.values()),
        "axes": tuple(e.axes for e in atoms.values()),
        "lower": lower,
        "upper": upper,
    }
    layout = Layout(latent.shape, tuple(range(len(latent.shape))))
    return Block(0, "free", {latent.name: layout}, latent.shape, static, atoms=tuple(atoms))


def _check_degree(entries: Sequence[Entry], name: str) -> list[Misfit]:
    for entry in entries:
        if quadratic_pairs([entry], [name]) is None:
            own = [str(f.atom) for f in entry.term.latents if f.atom.site == name]
            reason = "it is not quadratic in a Gaussian"
            return [Misfit(name, entry.site, " * ".join(own), reason)]
    return []


def _leaf(
    latent: Latent,
    uses: Uses,
    fixed: tuple[str, dict[str, object]] | None,
    sequential: bool,
) -> Block:
    shape = latent.shape
    rank = len(shape)
    batch_rank = {"simplex": rank - 1, "matrix": rank - 2}.get(latent.domain, rank)
    layout = Layout(shape, tuple(range(batch_rank)), tuple(range(batch_rank, rank)))
    static: dict[str, object] = {}
    match latent.domain:
        case "positive":
            (power,) = powers_of(uses) or {1.0}
            kind, static = "gamma", {"power": power}
        case "unit":
            kind = "beta"
        case "simplex":
            kind, static = "dirichlet", {"dim": shape[-1]}
        case "matrix":
            inverse = any(f.atom.function == "inverse" for _, fs in uses for f in fs)
            kind, static = "wishart", {"dim": shape[-1], "inverse": inverse}
        case "discrete":
            assert latent.support_values is not None
            kind, static = "categorical", {"dim": len(latent.support_values)}
        case "count":
            kind = "poisson"
        case "polya_gamma" | "inverse_gaussian" | "point":
            kind = latent.domain
        case _:
            kind = "normal"
    if fixed is not None:
        kind, given = fixed
        axis = given.get("axis")
        static = {k: v for k, v in given.items() if k != "axis"}
        if isinstance(axis, int):
            batch = tuple(a for a in range(rank) if a != axis)
            layout = Layout(shape, batch, (axis,))
    return Block(
        0, kind, {latent.name: layout}, layout.batch_shape, dict(static), sequential=sequential
    )
