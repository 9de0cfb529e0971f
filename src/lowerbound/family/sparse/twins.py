"""Entries that belong together: those that meet each other and the same others, as slopes do.

They make the diagonal blocks of a preconditioner. Entries that very many meet are set apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lowerbound.family.numerics.orders import order_of

__all__ = ["Scheme", "Twins", "met_by_many", "together", "twins_of"]

LARGEST_BLOCK = 32
_MOST, _SMALL_SITE = 256, 64  # entries set apart, and sites all of which are
_MEETS, _USUALLY = 0.05, 8.0  # what others meet: of all, and times what is usual


@dataclass(frozen=True, eq=False)
class Twins:
    """Blocks of one size: members (b, n), and where W has them together.

    `places` (b, c) are numbers of entries of W in one row and the columns of one block, `which`.
    `own` (b, b, n) are numbers of the entries of P_RR, or the one after the last.
    """

    members: np.ndarray
    places: np.ndarray
    which: np.ndarray
    own: np.ndarray


class Scheme(NamedTuple):
    """What is solved exactly, what is in blocks, and what probes: arrays, of the host or not."""

    coarse: Any  # (q, k)
    probes: Any  # (q, p)
    members: tuple[Any, ...]  # (b, n): the blocks of each size
    own: tuple[Any, ...]  # (b, b, n): their entries of P_RR, or the one after the last
    place: Any  # (q,): where each entry is among the members

    @classmethod
    def of(cls, coarse: np.ndarray, probes: np.ndarray, twins: Sequence[Twins]) -> Scheme:
        """With blocks of several sizes."""
        members = tuple(one.members for one in twins)
        place = np.argsort(np.concatenate([one.ravel() for one in members]))
        return cls(coarse, probes, members, tuple(one.own for one in twins), place)


def twins_of(
    blocks: np.ndarray,
    own: tuple[np.ndarray, np.ndarray],
    columns: np.ndarray,
    real: np.ndarray,
) -> list[Twins]:
    """The blocks, numbered for every entry, size by size.

    own: rows and columns of the entries of P_RR. columns: those of the entries of W, row by row, of
    which some are not real.
    """
    count, size = len(own[0]), len(blocks)
    entries = np.flatnonzero(real).astype(np.int32)
    entries = entries[order_of(columns[entries])]
    starts = np.searchsorted(columns[entries], np.arange(size + 1))
    sizes = np.bincount(blocks)
    order, begin = order_of(blocks), np.cumsum(sizes) - sizes
    key = own[0].astype(np.int64) * size + own[1]
    sorter = order_of(key)
    found = []
    for b in np.unique(sizes):
        chosen = np.flatnonzero(sizes == b)
        members = order[begin[chosen] + np.arange(b)[:, None]]
        counts = np.diff(starts)[members[0]]
        which = np.repeat(np.arange(len(chosen)), counts)
        within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        places = np.stack([entries[starts[line[which]] + within] for line in members])
        by_row = order_of(places[0])  # so that memory is read in order
        low, high = np.minimum(members[:, None], members), np.maximum(members[:, None], members)
        wanted = high.astype(np.int64) * size + low
        at = sorter[np.minimum(np.searchsorted(key, wanted, sorter=sorter), count - 1)]
        pairs = np.where(key[at] == wanted, at, count)
        found.append(Twins(members, places[:, by_row], which[by_row].astype(np.int32), pairs))
    return found


def met_by_many(degree: np.ndarray, groups: np.ndarray, several: int) -> np.ndarray:
    """Entries that are solved exactly: of small sites, and those that meet a good part of all."""
    counts = np.bincount(groups)
    many = max(_MEETS * several, _USUALLY * float(np.median(degree)))
    chosen = np.flatnonzero((counts[groups] <= _SMALL_SITE) | (degree > many))
    return np.asarray(np.sort(chosen[np.argsort(-degree[chosen], kind="stable")[:_MOST]]))


def together(
    first: np.ndarray, second: np.ndarray, met: np.ndarray, bulk: np.ndarray
) -> np.ndarray:
    """The block of each entry: entries that meet each other and the same others are in one.

    Neighbourhoods are compared by the sums of random numbers of what is in them.
    """
    size = len(bulk)
    rng = np.random.default_rng(0)
    numbers = rng.integers(1, 2**31, size + int(met[0].max(initial=-1)) + 1).astype(float)
    each = np.arange(size)
    to = np.concatenate([each, first, second, met[1]])
    source = np.concatenate([each, second, first, size + met[0]])
    code = np.bincount(to, numbers[source], minlength=size)
    code[~bulk] = -1.0 - np.flatnonzero(~bulk)
    _, label, counts = np.unique(code, return_inverse=True, return_counts=True)
    large = counts[label] > LARGEST_BLOCK
    label[large] = len(counts) + np.flatnonzero(large)
    return np.asarray(np.unique(label, return_inverse=True)[1])
