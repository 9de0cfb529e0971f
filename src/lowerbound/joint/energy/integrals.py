"""E[phi(a)] for linear combinations a of Gaussian sites, by Gauss-Hermite quadrature.

Mean and variance of a are read from the statistics of the Gaussian blocks, so that the energy stays
a function of statistics: at point statistics it is phi(a), and its derivative is the natural
gradient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.joint.blocks.block import Block, Entry, Read
from lowerbound.joint.blocks.projections import Projection
from lowerbound.joint.energy.moments import Moment, gathered, square
from lowerbound.joint.energy.summands import (
    Statistics,
    Store,
    Summand,
    compressed,
    evaluate,
    reads_of,
    stored_read,
)
from lowerbound.joint.terms.expression import Tree, is_smooth, spread
from lowerbound.joint.terms.expression import evaluate as evaluate_tree
from lowerbound.joint.terms.indices import Label, align, labels_read
from lowerbound.joint.terms.labelled import Atom, Factor, Term
from lowerbound.joint.terms.value import times

NODES = 32
NODES_OF_KINKS = 64
REMEMBERED = 1_000_000  # numbers at the nodes that a gradient may keep instead of computing again


@cache
def hermite(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of E[f(x)], x standard normal."""
    nodes, weights = np.polynomial.hermite.hermgauss(count)
    return nodes * math.sqrt(2.0), weights / math.sqrt(math.pi)


@dataclass(frozen=True)
class Function:
    """A function of the projection: its tree, trailing axes, and the slots of its constants."""

    tree: Tree
    sizes: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    slots: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Integral:
    """A Gaussian projection a: how its moments are read, and the functions of it."""

    number: int
    name: str
    shape: tuple[int, ...]
    axes: tuple[Label | None, ...]
    blocks: frozenset[int]
    first: tuple[Summand, ...]  # E[a]
    second: tuple[Summand, ...]  # E[a^2], but for the squares of
    entries: tuple[Summand, ...]  # sums of entries, which are in `first`
    functions: tuple[Function, ...]
    matrices: frozenset[tuple[int, str]]  # symmetric statistics that it reads, by block and name

    @property
    def trees(self) -> tuple[Tree, ...]:
        """The functions of the projection."""
        return tuple(function.tree for function in self.functions)

    def moments(self, arrays: Sequence[Array], statistics: Statistics) -> tuple[Array, Array]:
        """Mean and variance of a, from the statistics of its blocks."""
        mean = self._sum(self.first, arrays, statistics)
        centred = tuple(_centred(s) if n in self.blocks else s for n, s in enumerate(statistics))
        variance = self._sum(self.second, arrays, centred)
        for sum_of_entries in self.entries:
            variance = variance + square(sum_of_entries, arrays, centred).reshape(self.shape)
        # At a point mass rounding may make it negative; its derivative is still that of a variance.
        below = jax.lax.stop_gradient(jnp.minimum(variance, 0.0))
        return mean, variance - below

    def _sum(
        self, summands: Sequence[Summand], arrays: Sequence[Array], statistics: Statistics
    ) -> Array:
        labels = tuple(label for label in self.axes if label is not None)
        total: Array = jnp.zeros(())
        for summand in summands:
            own = _labels(summand)
            present = tuple(label for label in labels if label in own)
            part = evaluate(summand, arrays, statistics, output=labels)
            total = total + align(part, present, labels)
        sizes = tuple(label.size for label in labels)
        return jnp.broadcast_to(total, sizes).reshape(self.shape)

    def expected(self, statistic: str, arrays: Sequence[Array], statistics: Statistics) -> Array:
        """E[phi(a)] of one function, an array of the projection's shape and its trailing axes."""
        function = self.functions[int(statistic.split("s")[1])]
        mean, variance = self.moments(arrays, statistics)
        constants = [arrays[slot] for slot in function.slots]
        count = NODES if is_smooth(function.tree) else NODES_OF_KINKS
        numbers = count * math.prod((*self.shape, *function.sizes))
        integrate = _integrate
        if numbers > REMEMBERED:
            integrate = jax.checkpoint(_integrate, static_argnums=(0, 1))
        result: Array = integrate(function, count, mean, variance, constants)
        return result


