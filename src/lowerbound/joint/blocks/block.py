"""Blocks: which sites share one variational factor, and the statistics each factor needs.

Structure decides (paper section 4.1, appendices A and B): two factors of one Gaussian site that
differ on an axis make that axis a vector axis; Gaussian sites that meet in one quadratic form are
joined while the dimension is affordable; a Gaussian all of whose terms carry the same precision
is joined with it. A block knows the layout of its sites; how a product of its atoms reads from its
statistics, and the numerics, are the family's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax import Array

from lowerbound.joint.terms.indices import Index, Label, index_key, labels_along
from lowerbound.joint.terms.labelled import Atom, Factor, Term

if TYPE_CHECKING:
    from lowerbound.joint.blocks.kind import Kind


@dataclass(frozen=True)
class Entry:
    """A term of log p, and the site whose density holds it."""

    site: str
    term: Term


@dataclass(frozen=True)
class Layout:
    """Where a site's axes go: batch axes in the block's order, the rest raveled into a vector."""

    shape: tuple[int, ...]
    batch: tuple[int, ...]
    vector: tuple[int, ...] = ()
    start: int = 0

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the independent copies."""
        return tuple(self.shape[a] for a in self.batch)

    @property
    def vector_shape(self) -> tuple[int, ...]:
        """The shape of what each copy ravels."""
        return tuple(self.shape[a] for a in self.vector)

    @property
    def size(self) -> int:
        """How many numbers of the site each copy holds."""
        return math.prod(self.vector_shape)

    def split(self, index: Sequence[Index]) -> tuple[tuple[Index, ...], tuple[Index, ...]]:
        """The index expressions of the batch axes, and those of the vector axes."""
        return tuple(index[a] for a in self.batch), tuple(index[a] for a in self.vector)


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


@dataclass(frozen=True)
class Read:
    """One statistic of a block, read at an index: `statistic[..., slices]` reshaped to `shape`."""

    block: int
    statistic: str
    slices: tuple[tuple[int, int], ...]  # trailing (start, size) windows; () reads it whole
    shape: tuple[int, ...]
    index: tuple[Index, ...]
    integral: Any = None  # integrals.Integral: the statistic is one of a projection of the blocks
    symmetric: bool = False  # a matrix, of whose derivative only the symmetric part matters

    @property
    def blocks(self) -> frozenset[int]:
        """The numbers of the blocks that it depends on."""
        return frozenset((self.block,)) if self.integral is None else self.integral.blocks

    @property
    def matrices(self) -> frozenset[tuple[int, str]]:
        """The symmetric statistics that it depends on, by block and name."""
        if self.integral is not None:
            found: frozenset[tuple[int, str]] = self.integral.matrices
            return found
        return frozenset(((self.block, self.statistic),) if self.symmetric else ())

    def view(self, statistics: Mapping[str, Array]) -> Array:
        """The statistic's window, an array of `shape`."""
        array = statistics[self.statistic]
        for offset, (start, size) in enumerate(reversed(self.slices)):
            axis = array.ndim - 1 - offset
            if (start, size) != (0, array.shape[axis]):
                array = _window(array, axis, start, size)
        return array.reshape(self.shape) if array.shape != self.shape else array


def _window(array: Array, axis: int, start: int, size: int) -> Array:
    return array[(slice(None),) * axis + (slice(start, start + size),)]


