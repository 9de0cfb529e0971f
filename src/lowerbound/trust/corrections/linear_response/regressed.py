"""The numbers of sites as regressions on the statistics of their factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.compiled.host import lightly
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import Block
from lowerbound.rewrite.coordinates import Coordinates

DRAWS = 2000  # of q, that coefficients are found from
EXACT = 1e-9  # of a variance: what is left of a function that is a combination of statistics
ENOUGH = 8  # draws for each coefficient
MOST_NUMBERS = 20_000_000  # in the statistics of these draws


@dataclass(frozen=True, eq=False)
class Regressed:
    """w = B t + what is left: `rows` are the places of coefficients, `left` its covariance.

    Of one entry of w the coefficients are `weights[k]` at the places `rows[k]` of all statistics.
    """

    rows: list[np.ndarray]
    weights: list[np.ndarray]
    left: np.ndarray
    centre: np.ndarray  # the mean of w, exact where nothing is left
    size: int
    owner: Coordinates

    def names(self, entry: int) -> str:
        """The name of an entry of w."""
        return self.owner.owner(entry)

    def matrix(self) -> np.ndarray:
        """B: an entry of w a row."""
        whole = np.zeros((len(self.rows), self.size))
        for k, (places, weights) in enumerate(zip(self.rows, self.weights, strict=True)):
            whole[k, places] = weights
        return whole

    def carried(self, columns: np.ndarray) -> np.ndarray:
        """B times columns."""
        pairs = zip(self.rows, self.weights, strict=True)
        return np.stack([weights @ columns[places] for places, weights in pairs])


def regressed(
    family: MeanField,
    coordinates: Coordinates,
    naturals: Sequence[Mapping[str, Array]],
    arrays: Any,
    values: Mapping[str, Array],
    vectors: np.ndarray,
    means: np.ndarray,
) -> Regressed:
    """The coefficients of every entry of w on the statistics of its own factor, from draws of q.

    Factors are independent, and so are the elements of a block: only those of an entry's own
    element count. Where w is a combination of statistics (a Gaussian, a gamma variable)
    nothing is left, and the coefficients are exact.
    """
    places = _places(family)
    total = coordinates.size
    rows: list[np.ndarray] = [np.zeros(0, int)] * total
    weights: list[np.ndarray] = [np.zeros(0)] * total
    left, centre = np.zeros((total, total)), np.zeros(total)
    for number, block in enumerate(family.blocks):
        own = [site for site in block.sites if site in coordinates.shapes]
        if not own:
            continue
        elements = _elements(block, coordinates, own)
        entries = np.concatenate([np.arange(total)[coordinates.part(site)] for site in own])
        ids = np.concatenate([elements[site].ravel() for site in own])
        groups = _grouped(entries, ids)
        found = _coefficients(family, number, naturals[number], arrays, values, vectors, groups)
        for element, members in enumerate(groups):
            held = found.places(places[number], element)
            for k, entry in enumerate(members):
                rows[entry], weights[entry] = held, found.weights[element][:, k]
                centre[entry] = found.level[element][k] + weights[entry] @ means[held]
            left[np.ix_(members, members)] = found.left[element]
    return Regressed(rows, weights, left, centre, len(means), coordinates)


def _places(family: MeanField) -> list[dict[str, np.ndarray]]:
    """Where each statistic lies in the flat vector of all: sorted by name within a block."""
    found, start = [], 0
    for factor in family.families:
        own = {}
        for name, shape in sorted(factor.statistic_shapes().items()):
            size = int(np.prod(shape))
            own[name] = np.arange(start, start + size).reshape(shape)
            start += size
        found.append(own)
    return found


def _elements(
    block: Block, coordinates: Coordinates, sites: Sequence[str]
) -> dict[str, np.ndarray]:
    """The number of the element of the block that each entry of u belongs to, by site."""
    batch = int(np.prod(block.batch_shape))
    numbers = np.arange(batch).reshape(block.batch_shape)
    shapes = {name: layout.shape for name, layout in block.layouts.items()}
    found = {}
    for site in sites:
        shape = coordinates.shapes[site]
        if site == block.scale:
            inner = len(shape) - len(block.batch_shape)  # a matrix has numbers of its own
            wide = numbers.reshape(block.batch_shape + (1,) * inner)
            found[site] = np.broadcast_to(wide, shape)
            continue
        layout = block.layouts[site]
        whole = (*block.batch_shape, *(shapes[site][a] for a in layout.vector))
        wide = numbers.reshape(block.batch_shape + (1,) * len(layout.vector))
        spread = np.broadcast_to(wide, whole)
        order = (*layout.batch, *layout.vector)
        own = np.transpose(spread, [order.index(a) for a in range(len(order))])
        if own.shape != shape:  # a simplex or a matrix: fewer numbers of the same elements
            lead = len(layout.batch)
            own = np.broadcast_to(
                own[(...,) + (0,) * (own.ndim - lead)].reshape(
                    own.shape[:lead] + (1,) * (len(shape) - lead)
                ),
                shape,
            )
        found[site] = own
    return found


def _grouped(entries: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The entries of each element, a row each."""
    order = np.argsort(ids, kind="stable")
    count = len(np.unique(ids))
    return entries[order].reshape(count, -1)


