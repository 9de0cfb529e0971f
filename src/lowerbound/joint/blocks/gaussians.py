"""Gaussian blocks: sites that meet in one quadratic form, and the precision that scales it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowerbound.errors import BlockError
from lowerbound.joint.blocks.block import (
    Block,
    Entry,
    Layout,
    expand_powers,
    private_labels,
    same_index,
)
from lowerbound.joint.derive import Latent
from lowerbound.joint.terms.labelled import Atom, Factor, Index, Term, index_key

Uses = list[tuple[Entry, list[Factor[Atom]]]]  # a site's terms, and its factors in each

# A Gaussian block costs about batch * dim^3 per sweep and batch * dim^2 numbers of memory.
MAX_JOINT_DIMENSION = 512
MAX_JOINT_NUMBERS = 20_000_000


@dataclass(frozen=True)
class Gaussians:
    """A group of Gaussian sites under one quadratic form, with its layouts."""

    layouts: dict[str, Layout]
    batch_shape: tuple[int, ...]
    full: bool

    @property
    def dimension(self) -> int:
        """The length of the vector that the sites make together."""
        return sum(layout.size for layout in self.layouts.values())


# --------------------------------------------------------------------------------------------------
# Gaussian groups


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
        raise BlockError.together(group, reason)
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
    pairs = quadratic_pairs(entries, group)
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


def quadratic_pairs(entries: Sequence[Entry], group: Sequence[str]) -> list[Pair] | None:
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
    latents: Mapping[str, Latent],
    uses: Mapping[str, Uses],
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


def powers_of(uses: Uses, function: str = "power") -> set[float]:
    """The exponents with which a site enters."""
    return {f.atom.parameter for _, fs in uses for f in fs if f.atom.function == function}


def _normal_gamma(
    entries: Sequence[Entry],
    precision: Latent,
    uses: Uses,
    group: Gaussians,
) -> Block | None:
    powers = powers_of(uses)
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
    return Block(0, "normal_gamma", group.layouts, group.batch_shape, static, scale=precision.name)


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
    uses: Uses,
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
