"""Blocks: which sites share one variational factor, and the statistics each factor needs.

Structure decides (paper section 4.1, appendices A and B): two factors of one Gaussian site that
differ on an axis make that axis a vector axis; Gaussian sites that meet in one quadratic form are
joined while the dimension is affordable; a Gaussian all of whose terms carry the same precision
is joined with it. A block knows the layout of its sites and how a product of its atoms reads
from its statistics; the numerics are the family's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
from jax import Array

from lowerbound.joint.terms.labelled import Atom, Factor, Index, Label, Term, index_key, labels_of


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
class Read:
    """One statistic of a block, read at an index: `statistic[..., slices]` reshaped to `shape`."""

    block: int
    statistic: str
    slices: tuple[tuple[int, int], ...]  # trailing (start, size) windows; () reads it whole
    shape: tuple[int, ...]
    index: tuple[Index, ...]
    integral: Any = None  # integrals.Integral: the statistic is one of a projection of the blocks

    @property
    def blocks(self) -> frozenset[int]:
        """The numbers of the blocks that it depends on."""
        return frozenset((self.block,)) if self.integral is None else self.integral.blocks

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
    """One factor q_j: its kind, its sites with their layouts, and its shape.

    `static` are the family's fixed settings (power, dim, ...); `sequential` says that elements of
    the block meet in one term, so that they are updated one after the other; `extras` names
    constants of the support by slot of the compressed data, `presence` a mask of its elements.
    """

    number: int
    kind: str
    layouts: dict[str, Layout]
    batch_shape: tuple[int, ...]
    static: dict[str, Any] = field(default_factory=dict)
    scale: str | None = None  # the precision site of a joint block
    sequential: bool = False
    extras: dict[str, int] = field(default_factory=dict)
    presence: int | None = None  # slot of a mask: elements that the model leaves out
    atoms: tuple[Atom, ...] = ()  # of a free-form factor, while deriving

    @property
    def sites(self) -> tuple[str, ...]:
        """The latent sites of the factor, its precision last."""
        return (*self.layouts, *((self.scale,) if self.scale else ()))

    # -- values -----------------------------------------------------------------------------------

    def pack(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Site values as the family's canonical values."""
        packed: dict[str, Array] = {}
        if self.scale:
            packed["z"] = values[self.scale]
        pieces = []
        for name, layout in self.layouts.items():
            moved = jnp.transpose(values[name], (*layout.batch, *layout.vector))
            pieces.append(moved.reshape((*self.batch_shape, -1)) if self.is_vector else moved)
        packed[self._canonical] = jnp.concatenate(pieces, -1) if self.is_vector else pieces[0]
        return packed

    def constants(self, arrays: Sequence[Array]) -> dict[str, Array]:
        """The constant arrays inside the statistics of a free-form factor."""
        slots = self.extras if self.kind == "free" else {}
        return {name: arrays[slot] for name, slot in slots.items()}

    def unpack(self, packed: Mapping[str, Array]) -> dict[str, Array]:
        """The family's canonical values (with leading draw axes) as site values."""
        values: dict[str, Array] = {}
        array = packed[self._canonical]
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
    def _canonical(self) -> str:
        gaussian = ("normal", "gaussian", "normal_gamma", "normal_wishart", "truncated_normal")
        counts = ("multinomial", "poisson")
        return "x" if self.kind in gaussian + counts else "z"

    @property
    def is_vector(self) -> bool:
        """Whether its Gaussian sites are raveled into one vector per copy."""
        return self.kind == "gaussian" or (self.kind == "normal_gamma" and self.static["full"])

    # -- statistics -------------------------------------------------------------------------------

    def read(self, factors: Sequence[Factor[Atom]], private: set[Label]) -> list[Read] | None:
        """The statistics whose product is the product of these factors; None when there are none.

        `private` holds the summed labels that occur in these factors alone.
        """
        if self.kind in ("gaussian", "normal_gamma", "normal_wishart"):
            joint = self._read_joint(factors, private)
            return None if joint is None else [joint]
        if self.kind == "free":
            return self._read_free(factors)
        reads = []
        for factor in factors:
            name = self._leaf_statistic(factor.atom)
            if name is None:
                return None
            (layout,) = self.layouts.values()
            order = (*layout.batch, *layout.vector)
            index = tuple(factor.index[a] for a in order[: len(factor.index)])
            shape = tuple(layout.shape[a] for a in order)
            if name == "indicator":
                index = (*index, factor.index[-1])
                shape = (*shape, int(factor.atom.parameter))
            elif name == "logdet":
                shape = shape[:-2]
            reads.append(Read(self.number, name, (), shape, index))
        if len(reads) > 1 and not self.sequential:
            return None
        return reads

    def _read_free(self, factors: Sequence[Factor[Atom]]) -> list[Read] | None:
        if len(factors) != 1 or factors[0].atom not in self.atoms:
            return None
        number = self.atoms.index(factors[0].atom)
        shape = (*self.batch_shape, *self.static["sizes"][number])
        return [Read(self.number, f"s{number}", (), shape, factors[0].index)]

    def _leaf_statistic(self, atom: Atom) -> str | None:
        power = (atom.function, atom.parameter)
        match self.kind:
            case "normal" | "truncated_normal":
                return {("power", 1.0): "x", ("power", 2.0): "x2"}.get(power)
            case "gamma":
                table = {("log", 1.0): "log", ("power", self.static["power"]): "power"}
                return table.get(power)
            case "beta":
                return {"log": "log", "log1m": "log1m"}.get(atom.function)
            case "dirichlet":
                return {"log": "log"}.get(atom.function)
            case "categorical":
                return {"indicator": "indicator"}.get(atom.function)
            case "wishart":
                matrix = "inverse" if self.static["inverse"] else "power"
                return {matrix: "matrix", "logdet": "logdet"}.get(atom.function)
            case "multinomial" | "poisson":
                return {("power", 1.0): "count"}.get(power)
            case "polya_gamma" | "inverse_gaussian":
                return {("power", 1.0): "weight"}.get(power)
            case "point":
                return {("power", 1.0): "x", ("power", 2.0): "x2"}.get(power)
        return None

    def _read_joint(self, factors: Sequence[Factor[Atom]], private: set[Label]) -> Read | None:
        scales = [f for f in factors if f.atom.site == self.scale]
        gaussians = expand_powers([f for f in factors if f.atom.site != self.scale])
        if gaussians is None or len(gaussians) > 2 or len(scales) > 1:
            return None
        if self.kind == "normal_wishart":
            return self._read_wishart(scales, gaussians, private)
        if self.kind == "normal_gamma":
            return self._read_gamma(scales, gaussians)
        return self._read_gaussian("x", "xx", gaussians) if not scales else None

    def _read_gaussian(
        self, first: str, second: str, gaussians: Sequence[tuple[str, tuple[Index, ...]]]
    ) -> Read | None:
        slices, shape, batches = [], list(self.batch_shape), []
        index: list[Index] = []
        for site, where in gaussians:
            layout = self.layouts[site]
            batch, vector = layout.split(where)
            batches.append(batch)
            slices.append((layout.start, layout.size))
            shape += layout.vector_shape
            index += vector
        if not same_index(*batches):
            return None
        name = first if len(gaussians) == 1 else second
        return Read(self.number, name, tuple(slices), tuple(shape), (*batches[0], *index))

    def _read_gamma(
        self,
        scales: Sequence[Factor[Atom]],
        gaussians: Sequence[tuple[str, tuple[Index, ...]]],
    ) -> Read | None:
        if len(scales) != 1:
            return None
        atom, where = scales[0].atom, scales[0].index
        if not gaussians:
            table = {("log", 1.0): "log", ("power", self.static["power"]): "power"}
            name = table.get((atom.function, atom.parameter))
            return None if name is None else Read(self.number, name, (), self.batch_shape, where)
        if (atom.function, atom.parameter) != ("power", self.static["power"]):
            return None
        if self.static["full"]:
            read = self._read_gaussian("px", "pxx", gaussians)
            return read if read and same_index(read.index[: len(where)], where) else None
        ((name, layout),) = self.layouts.items()
        places = [layout.split(w) for _, w in gaussians]
        if not same_index(where, *(batch for batch, _ in places)):
            return None
        if not same_index(*(vector for _, vector in places)):
            return None
        statistic = "px" if len(gaussians) == 1 else "pxx"
        shape = (*self.batch_shape, *layout.vector_shape)
        return Read(self.number, statistic, (), shape, (*where, *places[0][1]))

    def _read_wishart(
        self,
        scales: Sequence[Factor[Atom]],
        gaussians: Sequence[tuple[str, tuple[Index, ...]]],
        private: set[Label],
    ) -> Read | None:
        if len(scales) != 1:
            return None
        atom, where = scales[0].atom, scales[0].index
        size = self.static["dim"]
        if atom.function == "logdet":
            return None if gaussians else Read(self.number, "logdet", (), self.batch_shape, where)
        *batch, i, j = where
        if not gaussians:
            return Read(self.number, "matrix", (), (*self.batch_shape, size, size), where)
        if not same_index(tuple(batch), *(w[:-1] for _, w in gaussians)):
            return None
        ends = [w[-1] for _, w in gaussians]
        if any(not isinstance(e, Label) or (e not in private and size > 1) for e in ends):
            return None
        if len(ends) == 2:
            if {index_key(e) for e in ends} != {index_key(i), index_key(j)}:
                return None
            return Read(self.number, "xpx", (), self.batch_shape, tuple(batch))
        for contracted, other in ((i, j), (j, i)):
            if index_key(ends[0]) == index_key(contracted):
                shape = (*self.batch_shape, size)
                return Read(self.number, "px", (), shape, (*batch, other))
        return None


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
        found = {label for i in factor.index for label in labels_of(i)}
        if id(factor) in inside:
            mine |= found
        else:
            others |= found
    return mine - others
