"""energy(statistics) = E_q[log p(x, z)], exact and compiled; all later stages see only this.

Constants are contracted once, outside the loop: labels that occur in constants alone vanish (X'X,
X'y, counts). What is left of each term is an einsum of a few arrays and statistics.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as JaxArray

from lowerbound.joint.blocks.block import Block, Entry, Read, private_labels
from lowerbound.joint.energy.alike import Product, in_one
from lowerbound.joint.terms import indices
from lowerbound.joint.terms.expression import array_key
from lowerbound.joint.terms.indices import Array, Gather, Index, Label
from lowerbound.joint.terms.labelled import Term
from lowerbound.joint.terms.numbered import Numbered
from lowerbound.joint.terms.value import contract

SMALL_PRODUCT = 100_000  # numbers in a product of constants that is worth forming in advance

Statistics = tuple[dict[str, JaxArray], ...]  # one dictionary per block, by block number
Stored = tuple[tuple[int, tuple[Label, ...]], ...]  # slots of the compressed data, with labels


@dataclass(frozen=True, eq=False)
class Slot:
    """A constant array of the compressed data, by number."""

    number: int


@dataclass(frozen=True)
class Summand:
    """coefficient * product of stored constants * product of statistics, summed to a scalar."""

    site: str
    coefficient: float
    constants: Stored
    reads: tuple[Read, ...]

    @property
    def blocks(self) -> frozenset[int]:
        """The numbers of the blocks that the summand depends on."""
        return frozenset(number for read in self.reads for number in read.blocks)

    @property
    def curved(self) -> frozenset[int]:
        """The blocks whose mean parameters it is not affine in."""
        integrals = [read.blocks for read in self.reads if read.integral is not None]
        return frozenset().union(*integrals)

    @property
    def axes(self) -> tuple[tuple[Label, ...], ...]:
        """The labels of every array that is multiplied, the constants' first."""
        read = (tuple(indices.labels_along(read.index)) for read in self.reads)
        return (*(labels for _, labels in self.constants), *read)

    @property
    def gathers(self) -> bool:
        """Whether a statistic is read at positions that data say, as an effect by its group."""
        return any(isinstance(index, Gather) for read in self.reads for index in read.index)

    def renumbered(self, numbers: Mapping[int, int]) -> Summand:
        """The summand with its blocks numbered otherwise."""
        reads = tuple(replace(read, block=numbers[read.block]) for read in self.reads)
        return replace(self, reads=reads)


