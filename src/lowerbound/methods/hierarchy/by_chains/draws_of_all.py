"""Draws of theta completed by draws of z given them: the posterior of all sites, as draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.family.sparse.mixing import MixedLaw, Mixing
from lowerbound.methods.hierarchy.inner.parabolas import AnySurface

MOST_NUMBERS = 20_000_000  # in all draws together
PAIRS = 2  # of z on either side of its mean given theta, for each draw of theta


def completed(surface: AnySurface, t: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """All sites at draws t (n, k) of theta, and at pairs of draws of z given each: (2 p n, ...).

    The two of a pair are mirrored at the mean, which is then that of z given theta.
    """
    one, rng = surface.predictors, np.random.default_rng(seed)
    pairs = 1 if 2 * PAIRS * len(t) * one.size > MOST_NUMBERS else PAIRS
    theta, z = list[np.ndarray](), list[np.ndarray]()
    for place in t:
        found = surface(place, (), False)
        entries = None if found is None else surface.precision(found)
        factor = None if entries is None else surface.pattern.factor(entries)
        if found is None or entries is None or factor is None:
            continue
        mixing = None if one.back is None else Mixing(one.back.matrix(place))
        loc = found.loc if one.back is None else one.back(place, found.loc)
        law = MixedLaw(surface.pattern, entries, factor, mixing)
        away = law.coloured(rng.normal(size=(pairs, one.size)))
        z.append(loc + np.concatenate([away, -away]))
        theta.append(np.repeat(place[None], 2 * pairs, axis=0))
    values = _sites(one.theta, np.concatenate(theta), one)
    return {**values, **_sites(one.z, np.concatenate(z), one)}


def _sites(names: Sequence[str], rows: np.ndarray, one: Any) -> dict[str, np.ndarray]:
    """Sites from rows of their coordinates."""
    found, begin = {}, 0
    for name in names:
        shape = one.coordinates.shapes[name]
        size = int(np.prod(shape, dtype=int))
        part = rows[:, begin : begin + size].reshape((-1, *shape))
        begin += size
        with jax.enable_x64(True):
            found[name] = np.asarray(one.coordinates.transform(name)(jnp.asarray(part)))
    return found
