"""From terms to blocks: the atoms each latent site enters through decide its factor.

`find_blocks` groups sites into blocks; what fits no factor becomes a `Misfit` with its reason. The
rules look at terms alone, never at pairs of distributions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lowerbound.errors import BlockError
from lowerbound.joint.blocks import Block, Layout, expand_powers, private_labels, same_index
from lowerbound.joint.derive import Latent
from lowerbound.joint.terms import Atom, Factor, Index, Term, index_key

# A Gaussian block costs about batch * dim^3 per sweep and batch * dim^2 numbers of memory.
MAX_JOINT_DIMENSION = 512
MAX_JOINT_NUMBERS = 20_000_000


@dataclass(frozen=True)
class Entry:
    """A term of log p, and the site whose density holds it."""

    site: str
    term: Term


@dataclass(frozen=True)
class Misfit:
    """A latent site with a term (of another site's density) that no factor can absorb."""

    latent: str
    site: str
    left_over: str
    reason: str


@dataclass(frozen=True)
class Gaussians:
    """A group of Gaussian sites under one quadratic form, with its layouts."""

    layouts: dict[str, Layout]
    batch_shape: tuple[int, ...]
    full: bool

    @property
    def dimension(self) -> int:
        return sum(layout.size for layout in self.layouts.values())


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
    misfits = [m for name, latent in latents.items() for m in _check_atoms(latent, uses[name])]
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
    groups = _gaussian_groups(entries, latents, gaussian, partition, alone)
    blocks: list[Block] = []
    taken: set[str] = set()
    for group in groups:
        other_side = {n for n in latents if (n in alone) != (next(iter(group.layouts)) in alone)}
        excluded = bad | taken | other_side
        block = _with_precision(entries, latents, uses, group, excluded, partition)
        taken |= set(block.sites)
        blocks.append(block)
    ordered = set(sequential)
    for name, latent in latents.items():
        if name in taken or name in bad:
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
                raise BlockError(part, reason, remedy="Leave them in separate blocks.")
    return numbered, misfits


def _uses(entries: Sequence[Entry], name: str) -> list[tuple[Entry, list[Factor[Atom]]]]:
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
}


def _check_atoms(latent: Latent, uses: list[tuple[Entry, list[Factor[Atom]]]]) -> list[Misfit]:
    """The first use of a site that no factor of its own can absorb, if there is one."""
    allowed = _ALLOWED.get(latent.domain, set())
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


def _check_degree(entries: Sequence[Entry], name: str) -> list[Misfit]:
    for entry in entries:
        if _pairs([entry], [name]) is None:
            own = [str(f.atom) for f in entry.term.latents if f.atom.site == name]
            reason = "it is not quadratic in a Gaussian"
            return [Misfit(name, entry.site, " * ".join(own), reason)]
    return []


def _powers(uses: list[tuple[Entry, list[Factor[Atom]]]], function: str = "power") -> set[float]:
    return {f.atom.parameter for _, fs in uses for f in fs if f.atom.function == function}