@dataclass(frozen=True)
class Reader:
    """An integral with the atoms that its functions come from, which exist while deriving."""

    integral: Integral
    places: dict[Atom, int]

    def read(self, factor: Factor[Atom]) -> Read:
        """The statistic E[phi(a)] at the factor's index."""
        integral, place = self.integral, self.places[factor.atom]
        shape = (*integral.shape, *integral.functions[place].sizes)
        name = f"p{integral.number}s{place}"
        return Read(min(integral.blocks), name, (), shape, factor.index, integral)


def _integrate(
    function: Function, count: int, mean: Array, variance: Array, constants: Sequence[Array]
) -> Array:
    nodes, weights = hermite(count)
    # A tiny spread keeps the derivative in the variance defined at a point mass.
    tiny = float(np.finfo(mean.dtype).eps)
    spot = jax.lax.stop_gradient(mean)
    sd = jnp.sqrt(variance + tiny * (1.0 + spot * spot))
    lead = (count, *(1,) * mean.ndim)
    a = mean + sd * jnp.asarray(nodes, mean.dtype).reshape(lead)
    rank = mean.ndim + len(function.sizes)
    wide = a.reshape(a.shape + (1,) * len(function.sizes))
    pairs = zip(constants, function.axes, strict=True)
    values = evaluate_tree(function.tree, wide, [spread(c, axes, rank) for c, axes in pairs])
    average = jnp.tensordot(
        jnp.asarray(weights, mean.dtype),
        jnp.broadcast_to(values, (count, *np.shape(values)[1:])),
        1,
    )
    return jnp.broadcast_to(average, (*mean.shape, *function.sizes))


def _centred(statistics: Mapping[str, Array]) -> dict[str, Array]:
    """The statistics of x - E[x]."""
    x = statistics["x"]
    if "x2" in statistics:
        return {"x": jnp.zeros_like(x), "x2": statistics["x2"] - x * x}
    outer = x[..., :, None] * x[..., None, :]
    return {"x": jnp.zeros_like(x), "xx": statistics["xx"] - outer}


def _labels(summand: Summand) -> set[Label]:
    found = {label for _, span in summand.constants for label in span}
    return found.union(labels_read(summand.reads))


def squares(projection: Projection) -> list[Term]:
    """The terms of a^2, whose pairs of sites decide how the Gaussian blocks are laid out."""
    square = times(projection.value, projection.value)
    return list(square.terms)  # type: ignore[union-attr]


def build(
    number: int,
    projection: Projection,
    atoms: Sequence[Atom],
    blocks: Sequence[Block],
    store: Store,
) -> Reader:
    """The integral of the given functions of one projection."""
    owner = {site: block for block in blocks for site in block.sites}
    value = projection.value
    kept = set(value.labels)

    def moments_of(terms: Sequence[Term]) -> list[Moment]:
        found = []
        for term in terms:
            reads = reads_of(Entry("", term), owner)
            labels = kept.union(labels_read(reads))
            found.append(Moment(term.coefficient, compressed(term, labels), reads))
        return found

    def stored(moment: Moment) -> Summand:
        constants = tuple((store.put(array), span) for array, span in moment.constants)
        reads = tuple(stored_read(read, store) for read in moment.reads)
        return Summand("", moment.coefficient, constants, reads)

    second = moments_of(squares(projection))
    moments = gathered(moments_of(value.terms), second, value.labels, blocks)

    compiled = []
    for atom in atoms:
        e: Any = atom.expression
        slots = tuple(store.put(array) for array in e.arrays)
        compiled.append(Function(e.tree, e.sizes, e.axes, slots))
    integral = Integral(
        number,
        projection.name,
        value.shape,
        value.axes,
        frozenset(owner[site].number for site in projection.sites),
        tuple(map(stored, moments.first)),
        tuple(map(stored, moments.second)),
        tuple(map(stored, moments.entries)),
        tuple(compiled),
        frozenset().union(*(read.matrices for moment in second for read in moment.reads)),
    )
    return Reader(integral, {atom: place for place, atom in enumerate(atoms)})