@dataclass(frozen=True)
class Block:
    """One factor q_j: its family, its sites with their layouts, and its shape.

    `static` are the family's fixed settings (power, dim, ...); `sequential` says that elements of
    the block meet in one term, so that they are updated one after the other; `extras` names
    constants of the support by slot of the compressed data, `presence` a mask of its elements.
    """

    number: int
    family: type[Kind]
    layouts: dict[str, Layout]
    batch_shape: tuple[int, ...]
    static: dict[str, Any] = field(default_factory=dict)
    scale: str | None = None  # the precision site of a joint block
    sequential: bool = False
    extras: dict[str, int] = field(default_factory=dict)
    presence: int | None = None  # slot of a mask: elements that the model leaves out
    atoms: tuple[Atom, ...] = ()  # of a free-form factor, while deriving

    @property
    def kind(self) -> str:
        """The name of its family in files."""
        return self.family.kind

    @property
    def sites(self) -> tuple[str, ...]:
        """The latent sites of the factor, its precision last."""
        return (*self.layouts, *((self.scale,) if self.scale else ()))

    @property
    def elements(self) -> int:
        """How many numbers its sites hold, but for the precision."""
        return sum(math.prod(layout.shape) for layout in self.layouts.values())

    def pack(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Site values as the family's canonical values."""
        packed: dict[str, Array] = {}
        if self.scale:
            packed["z"] = values[self.scale]
        pieces = []
        for name, layout in self.layouts.items():
            moved = jnp.transpose(values[name], (*layout.batch, *layout.vector))
            pieces.append(moved.reshape((*self.batch_shape, -1)) if self.is_vector else moved)
        packed[self.family.value] = jnp.concatenate(pieces, -1) if self.is_vector else pieces[0]
        return packed

    def constants(self, arrays: Sequence[Array]) -> dict[str, Array]:
        """The constant arrays inside the statistics of a free-form factor."""
        slots = self.extras if self.family.free_form else {}
        return {name: arrays[slot] for name, slot in slots.items()}

    def unpack(self, packed: Mapping[str, Array]) -> dict[str, Array]:
        """The family's canonical values (with leading draw axes) as site values."""
        values: dict[str, Array] = {}
        array = packed[self.family.value]
        if self.scale:
            values[self.scale] = packed["z"]
        for name, layout in self.layouts.items():
            lead = (
                array.ndim - len(self.batch_shape) - (1 if self.is_vector else len(layout.vector))
            )
            piece = array
            if self.is_vector:
                piece = _window(array, array.ndim - 1, layout.start, layout.size)
                piece = piece.reshape(
                    (*array.shape[:lead], *self.batch_shape, *layout.vector_shape)
                )
            order = (*layout.batch, *layout.vector)
            back = [order.index(a) for a in range(len(order))]
            values[name] = jnp.transpose(piece, (*range(lead), *(lead + b for b in back)))
        return values

    @property
    def is_vector(self) -> bool:
        """Whether its sites are raveled into one vector per copy."""
        return self.family.raveled(self.static)

    def read(self, factors: Sequence[Factor[Atom]], private: set[Label]) -> list[Read] | None:
        """The statistics whose product is the product of these factors; None when there are none.

        `private` holds the summed labels that occur in these factors alone.
        """
        reads = self.family.read(self, factors, private)
        matrices = self.family.symmetric(self.static)
        if reads is None or not matrices:
            return reads
        return [replace(r, symmetric=True) if r.statistic in matrices else r for r in reads]


def same_index(first: Sequence[Index], *others: Sequence[Index]) -> bool:
    """Whether the index expressions read the same positions, one by one."""
    keys = [index_key(i) for i in first]
    return all([index_key(i) for i in other] == keys for other in others)


def expand_powers(
    factors: Sequence[Factor[Atom]],
) -> list[tuple[str, tuple[Index, ...]]] | None:
    """Gaussian factors one by one, x^2 as two; None when another function of x is there."""
    expanded = []
    for factor in factors:
        atom = factor.atom
        if atom.function != "power" or atom.parameter not in (1.0, 2.0):
            return None
        expanded += [(atom.site, factor.index)] * int(atom.parameter)
    return expanded


def private_labels(term: Term, factors: Sequence[Factor[Atom]]) -> set[Label]:
    """The labels of the term that occur in the given factors alone."""
    inside = {id(f) for f in factors}
    mine: set[Label] = set()
    others: set[Label] = set()
    for factor in term.factors:
        found = set(labels_along(factor.index))
        if id(factor) in inside:
            mine |= found
        else:
            others |= found
    return mine - others