def _leaf(
    latent: Latent,
    uses: list[tuple[Entry, list[Factor[Atom]]]],
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
            (power,) = _powers(uses) or {1.0}
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


# --------------------------------------------------------------------------------------------------
# Gaussian groups


Pair = tuple[tuple[str, tuple[Index, ...]], tuple[str, tuple[Index, ...]]]


def _gaussian_groups(
    entries: Sequence[Entry],
    latents: Mapping[str, Latent],
    names: Sequence[str],
    partition: Sequence[Sequence[str]] | None,
    apart: set[str],
) -> list[Gaussians]:
    if partition is not None:
        asked = [[n for n in group if n in names] for group in partition]
        named = {n for group in asked for n in group}
        groups = [group for group in asked if group] + [[n] for n in names if n not in named]
        return [_required(entries, latents, group) for group in groups]
    current = {name: [name] for name in names}
    for first, second in _meetings(entries, names):
        one, two = current[first], current[second]
        if one is two or (first in apart) != (second in apart):
            continue
        union = [name for name in names if name in one or name in two]
        if _grouped(entries, latents, union) is not None:
            for name in union:
                current[name] = union
    distinct = {id(group): group for group in current.values()}
    return [_required(entries, latents, group) for group in distinct.values()]


def _required(
    entries: Sequence[Entry], latents: Mapping[str, Latent], group: Sequence[str]
) -> Gaussians:
    found = _grouped(entries, latents, group, force=True)
    if found is None:
        reason = "log p is not quadratic in them together"
        raise BlockError(group, reason, remedy="Leave them in separate blocks.")
    return found


def _meetings(entries: Sequence[Entry], names: Sequence[str]) -> list[tuple[str, str]]:
    found: dict[tuple[str, str], None] = {}
    for entry in entries:
        sites = sorted({f.atom.site for f in entry.term.latents} & set(names), key=names.index)
        found.update(dict.fromkeys(itertools.combinations(sites, 2)))
    return list(found)


def _grouped(
    entries: Sequence[Entry],
    latents: Mapping[str, Latent],
    group: Sequence[str],
    force: bool = False,
) -> Gaussians | None:
    """The layout of a group of Gaussian sites, or None when they are not one quadratic form."""
    pairs = _pairs(entries, group)
    if pairs is None:
        return None
    slots = _batch_slots(pairs, latents, group)
    layouts: dict[str, Layout] = {}
    start = 0
    for name in group:
        shape = latents[name].shape
        batch = tuple(slot[name] for slot in slots)
        vector = tuple(a for a in range(len(shape)) if a not in batch)
        layouts[name] = Layout(shape, batch, vector, start)
        start += layouts[name].size
    batch_shape = layouts[group[0]].batch_shape
    full = start > 1 or len(group) > 1
    copies = math.prod(batch_shape)
    affordable = start <= MAX_JOINT_DIMENSION and copies * start * start <= MAX_JOINT_NUMBERS
    if not affordable and not force:
        return None
    return Gaussians(layouts, batch_shape, full)


def _pairs(entries: Sequence[Entry], group: Sequence[str]) -> list[Pair] | None:
    """Every product of two Gaussian factors of the group; None when some term has more."""
    pairs: list[Pair] = []
    for entry in entries:
        factors = [f for f in entry.term.latents if f.atom.site in group]
        expanded = expand_powers(factors)
        if expanded is None or len(expanded) > 2:
            return None
        if len(expanded) == 2:
            pairs.append((expanded[0], expanded[1]))
    return pairs


def _batch_slots(
    pairs: Sequence[Pair], latents: Mapping[str, Latent], group: Sequence[str]
) -> list[dict[str, int]]:
    """Axes along which the group falls into independent copies: one axis per site and slot."""
    shapes = {name: latents[name].shape for name in group}
    lead = min(group, key=lambda name: len(shapes[name]))
    slots: list[dict[str, int]] = []
    used: dict[str, set[int]] = {name: set() for name in group}
    for axis, size in enumerate(shapes[lead]):
        options = [
            [axis] if name == lead else
            [a for a, n in enumerate(shapes[name]) if n == size and a not in used[name]]
            for name in group
        ]  # fmt: skip
        for choice in itertools.product(*options):
            slot = dict(zip(group, choice, strict=True))
            if all(
                index_key(i[slot[s]]) == index_key(j[slot[t]]) for (s, i), (t, j) in pairs
            ):
                slots.append(slot)
                for name, a in slot.items():
                    used[name].add(a)
                break
    return slots


# --------------------------------------------------------------------------------------------------
# Joint blocks with a precision


def _with_precision(
    entries: Sequence[Entry],
    latents: Mapping[str, Latent],
    uses: Mapping[str, list[tuple[Entry, list[Factor[Atom]]]]],
    group: Gaussians,
    excluded: set[str],
    partition: Sequence[Sequence[str]] | None,
) -> Block:
    """The group as a block, joined with a precision site when one scales all its terms."""
    mine = [e for e in entries if any(f.atom.site in group.layouts for f in e.term.latents)]
    for name, latent in latents.items():
        if name in excluded or latent.domain not in ("positive", "matrix"):
            continue
        if partition is not None and not any(
            name in part and set(group.layouts) <= set(part) for part in partition
        ):
            continue
        candidate = (
            _normal_gamma(mine, latent, uses[name], group)
            if latent.domain == "positive"
            else _normal_wishart(mine, latent, uses[name], group)
        )
        if candidate is not None and all(_readable(candidate, entry.term) for entry in mine):
            return candidate
    if group.full:
        return Block(0, "gaussian", group.layouts, group.batch_shape, {"dim": group.dimension})
    ((name, layout),) = group.layouts.items()
    flat = Layout(layout.shape, tuple(range(len(layout.shape))))
    return Block(0, "normal", {name: flat}, layout.shape, {})


def _readable(block: Block, term: Term) -> bool:
    factors = [f for f in term.latents if f.atom.site in block.sites]
    return block.read(factors, private_labels(term, factors)) is not None


def _normal_gamma(
    entries: Sequence[Entry],
    precision: Latent,
    uses: list[tuple[Entry, list[Factor[Atom]]]],
    group: Gaussians,
) -> Block | None:
    powers = _powers(uses)
    if len(powers) != 1:
        return None
    static: dict[str, object] = {"power": next(iter(powers)), "full": group.full}
    if not group.full:
        ((name, layout),) = group.layouts.items()
        batch = _matched_axes(entries, precision, name, layout.shape)
        if batch is None:
            return None
        vector = tuple(a for a in range(len(layout.shape)) if a not in batch)
        moved = Layout(layout.shape, batch, vector)
        static["event_shape"] = moved.vector_shape
        return Block(
            0, "normal_gamma", {name: moved}, precision.shape, static, scale=precision.name
        )
    if group.batch_shape != precision.shape:
        # Copies under one shared precision are one longer vector, while it is affordable.
        group = _flattened(group)
        if precision.shape or group.dimension > MAX_JOINT_DIMENSION:
            return None
    static["event_shape"] = (group.dimension,)
    return Block(
        0, "normal_gamma", group.layouts, group.batch_shape, static, scale=precision.name
    )


def _flattened(group: Gaussians) -> Gaussians:
    layouts: dict[str, Layout] = {}
    start = 0
    for name, layout in group.layouts.items():
        layouts[name] = Layout(layout.shape, (), tuple(range(len(layout.shape))), start)
        start += layouts[name].size
    return Gaussians(layouts, (), True)


def _matched_axes(
    entries: Sequence[Entry], precision: Latent, name: str, shape: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Axes of a Gaussian site that carry the precision's own index in every term."""
    rank = len(precision.shape)
    for axes in itertools.permutations(range(len(shape)), rank):
        if tuple(shape[a] for a in axes) != precision.shape:
            continue
        matched = True
        for entry in entries:
            scales = [f for f in entry.term.latents if f.atom.site == precision.name]
            gaussians = [f for f in entry.term.latents if f.atom.site == name]
            if len(scales) != 1 or not all(
                same_index(scales[0].index, [g.index[a] for a in axes]) for g in gaussians
            ):
                matched = False
                break
        if matched:
            return axes
    return None


def _normal_wishart(
    entries: Sequence[Entry],
    precision: Latent,
    uses: list[tuple[Entry, list[Factor[Atom]]]],
    group: Gaussians,
) -> Block | None:
    if len(group.layouts) != 1 or any(
        f.atom.function == "inverse" for _, factors in uses for f in factors
    ):
        return None
    ((name, layout),) = group.layouts.items()
    if layout.shape != precision.shape[:-1]:
        return None
    rank = len(layout.shape)
    moved = Layout(layout.shape, tuple(range(rank - 1)), (rank - 1,))
    return Block(
        0,
        "normal_wishart",
        {name: moved},
        moved.batch_shape,
        {"dim": layout.shape[-1]},
        scale=precision.name,
    )
