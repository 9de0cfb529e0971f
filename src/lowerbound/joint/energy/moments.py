"""The moments of a linear combination, as few reads of the statistics of its Gaussian factor.

A predictor of many sites, b + u[i] + v[j] + ..., has a second moment of many products, each read
at entries of its own of one matrix E[xx']. Where every site brings one entry, the numbers of the
entries say it all: one gather reads every product, and its derivative is one scatter. The compiled
program no longer grows with the square of the number of sites.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array as JaxArray

from lowerbound.joint.blocks.block import Block, Read
from lowerbound.joint.energy.summands import Statistics, Summand, filled
from lowerbound.joint.terms.indices import (
    Array,
    Gather,
    Index,
    Label,
    align,
    as_array,
    is_static,
    labels_along,
)

MOST_PRODUCTS = 20_000_000  # of entries, which are read at once


@dataclass(frozen=True, eq=False)
class Moment:
    """coefficient * product of constants * product of statistics, for every element."""

    coefficient: float
    constants: Sequence[tuple[Array, tuple[Label, ...]]]
    reads: Sequence[Read]


@dataclass(frozen=True, eq=False)
class Moments:
    """The moments of E[a] and of E[a^2]; the squares of `entries`, part of E[a], belong to it."""

    first: Sequence[Moment]
    second: Sequence[Moment]
    entries: Sequence[Moment] = ()


def gathered(
    first: Sequence[Moment],
    second: Sequence[Moment],
    labels: tuple[Label, ...],
    blocks: Sequence[Block],
) -> Moments:
    """The moments of a predictor with these labels, single entries of one block joined."""
    elements = math.prod(label.size for label in labels)
    entries = []
    for block in blocks:
        own = [moment for moment in first if _reads_entry(moment, labels, block)]
        products = [moment for moment in second if _reads_entry(moment, labels, block)]
        count = len(own) * (len(own) + 1) // 2
        if len(own) < 2 or len(products) != count or count * elements > MOST_PRODUCTS:
            continue
        entries.append(_joined(own, labels, block))
        first = [moment for moment in first if moment not in own]
        second = [moment for moment in second if moment not in products]
    return Moments([*first, *entries], second, entries)


def _reads_entry(moment: Moment, labels: tuple[Label, ...], block: Block) -> bool:
    """Whether it reads one entry of a Gaussian vector's statistic and sums over nothing."""
    if not block.is_vector or len(moment.reads) != 1:
        return False
    (read,) = moment.reads
    used = set(labels_along(read.index))
    used |= {label for _, span in moment.constants for label in span}
    return read.block == block.number and used <= set(labels)


def _joined(group: Sequence[Moment], labels: tuple[Label, ...], block: Block) -> Moment:
    """The sum of the moments: one gather from all the vectors of the block, raveled."""
    shape = tuple(label.size for label in labels)
    entries = Label(len(group))
    over = (entries, *labels)
    places = _stacked([_place(moment.reads[0], labels, block) for moment in group], shape)
    weights = [_weight(moment, labels) for moment in group]
    size = math.prod(block.batch_shape) * int(block.static["dim"])
    read = Read(block.number, "x", (), (size,), (Gather(places, over),))
    if all(weight.size == 1 for weight in weights):
        return Moment(1.0, [(_stacked([w.reshape(()) for w in weights], ()), over[:1])], [read])
    return Moment(1.0, [(_stacked(weights, shape), over)], [read])


def _place(read: Read, labels: tuple[Label, ...], block: Block) -> Array:
    """Where the entry of every element lies in the vectors of the block, all raveled."""
    axes = list(zip(read.index, read.shape, strict=True))
    batch = len(block.batch_shape)
    ((start, _),) = read.slices
    copy, entry = _raveled(axes[:batch], labels), _raveled(axes[batch:], labels)
    return copy * int(block.static["dim"]) + start + entry


def _raveled(axes: Sequence[tuple[Index, int]], labels: tuple[Label, ...]) -> Array:
    """Positions along several axes as positions along their product."""
    place: Array = np.zeros((1,) * len(labels), np.int32)
    for index, size in axes:
        array, span = as_array(index)
        place = place * size + align(array, span, labels).clip(0, size - 1).astype(np.int32)
    return place


def _weight(moment: Moment, labels: tuple[Label, ...]) -> Array:
    weight: Array = np.full((1,) * len(labels), moment.coefficient)
    for array, span in moment.constants:
        weight = weight * align(array, span, labels)
    return weight


def _stacked(arrays: Sequence[Array], shape: tuple[int, ...]) -> Array:
    if all(is_static(array) for array in arrays):
        return np.stack([np.broadcast_to(array, shape) for array in arrays])
    return jnp.stack([jnp.broadcast_to(array, shape) for array in arrays])


def square(entries: Summand, arrays: Sequence[JaxArray], statistics: Statistics) -> JaxArray:
    """E of the square of a sum of entries, one number for every element of the predictor."""
    (read,), ((slot, _),) = entries.reads, entries.constants
    (gather,) = filled(read, arrays)
    assert isinstance(gather, Gather)
    second = statistics[read.block]["xx"]
    place, weight, dim = jnp.asarray(gather.array), arrays[slot], second.shape[-1]
    i, j = np.triu_indices(len(place))
    twice = jnp.asarray(np.where(i == j, 1.0, 2.0), weight.dtype)
    twice = twice.reshape(-1, *(1 for _ in weight.shape[1:]))
    product = twice * weight[i] * weight[j]
    product = product.reshape(product.shape + (1,) * (place.ndim - product.ndim))
    # Both entries are of one copy of the vector: the first says which.
    found = jnp.take(second.reshape(-1), place[i] * dim + place[j] % dim, mode="clip")
    return jnp.sum(product * found, axis=0)