@dataclass(frozen=True, eq=False)
class _Coefficients:
    """Of each element (E): level (E, k) and weights (E, p, k) on the statistics `names`.

    left: (E, k, k), the covariance of what they leave.
    """

    names: tuple[str, ...]
    batch: int
    level: np.ndarray
    weights: np.ndarray
    left: np.ndarray

    def places(self, places: Mapping[str, np.ndarray], element: int) -> np.ndarray:
        parts = [places[name].reshape(self.batch, -1)[element] for name in self.names]
        return np.concatenate(parts)


def _coefficients(
    family: MeanField,
    number: int,
    natural: Mapping[str, Array],
    arrays: Any,
    values: Mapping[str, Array],
    vectors: np.ndarray,
    groups: np.ndarray,
) -> _Coefficients:
    """Least squares on the fewest statistics that leave nothing, or on as many as draws allow."""
    block, factor = family.blocks[number], family.families[number]
    batch = int(np.prod(block.batch_shape))
    sizes = {n: int(np.prod(s)) // max(batch, 1) for n, s in factor.statistic_shapes().items()}
    draws = int(min(DRAWS, len(vectors)))
    u = vectors[:draws, groups]  # (S, E, k)
    height = u.mean(axis=0)
    u = u - height
    variance = np.square(u).mean(axis=0)
    best: _Coefficients | None = None
    for most in sorted(set(sizes.values())):
        names = tuple(n for n in sorted(sizes) if sizes[n] <= most)
        width = sum(sizes[n] for n in names)
        if best is not None and (width * ENOUGH > draws or width * batch * draws > MOST_NUMBERS):
            break

        def every(values: Any, natural: Any, arrays: Any, names: Any = names) -> Any:
            def one(values: Mapping[str, Array]) -> Array:
                packed = {**natural, **block.pack(values), **block.constants(arrays)}
                held = factor.statistics(packed)
                return jnp.concatenate([held[n].reshape(batch, -1) for n in names], axis=-1)

            return jax.vmap(one)(values)

        own = {site: values[site][:draws] for site in block.sites}
        key = ("regressed", number, names)
        if key not in family.compiled:
            family.compiled[key] = lightly(every)
        t = np.asarray(family.compiled[key](own, dict(natural), arrays), float)  # (S, E, p)
        middle = t.mean(axis=0)  # (E, p)
        t = t - middle
        scale = np.sqrt(np.square(t).mean(axis=0))
        scale = np.where(scale > 0, scale, 1.0)
        t = np.moveaxis(t / scale, 0, 1)  # (E, S, p)
        target = np.moveaxis(u, 0, 1)
        gram = np.swapaxes(t, 1, 2) @ t / draws
        weights = np.linalg.pinv(gram, rcond=1e-12, hermitian=True) @ (
            np.swapaxes(t, 1, 2) @ target / draws
        )
        rest = target - t @ weights
        left = np.swapaxes(rest, 1, 2) @ rest / draws
        weights = weights / scale[..., None]
        level = height - np.einsum("ep,epk->ek", middle, weights)
        exact = (np.square(rest).mean(axis=1) <= EXACT * variance).all()
        best = _Coefficients(names, batch, level, weights, np.zeros_like(left) if exact else left)
        if exact:
            break
    assert best is not None
    return best
