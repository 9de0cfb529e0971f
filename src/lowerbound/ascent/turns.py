"""Whose turn it is: elements of a block that meet in a term are updated one after the other.

Elements that do not meet are updated at once, and coordinate ascent stays what it is: in a chain of
second order every third one, in all sequences. What meets is read from the places of the terms.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from lowerbound.joint import Summand
from lowerbound.joint.blocks.block import Read
from lowerbound.joint.terms.indices import Label, align, as_array, is_static, labels_of, unique

MOST_MEETINGS = 20_000_000  # that are looked at; of more, every element has a turn of its own


def turns(summands: Sequence[Summand], number: int, shape: tuple[int, ...]) -> np.ndarray:
    """The turn of every element of a block: no two elements of one turn meet in a summand.

    shape: that of the copies of its factor, which are the elements.
    """
    count = math.prod(shape)
    pairs = _meetings(summands, number, shape)
    if pairs is None:
        return np.arange(count)
    met = [[] for _ in range(count)]  # type: list[list[int]]
    for low, high in pairs.tolist():
        met[high].append(low)
    turn = np.zeros(count, int)
    for element, earlier in enumerate(met):
        taken = {int(turn[other]) for other in earlier}
        turn[element] = next(free for free in itertools.count() if free not in taken)
    return turn


def _meetings(
    summands: Sequence[Summand], number: int, shape: tuple[int, ...]
) -> np.ndarray | None:
    """The pairs of elements that meet, the lower first; None where they are not known, or many."""
    found = [np.zeros((0, 2), int)]
    for summand in summands:
        own = [read for read in summand.reads if number in read.blocks]
        if any(read.integral is not None or read.slices for read in own):
            return None
        for one, other in itertools.combinations(own, 2):
            pairs = _pairs(one, other, shape)
            if pairs is None:
                return None
            found.append(pairs)
    return np.unique(np.concatenate(found), axis=0)


def _pairs(one: Read, other: Read, shape: tuple[int, ...]) -> np.ndarray | None:
    """The elements that two factors of one product read at once."""
    rank = len(shape)
    indices = [index for read in (one, other) for index in read.index[:rank]]
    labels: tuple[Label, ...] = tuple(unique(map(labels_of, indices)))
    arrays = [as_array(index) for index in indices]
    if not all(is_static(array) for array, _ in arrays):
        return None
    if math.prod(label.size for label in labels) > MOST_MEETINGS:
        return None
    places = np.broadcast_arrays(*(align(array, own, labels) for array, own in arrays))
    flat = [np.ravel(place) for place in places]
    first = np.ravel_multi_index(flat[:rank], shape)
    second = np.ravel_multi_index(flat[rank:], shape)
    low, high = np.minimum(first, second), np.maximum(first, second)
    return np.unique(np.stack([low, high], 1)[low != high], axis=0)
