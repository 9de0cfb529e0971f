"""Gaussian blocks: sites that meet in one quadratic form, and the precision that scales it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from lowerbound.errors import BlockError
from lowerbound.joint.blocks.block import (
    Block,
    Entry,
    Gaussians,
    Layout,
    Read,
    expand_powers,
    private_labels,
    same_index,
)
from lowerbound.joint.blocks.kind import FAMILIES, Kind, Scale, Uses
from lowerbound.joint.latents import Latent
from lowerbound.joint.terms.indices import Index, index_key
from lowerbound.joint.terms.labelled import Atom, Factor, Term

# A Gaussian block costs about batch * dim^3 per sweep and batch * dim^2 numbers of memory.
MAX_JOINT_DIMENSION = 512
MAX_JOINT_NUMBERS = 20_000_000


# --------------------------------------------------------------------------------------------------
# Gaussian groups


Entries = list[tuple[str, tuple[Index, ...]]]  # of Gaussian sites, each with its index
Found = tuple[list[Factor[Atom]], Entries]  # the factors of the scale, and those of the entries
Pair = tuple[tuple[str, tuple[Index, ...]], tuple[str, tuple[Index, ...]]]


def gaussian_groups(
    entries: Sequence[Entry],
    latents: Mapping[str, Latent],
    names: Sequence[str],
    partition: Sequence[Sequence[str]] | None,
    apart: set[str],
) -> list[Gaussians]:
    """Gaussian sites that meet in one term together, while the dimension is affordable.

    A `partition` decides instead, whatever it costs; sites `apart` never join the others.
    """
    own = _entries_of(entries, names)
    if partition is not None:
        asked = [[n for n in group if n in names] for group in partition]
        named = {n for group in asked for n in group}
        groups = [group for group in asked if group] + [[n] for n in names if n not in named]
        return [_required(own, latents, group) for group in groups]
    current = {name: [name] for name in names}
    place = {name: number for number, name in enumerate(names)}
    for first, second in _meetings(entries, place):
        one, two = current[first], current[second]
        if one is two or (first in apart) != (second in apart):
            continue
        union = sorted((*one, *two), key=place.__getitem__)
        # Each is one quadratic form: what is new are the terms of both.
        smaller = min(one, two, key=len)
        if quadratic_pairs(_touching(own, smaller), union) is None:
            continue
        if _grouped(own, latents, union) is not None:
            for name in union:
                current[name] = union
    distinct = {id(group): group for group in current.values()}
    return [_required(own, latents, group) for group in distinct.values()]


def _entries_of(entries: Sequence[Entry], names: Sequence[str]) -> dict[str, list[Entry]]:
    """The terms of every site, in order."""
    found: dict[str, list[Entry]] = {name: [] for name in names}
    for entry in entries:
        for site in dict.fromkeys(f.atom.site for f in entry.term.latents):
            if site in found:
                found[site].append(entry)
    return found


def _touching(own: Mapping[str, Sequence[Entry]], group: Sequence[str]) -> list[Entry]:
    """The terms of some sites, each once."""
    return list({id(entry): entry for name in group for entry in own[name]}.values())


def _required(
    own: Mapping[str, Sequence[Entry]], latents: Mapping[str, Latent], group: Sequence[str]
) -> Gaussians:
    if quadratic_pairs(_touching(own, group), group) is None:
        reason = "log p is not quadratic in them together"
        raise BlockError.together(group, reason)
    return _laid_out(own, latents, group)


def _meetings(entries: Sequence[Entry], place: Mapping[str, int]) -> list[tuple[str, str]]:
    found: dict[tuple[str, str], None] = {}
    for entry in entries:
        own = {f.atom.site for f in entry.term.latents if f.atom.site in place}
        sites = sorted(own, key=place.__getitem__)
        found.update(dict.fromkeys(itertools.combinations(sites, 2)))
    return list(found)


def _grouped(
    own: Mapping[str, Sequence[Entry]], latents: Mapping[str, Latent], group: Sequence[str]
) -> Gaussians | None:
    """The layout of Gaussian sites of one quadratic form; None where that is not affordable."""
    found = _laid_out(own, latents, group)
    size, copies = found.dimension, math.prod(found.batch_shape)
    affordable = size <= MAX_JOINT_DIMENSION and copies * size * size <= MAX_JOINT_NUMBERS
    return found if affordable else None


def _laid_out(
    own: Mapping[str, Sequence[Entry]], latents: Mapping[str, Latent], group: Sequence[str]
) -> Gaussians:
    """The layout of Gaussian sites of one quadratic form."""
    slots: list[dict[str, int]] = []
    if all(latents[name].shape for name in group):  # else there are no copies
        pairs = quadratic_pairs(_touching(own, group), group)
        slots = _batch_slots(pairs or [], latents, group)
    layouts: dict[str, Layout] = {}
    start = 0
    for name in group:
        shape = latents[name].shape
        batch = tuple(slot[name] for slot in slots)
        vector = tuple(a for a in range(len(shape)) if a not in batch)
        layouts[name] = Layout(shape, batch, vector, start)
        start += layouts[name].size
    full = start > 1 or len(group) > 1
    return Gaussians(layouts, layouts[group[0]].batch_shape, full)


def quadratic_pairs(entries: Sequence[Entry], group: Sequence[str]) -> list[Pair] | None:
    """Every product of two Gaussian factors of the group; None when some term has more."""
    pairs: list[Pair] = []
    own = frozenset(group)
    for entry in entries:
        factors = [f for f in entry.term.latents if f.atom.site in own]
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
            if all(index_key(i[slot[s]]) == index_key(j[slot[t]]) for (s, i), (t, j) in pairs):
                slots.append(slot)
                for name, a in slot.items():
                    used[name].add(a)
                break
    return slots


# --------------------------------------------------------------------------------------------------
# Joint blocks with a precision


def with_precision(
    entries: Sequence[Entry],
    scales: Mapping[str, tuple[Latent, type[Kind], Uses]],
    group: Gaussians,
    partition: Sequence[Sequence[str]] | None,
) -> Block:
    """The group as a block, joined with the first of the `scales` that scales all its terms."""
    mine = [e for e in entries if any(f.atom.site in group.layouts for f in e.term.latents)]
    for name, (latent, family, uses) in scales.items():
        if partition is not None and not any(
            name in part and set(group.layouts) <= set(part) for part in partition
        ):
            continue
        for candidate in _candidates(group, Scale(latent, family, uses, mine)):
            if all(_readable(candidate, entry.term) for entry in mine):
                return candidate
    return _candidates(group, None)[0]


def _candidates(group: Gaussians, scale: Scale | None) -> list[Block]:
    found = (family.of_gaussians(group, scale) for family in FAMILIES.values())
    return [block for block in found if block is not None]


def _readable(block: Block, term: Term) -> bool:
    factors = [f for f in term.latents if f.atom.site in block.sites]
    return block.read(factors, private_labels(term, factors)) is not None


def flattened(group: Gaussians) -> Gaussians | None:
    """Copies as one longer vector, while it is affordable."""
    layouts: dict[str, Layout] = {}
    start = 0
    for name, layout in group.layouts.items():
        layouts[name] = Layout(layout.shape, (), tuple(range(len(layout.shape))), start)
        start += layouts[name].size
    return Gaussians(layouts, (), True) if start <= MAX_JOINT_DIMENSION else None


def matched_axes(scale: Scale, name: str, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Axes of a Gaussian site that carry the precision's own index in every term."""
    precision = scale.latent
    rank = len(precision.shape)
    for axes in itertools.permutations(range(len(shape)), rank):
        if tuple(shape[a] for a in axes) != precision.shape:
            continue
        matched = True
        for entry in scale.entries:
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


def read_vector(
    block: Block, names: tuple[str, str], factors: Sequence[tuple[str, tuple[Index, ...]]]
) -> Read | None:
    """One or two entries of a raveled vector, from the statistics of these names."""
    slices, shape, batches = [], list(block.batch_shape), []
    index: list[Index] = []
    for site, where in factors:
        layout = block.layouts[site]
        batch, vector = layout.split(where)
        batches.append(batch)
        slices.append((layout.start, layout.size))
        shape += layout.vector_shape
        index += vector
    if not same_index(*batches):
        return None
    name = names[len(factors) - 1]
    return Read(block.number, name, tuple(slices), tuple(shape), (*batches[0], *index))


def factors_of(block: Block, factors: Sequence[Factor[Atom]]) -> Found | None:
    """The factors of the precision, and those of at most two Gaussian sites, x^2 as two."""
    scales = [f for f in factors if f.atom.site == block.scale]
    gaussians = expand_powers([f for f in factors if f.atom.site != block.scale])
    if gaussians is None or len(gaussians) > 2 or len(scales) > 1:
        return None
    return scales, gaussians