class Store:
    """Collects the constant arrays that a derivation leaves, each once."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self.known: dict[object, int] = {}

    def put(self, array: Array) -> int:
        """The number of the array, which is stored when it is new."""
        key = array_key(array)
        if key not in self.known:
            self.known[key] = len(self.arrays)
            self.arrays.append(array)
        return self.known[key]


class UnreadableError(Exception):
    """A term whose factors of one block are no statistic of it."""

    def __init__(self, entry: Entry, block: Block) -> None:
        self.entry, self.block = entry, block


def compile_terms(
    entries: Sequence[Entry],
    blocks: Sequence[Block],
    store: Store,
    integrals: Mapping[Any, Any] = MappingProxyType({}),
    single: Collection[str] = (),
) -> tuple[Summand, ...]:
    """Read every term through the blocks' statistics, merge like terms, store the constants.

    `integrals` are the projections of Gaussian blocks that functions act on, by definition. Like
    terms of `single` sites, one observation each, are merged as those of the rows of a plate are:
    a loop over rows in Python then costs no more. They go by the name of the first.
    """
    owner = {site: block for block in blocks for site in block.sites}
    groups: dict[object, list[tuple[Entry, list[Read]]]] = {}
    for entry in entries:
        if any(f.atom.is_base for f in entry.term.latents):
            continue  # the base measure h(z), which the entropy leaves out as well
        reads = reads_of(entry, owner, integrals)
        key, renamed = _canonical(entry, reads, "" if entry.site in single else entry.site)
        groups.setdefault(key, []).append(renamed)
    products = [product for group in groups.values() for product in _merged(group)]
    return tuple(_stored(product, store) for product in in_one(products, blocks))


def reads_of(
    entry: Entry, owner: Mapping[str, Block], integrals: Mapping[Any, Any] = MappingProxyType({})
) -> list[Read]:
    """The statistics that a term reads; raises UnreadableError where a block has none for it."""
    by_block: dict[int, list[Any]] = {}
    reads: list[Read] = []
    blocks = {block.number: block for block in owner.values()}
    for factor in entry.term.latents:
        if factor.atom.projection is None:
            by_block.setdefault(owner[factor.atom.site].number, []).append(factor)
            continue
        read = integrals[factor.atom.projection].read(factor)
        if any(read.blocks & other.blocks for other in reads):
            raise UnreadableError(entry, blocks[read.block])
        reads.append(read)
    for number, factors in by_block.items():
        found = blocks[number].read(factors, private_labels(entry.term, factors))
        if found is None or any(number in read.blocks for read in reads):
            raise UnreadableError(entry, blocks[number])
        reads += found
    return sorted(reads, key=lambda read: (read.block, read.statistic, read.slices))


def _canonical(
    entry: Entry, reads: list[Read], site: str
) -> tuple[object, tuple[Entry, list[Read]]]:
    """A key that like terms of a site share, whatever their labels are called."""
    name = Numbered(array_key)
    key = (
        site,
        tuple(
            (r.block, r.statistic, r.slices, r.shape, tuple(name(i) for i in r.index))
            for r in reads
        ),
    )
    return key, (entry, reads)


def _stored(product: Product, store: Store) -> Summand:
    """A term with its constants in the store."""
    constants = tuple((store.put(array), labels) for array, labels in product.constants)
    reads = tuple(stored_read(read, store) for read in product.reads)
    return Summand(product.site, product.coefficient, constants, reads)


def _merged(group: list[tuple[Entry, list[Read]]]) -> list[Product]:
    (first, reads), *others = group
    labels = indices.labels_read(reads)
    parts = [compressed(first.term, set(labels))]
    for entry, own in others:
        theirs = indices.labels_read(own)
        rename = dict(zip(theirs, labels, strict=True))
        left = compressed(entry.term, set(theirs))
        parts.append([(array, tuple(rename[label] for label in span)) for array, span in left])
    coefficients = [entry.term.coefficient for entry, _ in group]
    simple = [len(part) <= 1 for part in parts]
    spans = [set(part[0][1]) if part else set() for part in parts]
    widest = max(spans, key=len)
    products: list[Product] = []
    merge = [i for i in range(len(parts)) if simple[i] and spans[i] <= widest]
    if len(merge) == 1 or not simple[spans.index(widest)]:
        merge = []
    if merge:
        order = tuple(label for label in labels if label in widest)
        total: Array = np.zeros(())
        for i in merge:
            array, span = parts[i][0] if parts[i] else (np.ones(()), ())
            total = total + coefficients[i] * indices.align(array, span, order)
        known = not np.ndim(total) and indices.is_static(total)
        coefficient = float(total) if known else 1.0
        constants = () if known else ((total, order),)
        products.append(Product(first.site, coefficient, constants, tuple(reads)))
    for i in range(len(parts)):
        if i not in merge:
            products.append(Product(first.site, coefficients[i], tuple(parts[i]), tuple(reads)))
    return [product for product in products if product.coefficient != 0.0]


def stored_read(read: Read, store: Store) -> Read:
    """The read with traced index arrays replaced by their slots."""
    index = tuple(
        Gather(Slot(store.put(i.array)), i.labels)  # type: ignore[arg-type]
        if isinstance(i, Gather) and not indices.is_static(i.array)
        else i
        for i in read.index
    )
    return replace(read, index=index)


def compressed(term: Term, kept: set[Label]) -> list[tuple[Array, tuple[Label, ...]]]:
    """Constants with the labels that only they carry summed out, and no outer product formed."""
    parts = [([factor], set(indices.labels_read([factor]))) for factor in term.constants]
    joined = True
    while joined:  # factors that share a label to be summed go into one contraction
        joined = False
        for i in range(len(parts)):
            for j in range(i + 1, len(parts)):
                if (parts[i][1] & parts[j][1]) - kept:
                    parts[i] = (parts[i][0] + parts[j][0], parts[i][1] | parts[j][1])
                    del parts[j]
                    joined = True
                    break
            if joined:
                break
    arrays: list[tuple[Array, tuple[Label, ...]]] = []
    for factors, span in parts:
        output = tuple(l for l in indices.labels_read(factors) if l in kept and l in span)
        arrays.append((contract(factors, output), output))
    arrays.sort(key=lambda part: -len(part[1]))
    nested: list[tuple[Array, tuple[Label, ...]]] = []
    for array, labels in arrays:  # a factor on fewer labels multiplies one on more
        for number, (other, wide) in enumerate(nested):
            union = (*wide, *(label for label in labels if label not in wide))
            small = math.prod(label.size for label in union) <= SMALL_PRODUCT
            if len(union) == len(wide) or (small and set(labels) & set(wide)):
                wider = indices.align(other, wide, union) * indices.align(array, labels, union)
                nested[number] = (wider, union)
                break
        else:
            nested.append((array, labels))
    return nested


# --------------------------------------------------------------------------------------------------
# Evaluation


def evaluate(
    summand: Summand,
    arrays: Sequence[JaxArray],
    statistics: Statistics,
    turned: Turned | None = None,
    output: tuple[Label, ...] = (),
) -> JaxArray:
    """The value of one summand: an einsum to a scalar, or onto those labels of `output` it has."""
    flat: list[Any] = []
    number: dict[Label, int] = {}

    def place(array: Any, labels: Sequence[Label]) -> None:
        for label in labels:
            number.setdefault(label, len(number))
        flat.extend([array, [number[label] for label in labels]])

    for slot, labels in summand.constants:
        place(arrays[slot], labels)
    for read in summand.reads:
        if turned is not None and turned.helps(read, summand):
            place(turned.view(read, statistics), read.index[::-1])  # type: ignore[arg-type]
            continue
        array = (
            read.view(statistics[read.block])
            if read.integral is None
            else read.integral.expected(read.statistic, arrays, statistics)
        )
        if all(isinstance(i, Label) for i in read.index):
            place(array, read.index)  # type: ignore[arg-type]
            continue
        place(*indices.take(array, filled(read, arrays)))
    if not flat:
        return jnp.asarray(summand.coefficient)
    onto = [number[label] for label in output if label in number]
    return summand.coefficient * jnp.einsum(*flat, onto, precision="highest")


def filled(read: Read, arrays: Sequence[JaxArray]) -> tuple[Index, ...]:
    """The index of a read, with slots replaced by the arrays they name."""
    return tuple(
        Gather(arrays[i.array.number], i.labels)
        if isinstance(i, Gather) and isinstance(i.array, Slot)
        else i
        for i in read.index
    )


class Turned:
    """Large matrices of statistics, transposed once for all the summands that contract their rows.

    A sum over the leading axis of both factors of a product is twice as slow on a CPU as the
    product of a transposed copy. The block that is being differentiated is left as it is.
    """

    SMALLEST: Final = 65_536

    def __init__(self, block: int) -> None:
        self.block = block
        self.views: dict[tuple[object, ...], JaxArray] = {}

    def helps(self, read: Read, summand: Summand) -> bool:
        """Whether the statistic's rows are summed against the rows of a constant matrix."""
        return (
            read.integral is None
            and read.block != self.block
            and len(read.index) == 2
            and math.prod(read.shape) >= self.SMALLEST
            and all(isinstance(i, Label) for i in read.index)
            and any(len(c) > 1 and c[0] is read.index[0] for _, c in summand.constants)
        )

    def view(self, read: Read, statistics: Statistics) -> JaxArray:
        """The transposed statistic."""
        key = (read.block, read.statistic, read.slices, read.shape)
        if key not in self.views:
            array = read.view(statistics[read.block])
            turned: JaxArray = jax.lax.optimization_barrier(array.T)  # type: ignore[no-untyped-call]
            self.views[key] = turned
        return self.views[key]


