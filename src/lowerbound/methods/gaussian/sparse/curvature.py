"""Second derivatives of log p by directions: H v for a few vectors v, at batches of points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import jaxpr_as_fun

from lowerbound.compiled import abreast, jit, quickly, traced
from lowerbound.cost import numbers_computed
from lowerbound.methods.gaussian.target import Target, in_precision

TOGETHER = 4_000_000  # numbers that directions computed together may take
MOST_POINTS = 8
_SMALL = 0.1  # of the largest site: sites below share a group
QUICK_BELOW = 200_000  # numbers computed; programs of more are optimised

Directions = tuple[np.ndarray, ...]  # one matrix a group: its rows are vectors v


@dataclass(frozen=True, eq=False)
class Groups:
    """The sites in up to three groups, from small to large.

    A direction lies within one group, for then nothing is computed that only other sites need: of
    a Gaussian process with given length scale, no derivative of a Cholesky factor. Of the symmetric
    H, the rows of later groups are enough, and `wanted` says which groups' rows each has.
    """

    entries: tuple[np.ndarray, ...]  # the entries of u, group by group
    wanted: tuple[tuple[int, ...], ...]

    @property
    def owner(self) -> np.ndarray:
        """The group of each entry of u."""
        found = np.empty(sum(map(len, self.entries)), int)
        for number, entries in enumerate(self.entries):
            found[entries] = number
        return found


def groups_of(target: Target) -> Groups:
    """Small sites together, the largest one apart, and the others between them."""
    coordinates = target.coordinates
    sizes = {name: int(np.prod(shape)) for name, shape in coordinates.shapes.items()}
    ordered = sorted(sizes, key=lambda name: sizes[name])
    limit = _SMALL * sizes[ordered[-1]]
    small = [n for n in ordered[:-1] if sizes[n] <= limit]
    middle = [n for n in ordered[:-1] if sizes[n] > limit]
    every = np.arange(target.size)
    entries = tuple(
        np.concatenate([every[coordinates.part(n)] for n in coordinates.shapes if n in names])
        for names in (small, middle, ordered[-1:])
        if names
    )
    count = len(entries)
    return Groups(entries, tuple(tuple(range(g, count)) for g in range(count)))


def second_derivatives(
    target: Target, groups: Groups, directions: Directions, vectors: np.ndarray
) -> np.ndarray:
    """The products H v with all directions in turn, (k, d), averaged over the rows of `vectors`.

    They are 0 in rows of H that are not wanted.
    """
    program, batch = _program(target, groups, directions)
    single = [matrix.astype(target.dtype) for matrix in directions]
    total = np.zeros(())
    for begin in range(0, len(vectors), batch):
        some = vectors[begin : begin + batch]
        # A point of weight 0 is one of the others again.
        weights = np.zeros(batch, target.dtype)
        weights[: len(some)] = 1.0 / len(vectors)
        whole = np.broadcast_to(some[:1], (batch, target.size)).astype(target.dtype)
        whole[: len(some)] = some
        with in_precision(target.dtype):
            found = program(whole, weights, single, target.arguments)
        total = total + np.asarray(found, float)
    return total


def _program(target: Target, groups: Groups, directions: Directions) -> tuple[Any, int]:
    numbers = numbers_computed(target.closed.jaxpr)
    most = max(len(matrix) for matrix in directions)
    chunk = int(np.clip(TOGETHER // numbers, 1, most))
    batch = int(np.clip(TOGETHER // (numbers * chunk), 1, MOST_POINTS))
    key = ("second", groups.wanted, tuple(map(len, directions)), batch)
    if key not in target.compiled:
        density = _by_group(target, groups.entries)

        def run(vectors: Array, weights: Array, directions: Sequence[Array], data: Any) -> Array:
            products = jax.vmap(
                lambda vector: _products(density, groups, directions, data, chunk, vector)
            )(vectors)
            return jnp.einsum("b,bkd->kd", weights, products)

        heavy = numbers * sum(map(len, directions)) > QUICK_BELOW
        target.compiled[key] = jit(run) if heavy else quickly(run)
    return target.compiled[key], batch


def _products(
    density: Any, groups: Groups, directions: Sequence[Array], data: Any, chunk: int, vector: Array
) -> Array:
    """The products at one point."""
    parts = [vector[entries] for entries in groups.entries]
    products = []
    for number, matrix in enumerate(directions):
        wanted = groups.wanted[number]

        def slopes(part: Array, number: int = number, wanted: Any = wanted) -> Any:
            moved = [*parts[:number], part, *parts[number + 1 :]]
            return jax.grad(density, argnums=wanted)(*moved, data)

        # Linear once, so that what does not hang on the direction is not computed for each.
        _, linear = jax.linearize(slopes, parts[number])

        def product(direction: Array, linear: Any = linear, wanted: Any = wanted) -> Array:
            row = jnp.zeros_like(vector)
            for group, values in zip(wanted, linear(direction), strict=True):
                row = row.at[groups.entries[group]].set(values)
            return row

        matrix = jnp.asarray(matrix, vector.dtype)
        together = min(chunk, len(matrix))
        whole = len(matrix) <= together
        products.append(
            jax.vmap(product)(matrix)
            if whole
            else jax.lax.map(product, matrix, batch_size=together)
        )
    return jnp.concatenate(products)


def _by_group(target: Target, entries: Sequence[np.ndarray]) -> Any:
    """Log p as a function of the groups' numbers, whose sites are slices of them, and the data."""
    coordinates = target.coordinates
    places: dict[str, tuple[int, slice]] = {}
    for number, group in enumerate(entries):
        for name in coordinates.shapes:
            part = coordinates.part(name)
            found = np.searchsorted(group, part.start)
            if found < len(group) and group[found] == part.start:
                places[name] = number, slice(int(found), int(found) + part.stop - part.start)

    def density(*args: Any) -> Array:
        *parts, data = args
        values = {}
        for name, shape in coordinates.shapes.items():
            number, own = places[name]
            part = parts[number]
            whole = own == slice(0, part.shape[0])
            values[name] = (part if whole else part[own]).reshape(shape)
        return coordinates.log_density_at(values, data)

    shapes = [np.zeros(len(group), target.dtype) for group in entries]
    with in_precision(target.dtype):
        closed = abreast(traced(density)(*shapes, target.arguments))

    def evaluated(*args: Any) -> Array:
        found: Array = jaxpr_as_fun(closed)(*jax.tree.leaves(args))[0]
        return found

    return evaluated
