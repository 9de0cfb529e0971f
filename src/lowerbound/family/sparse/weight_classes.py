"""A' W A where A is fixed and the weights move together: rows reduced to statistics, once.

The weights of a Gaussian likelihood are its precision, one number for all rows; those of a prior
are another. Where W(t) = sum over c of omega_c(t) K_c with few classes c of rows, the products
A' K_c A are formed once, and A' W A costs nothing per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lowerbound.family.sparse.gram import distinct
from lowerbound.family.sparse.stages import AnyFactor

__all__ = ["Classes", "Reduced", "reduced", "weight_classes"]

MOST = 64  # classes
MOSTLY = 0.5  # of all entries, from where on a product is written down with its zeros
SAME = 1e-9  # relative difference of weights that move together


@dataclass(frozen=True, eq=False)
class Classes:
    """Rows whose weights are a number of their own times what is common to their class."""

    label: np.ndarray  # (count,): -1 for rows without a weight
    own: np.ndarray  # (count,): a positive number each
    first: np.ndarray  # (classes,): a row of each class

    def common(self, weights: np.ndarray) -> np.ndarray:
        """What the weights of the classes are to their own numbers, (classes,)."""
        return np.asarray(weights[self.first] / self.own[self.first])


def weight_classes(samples: Sequence[np.ndarray]) -> Classes | None:
    """The classes of rows, from their weights at some parameters; None where there are none.

    The last sample is foreseen from the others: rows that are alike by chance would be found out.
    """
    own = samples[0]
    some = own != 0
    if not (np.isfinite(samples).all() and (own >= 0).all()):
        return None
    if any((sample[~some] != 0).any() for sample in samples):
        return None
    label = np.zeros(len(own), np.int64)
    for sample in samples[1:-1]:
        ratio = sample[some] / own[some]
        values = distinct(ratio)
        bounds = values[1:][np.diff(values) > SAME * abs(values[1:])]
        if len(bounds) >= MOST:
            return None
        label[some] = label[some] * MOST + np.searchsorted(bounds, ratio, side="right")
    label[some] = np.unique(label[some], return_inverse=True)[1]
    label[~some] = -1
    count = int(label.max(initial=-1)) + 1
    if not 0 < count <= MOST:
        return None
    first = np.zeros(count, np.int64)
    first[label[some][::-1]] = np.flatnonzero(some)[::-1]
    found = Classes(label.astype(np.int32), np.where(some, own, 1.0), first)
    foreseen = np.where(some, found.common(samples[-1])[label] * own, 0.0)
    return found if (abs(foreseen - samples[-1]) <= SAME * abs(samples[-1])).all() else None


@dataclass(frozen=True, eq=False)
class Reduced:
    """The lower triangle of A' W A from the products of its classes, and traces with them."""

    rows: np.ndarray  # (nnz,): rows >= columns, sorted, with all of the diagonal
    columns: np.ndarray
    classes: Classes
    design: Any  # A, by rows
    places: tuple[np.ndarray | slice, ...]  # of each class, where its product is written down
    products: tuple[np.ndarray, ...]

    @property
    def pairs(self) -> int:
        """How many products are summed."""
        return sum(map(len, self.products))

    @cached_property
    def _diagonal(self) -> np.ndarray:
        return np.asarray(self.rows == self.columns)

    def values(self, common: np.ndarray) -> np.ndarray:
        """The entries of A' W A, (nnz,), from what is common to the weights of each class."""
        out = np.zeros(len(self.rows))
        for place, product, omega in zip(self.places, self.products, common, strict=True):
            out[place] += omega * product
        return out

    def squares(self, z: np.ndarray) -> np.ndarray:
        """The forms z' A' K A z of all classes, (classes,)."""
        squares = self.classes.own * np.asarray(self.design @ z) ** 2
        return np.bincount(self.classes.label + 1, squares, minlength=1 + len(self.products))[1:]

    def traces(self, common: np.ndarray, factor: AnyFactor) -> tuple[np.ndarray, np.ndarray]:
        """The traces of P^-1 A' K A of all classes, and the diagonal of P^-1, for P = A' W A."""
        crossing = [n for n, alone in enumerate(self._alone) if not alone]
        covariance = factor.covariance() if len(crossing) > 1 else None
        variance = factor.variance() if covariance is None else covariance[self._diagonal]
        traces = np.zeros(len(common))
        for number, (place, product) in enumerate(zip(self.places, self.products, strict=True)):
            if self._alone[number]:
                traces[number] = product @ variance[self.rows[place]]
            elif covariance is not None:
                twice = np.where(self._diagonal, 1.0, 2.0)
                traces[number] = product @ (twice * covariance)[place]
        if crossing:  # all of them together are the trace of the identity
            last = max(crossing, key=lambda n: len(self.products[n]))
            others = common @ traces - common[last] * traces[last]
            traces[last] = (len(variance) - others) / common[last]
        return traces, variance

    @cached_property
    def _alone(self) -> list[bool]:
        """Whether a class has entries on the diagonal only."""
        both = zip(self.places, self.products, strict=True)
        return [not product[~self._diagonal[place]].any() for place, product in both]


def reduced(
    rows: np.ndarray, columns: np.ndarray, entries: np.ndarray, size: int, classes: Classes
) -> Reduced:
    """The products of the classes, for A with these entries."""
    from scipy.sparse import csr_array

    count = len(classes.label)
    matrix = csr_array((entries, (rows, columns)), (count, size))
    keys, products = [], []
    for number in range(len(classes.first)):
        chosen = np.flatnonzero(classes.label == number)
        part = matrix[chosen]
        part.data *= np.repeat(np.sqrt(classes.own[chosen]), np.diff(part.indptr))
        product = (part.T.tocsr() @ part).tocsr()
        product.sort_indices()
        line = np.repeat(np.arange(size, dtype=np.int32), np.diff(product.indptr))
        low = product.indices <= line
        keys.append(line[low] * np.int64(size) + product.indices[low])
        products.append(product.data[low])
    diagonal = np.arange(size, dtype=np.int64) * (size + 1)
    whole = distinct(np.concatenate([diagonal, *keys]))
    places: list[np.ndarray | slice] = []
    for number, key in enumerate(keys):
        place = np.searchsorted(whole, key)
        if len(key) > MOSTLY * len(whole):  # adding zeros is quicker than looking for the others
            full = np.zeros(len(whole))
            full[place] = products[number]
            products[number] = full
        places.append(slice(None) if len(products[number]) == len(whole) else place)
    pairs = (whole // size).astype(np.int32), (whole % size).astype(np.int32)
    return Reduced(*pairs, classes, matrix, tuple(places), tuple(products))
