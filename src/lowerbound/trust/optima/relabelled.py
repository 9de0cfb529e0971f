"""Images of a summit under other names for its components.

Where an order of components is nobody's, log p(x, z) is the same for all, and q has one of them.
On the unconstrained space the images are not alike: sticks break in the order of the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from lowerbound.trust.against import Against

MOST = 100  # components; more are units of the data
ROUNDED = 1e-6  # relative difference of log p of two orders, which is none

Values = Mapping[str, np.ndarray]


def aligned(judge: Against, home: np.ndarray, place: np.ndarray, sds: np.ndarray) -> np.ndarray:
    """The image of a place that is nearest to `home`, in sds: itself where there is no other."""
    here, there = judge.values(home[None]), judge.values(place[None])
    lengths = {n for array in here.values() for n in array.shape[1:] if 1 < n <= MOST}
    images = [place]
    for length, axes in product(sorted(lengths), (_ALL, _FIRST, _LAST)):
        order = _order(here, there, length, axes)
        if (order == np.arange(length)).all():
            continue
        pair = {n: np.concatenate([a, _in_order(a, order, axes)]) for n, a in there.items()}
        with jax.enable_x64(True):
            vectors, volumes = (np.asarray(one, float) for one in judge.placed(pair))
        one, other = judge.target(vectors, few=True)[0] - volumes
        if abs(one - other) <= ROUNDED * max(abs(one), 1.0):
            images.append(vectors[1])
    return min(images, key=lambda image: float((((image - home) / sds) ** 2).sum()))


# Which axes of their number belong to the components: in a table of classes by answers, the first.
_ALL, _FIRST, _LAST = slice(None), slice(0, 1), slice(-1, None)


def _axes(array: np.ndarray, length: int, which: slice) -> list[int]:
    return [axis for axis, n in enumerate(array.shape) if axis and n == length][which]


def _order(here: Values, there: Values, length: int, which: slice) -> np.ndarray:
    """The order of components `there` that comes nearest to those `here`."""
    seen = [_features(values, length, which) for values in (here, there)]
    scale = np.maximum(np.std(np.concatenate(seen), axis=0), 1e-12)
    _, order = linear_sum_assignment(cdist(seen[0] / scale, seen[1] / scale, "sqeuclidean"))
    found: np.ndarray = order
    return found


def _features(values: Values, length: int, which: slice) -> np.ndarray:
    """Numbers that tell components apart, (components, numbers), whatever the others are called."""
    found = []
    for array in values.values():
        axes = _axes(array, length, which)
        for axis in axes:
            each = array
            for other in axes:
                each = each if other == axis else np.sort(each, axis=other)
            found.append(np.moveaxis(each, axis, 0).reshape(length, -1))
    return np.concatenate(found, axis=1)


def _in_order(array: np.ndarray, order: np.ndarray, which: slice) -> np.ndarray:
    """The array with those of its axes in the order."""
    for axis in _axes(array, len(order), which):
        array = np.take(array, order, axis)
    return array