def energy(
    summands: Sequence[Summand],
    arrays: Sequence[JaxArray],
    statistics: Statistics,
    turned: Turned | None = None,
) -> JaxArray:
    """E_q[log p] of the given summands (eq:elbo, first term)."""
    parts = (evaluate(s, arrays, statistics, turned) for s in summands)
    return sum(parts, start=jnp.zeros(()))


def gradient(
    summands: Sequence[Summand],
    arrays: Sequence[JaxArray],
    statistics: Statistics,
    block: int,
) -> dict[str, JaxArray]:
    """The derivative of the energy in one block: its optimal natural parameters (eq:optimal-qj)."""
    mine = [s for s in summands if block in s.blocks]
    return energies_and_gradient([mine], arrays, statistics, block)[1]


def energies_and_gradient(
    parts: Sequence[Sequence[Summand]],
    arrays: Sequence[JaxArray],
    statistics: Statistics,
    block: int,
) -> tuple[list[JaxArray], dict[str, JaxArray]]:
    """The energy of each part of the summands, and the derivative of their sum in one block."""

    def partial(own: dict[str, JaxArray]) -> tuple[JaxArray, list[JaxArray]]:
        replaced = (*statistics[:block], own, *statistics[block + 1 :])
        turned = Turned(block)
        values = [energy(part, arrays, replaced, turned) for part in parts]
        return sum(values, start=jnp.zeros(())), values

    raw, values = jax.grad(partial, has_aux=True)(statistics[block])
    # Of the gradient in a symmetric matrix only the symmetric part matters.
    found = {place for part in parts for s in part for read in s.reads for place in read.matrices}
    matrices = {name for number, name in found if number == block}
    return values, {n: _symmetric(a) if n in matrices else a for n, a in raw.items()}


def _symmetric(array: JaxArray) -> JaxArray:
    return 0.5 * (array + jnp.swapaxes(array, -1, -2))
