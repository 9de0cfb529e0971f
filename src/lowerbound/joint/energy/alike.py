"""Terms that differ only in the entries of a vector that they read, as one term with an axis.

Sites that a loop in Python has made are entries of one Gaussian vector. Their terms are as many,
and a sweep would differentiate each: read at an array of places, they are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from lowerbound.joint.blocks.block import Block, Read
from lowerbound.joint.terms.indices import Array, Gather, Label, is_static

FEW = 20  # terms that are kept apart, each by the name of its site


@dataclass(frozen=True)
class Product:
    """coefficient * product of constants * product of statistics, before constants are stored."""

    site: str
    coefficient: float
    constants: tuple[tuple[Array, tuple[Label, ...]], ...]
    reads: tuple[Read, ...]

    @property
    def number(self) -> Array:
        """What multiplies the statistics, where that is one number."""
        found: Array = np.asarray(self.coefficient)
        for array, _ in self.constants:
            found = found * array
        return found

    @property
    def kind(self) -> object:
        """What terms that differ in places alone have in common; None where it has axes."""
        if any(labels for _, labels in self.constants):
            return None
        if any(r.index or r.shape or r.integral is not None for r in self.reads):
            return None
        if self.reads and not any(read.slices for read in self.reads):
            return None
        return tuple((r.block, r.statistic, len(r.slices), r.symmetric) for r in self.reads)


def in_one(products: Sequence[Product], blocks: Sequence[Block]) -> list[Product]:
    """The terms, with those that differ in places alone in one, by the name of the first."""
    groups: dict[object, list[Product]] = {}
    for number, product in enumerate(products):
        kind = product.kind
        groups.setdefault(number if kind is None else kind, []).append(product)
    sizes = {b.number: sum(layout.size for layout in b.layouts.values()) for b in blocks}
    found: list[Product] = []
    for group in groups.values():
        found += group if len(group) <= FEW else [_one(group, sizes)]
    return found


def _one(group: Sequence[Product], sizes: dict[int, int]) -> Product:
    label = Label(len(group))
    reads = []
    for number, read in enumerate(group[0].reads):
        places = np.array([[start for start, _ in p.reads[number].slices] for p in group])
        if np.all(places == places[:1]):
            reads.append(read)
            continue
        index = tuple(Gather(column, (label,)) for column in places.T)
        shape = (sizes[read.block],) * len(read.slices)
        reads.append(replace(read, slices=(), shape=shape, index=index))
    numbers = [product.number for product in group]
    static = all(map(is_static, numbers))
    array = np.stack(numbers) if static else jnp.stack([jnp.asarray(n) for n in numbers])
    return Product(group[0].site, 1.0, ((array, (label,)),), tuple(reads))
