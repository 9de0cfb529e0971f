"""Discrete elements that follow each other: the paths that pairs of indicators make.

A term with indicators of z_t and z_{t+1} says that both are neighbours. Where every element of an
axis of a site, or every one of several sites, meets its neighbours alone, they are one path, whose
factor is a chain instead of a product.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lowerbound.joint.blocks.block import Entry, Layout, same_index
from lowerbound.joint.blocks.kind import Path
from lowerbound.joint.latents import Latent
from lowerbound.joint.terms.domain import DISCRETE
from lowerbound.joint.terms.indices import (
    Gather,
    Index,
    Label,
    align,
    as_array,
    gathered,
    index_key,
    is_static,
    labels_along,
    take,
)
from lowerbound.joint.terms.labelled import Atom, Constant, Factor, Term, substitute

FEWEST = 3  # sites of a path: two that meet are as often no path at all

Pair = tuple[Factor[Atom], Factor[Atom]]


def neighbouring(one: Index, two: Index) -> tuple[np.ndarray, tuple[Label, ...], bool] | None:
    """The earlier positions of pairs that are all one step apart, and whether `one` has them."""
    labels = tuple(labels_along((one, two)))
    arrays = [as_array(index) for index in (one, two)]
    if not all(is_static(array) for array, _ in arrays):
        return None
    shape = tuple(label.size for label in labels)
    first, second = (np.broadcast_to(align(a, ls, labels), shape) for a, ls in arrays)
    for early, late, forward in ((first, second, True), (second, first, False)):
        if (late - early == 1).all():
            return np.asarray(early), labels, forward
    return None


# --------------------------------------------------------------------------------------------------
# Terms that are nothing at some positions


def tightened(
    entries: Sequence[Entry], latents: Mapping[str, Latent], coupled: Collection[str]
) -> list[Entry]:
    """Terms of coupled sites without the positions where a constant that is known is zero.

    The first step of a loop has no step before it: there its term of pairs is masked.
    """
    found: list[Entry] = []
    for entry in entries:
        states = [f.atom.site for f in entry.term.latents if f.atom.function == "indicator"]
        if not set(states) & set(coupled):
            found.append(entry)
            continue
        term = _tightened(entry.term)
        if term is not None:
            found.append(Entry(entry.site, _plain(term, latents)))
    return found


def _tightened(term: Term) -> Term | None:
    for label in term.labels():
        kept = np.ones(label.size, bool)
        for factor in term.constants:
            array, index = factor.atom.array, factor.index
            if not is_static(array) or not all(isinstance(i, Label) for i in index):
                continue
            if sum(i is label for i in index) == 1:
                others = tuple(axis for axis, i in enumerate(index) if i is not label)
                kept &= (array != 0).any(axis=others)
        if not kept.any():
            return None
        if not kept.all():
            fewer = Label(int(kept.sum()))
            term = substitute(term, {label: Gather(np.flatnonzero(kept), (fewer,))})
    return term


def _plain(term: Term, latents: Mapping[str, Latent]) -> Term:
    """Index expressions by the labels along which they vary, and no constants of ones."""
    constants = []
    for factor in term.constants:
        array, labels = factor.atom.array, tuple(labels_along(factor.index))
        if is_static(array) and all(is_static(as_array(i)[0]) for i in factor.index):
            read, labels = take(array, factor.index)
            if (np.asarray(read) == 1.0).all():
                continue
            factor = Factor(Constant(read), labels)
        constants.append(factor)
    plain: list[Factor[Atom]] = []
    for one in term.latents:
        if one.atom.projection is None:
            shape = latents[one.atom.site].shape[: len(one.own)]
            sizes = (*shape, *one.atom.sizes)
            index = tuple(map(_simple, one.index, sizes))
            plain.append(Factor(one.atom, index))
        else:
            plain.append(one)
    left = Term(term.coefficient, tuple(constants), tuple(plain))
    lost = set(term.labels()) - set(left.labels())
    return replace(left, coefficient=left.coefficient * math.prod(label.size for label in lost))


def _simple(index: Index, size: int) -> Index:
    """An index expression without the labels along which it does not vary."""
    if isinstance(index, Label) or not is_static(index.array):
        return index
    array, labels = np.asarray(index.array), list(index.labels)
    for axis in range(array.ndim - 1, -1, -1):
        if (array == array.take([0], axis=axis)).all():
            array = np.asarray(array.take(0, axis=axis))
            del labels[axis]
    return gathered(array, tuple(labels), size)


# --------------------------------------------------------------------------------------------------
# Paths


def _pairs(term: Term, coupled: Collection[str]) -> list[Pair]:
    """Every two indicators of a term: of one coupled site, or of two sites."""
    found = [f for f in term.latents if f.atom.function == "indicator"]
    return [
        (one, two)
        for number, one in enumerate(found)
        for two in found[number + 1 :]
        if one.atom.site != two.atom.site or one.atom.site in coupled
    ]


def paths_of(
    entries: Sequence[Entry],
    latents: Mapping[str, Latent],
    coupled: Collection[str],
    free: Collection[str],
) -> list[Path]:
    """The paths that discrete sites make, of those that are `free` to be in one."""
    pairs = [pair for entry in entries for pair in _pairs(entry.term, coupled)]
    own = [(one, two) for one, two in pairs if one.atom.site == two.atom.site]
    found = [_along(latents[name], own) for name in latents if name in free and name in coupled]
    inside = {name for path in found if path for name in path.layouts}
    between = [(one, two) for one, two in pairs if one.atom.site != two.atom.site]
    several = _through(between, latents, set(free) - set(coupled) - inside)
    return [path for path in (*found, *several) if path is not None]


def _along(latent: Latent, pairs: Sequence[Pair]) -> Path | None:
    """The path along one axis of a site, all of whose pairs are neighbours there."""
    axes: set[int] = set()
    for one, two in pairs:
        if one.atom.site != latent.name:
            continue
        apart = [
            axis
            for axis, (i, j) in enumerate(zip(one.own, two.own, strict=True))
            if index_key(i) != index_key(j)
        ]
        if len(apart) != 1 or neighbouring(one.index[apart[0]], two.index[apart[0]]) is None:
            return None
        axes.add(apart[0])
    if len(axes) != 1 or latent.domain is not DISCRETE:
        return None
    (axis,) = axes
    batch = tuple(a for a in range(len(latent.shape)) if a != axis)
    layout = Layout(latent.shape, batch, (axis,))
    return Path({latent.name: layout}, layout.batch_shape, latent.shape[axis], _values(latent))


def _through(
    pairs: Sequence[Pair], latents: Mapping[str, Latent], free: Collection[str]
) -> list[Path]:
    """The paths through sites of one shape, as a loop in Python writes them."""
    beside: dict[str, set[str]] = defaultdict(set)
    broken: set[str] = set()
    for one, two in pairs:
        names = (one.atom.site, two.atom.site)
        alike = len({(latents[n].shape, _values(latents[n])) for n in names}) == 1
        if not alike or not same_index(one.own, two.own) or not set(names) <= set(free):
            broken |= set(names)
        for name, other in (names, names[::-1]):
            beside[name].add(other)
    found, seen = [], set()
    for name in latents:
        if name in seen or len(beside.get(name, ())) != 1:
            continue
        order = [name]
        while following := [n for n in sorted(beside[order[-1]]) if n not in order]:
            order.append(following[0])
        seen |= set(order)
        ends = all(len(beside[n]) <= 2 for n in order) and len(beside[order[-1]]) == 1
        if not ends or len(order) < FEWEST or broken & set(order):
            continue
        shape, axes = latents[name].shape, tuple(range(len(latents[name].shape)))
        layouts = {n: Layout(shape, axes, (), start) for start, n in enumerate(order)}
        found.append(Path(layouts, shape, len(order), _values(latents[name])))
    return found


def _values(latent: Latent) -> int:
    return len(np.asarray(latent.support_values)) if latent.support_values is not None else 0
