"""Counts without an upper end, on the values 0, ..., K - 1: as many as the posterior needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lowerbound.model import Model
from lowerbound.rewrite.summing.finite import is_listable

FEWEST, MOST = 32, 2048  # values 0, 1, ... of a count without an upper end


def unbounded(model: Model) -> tuple[str, ...]:
    """The latent counts 0, 1, ... without an upper end, in the order of the program."""
    latent = model.latent.items()
    discrete = ((n, s) for n, s in latent if s.support is not None and s.support.is_discrete)
    return tuple(n for n, s in discrete if s.support_values is None and is_listable(s))


def bounded(model: Model, counts: Mapping[str, int]) -> Model:
    """The same program with so many values for each of these counts."""
    sites = [
        replace(s, support_values=np.arange(counts[s.name])) if s.name in counts else s
        for s in model.sites
    ]
    return replace(model, sites=tuple(sites))


def counts_of(model: Model, summed: Model) -> dict[str, int]:
    """How many values each of these counts of a model has in what was summed over."""
    found = {name: summed.latent[name].support_values for name in unbounded(model)}
    return {name: len(values) for name, values in found.items() if values is not None}


def first_counts(model: Model, names: Sequence[str], fewest: int = FEWEST) -> dict[str, int]:
    """Twice as many values as the largest count among the data, and some at least."""
    most = 0
    for array in model.arguments.data.values():
        known = np.asarray(array, float)
        if known.size and np.isfinite(known).all() and (known == np.floor(known)).all():
            most = max(most, int(known.max()))
    return dict.fromkeys(names, counts_for(2 * most, fewest))


def counts_for(most: int, fewest: int = FEWEST) -> int:
    """A power of two above `most`, within limits."""
    wanted: int = 2 ** math.ceil(math.log2(max(most + 1, fewest)))
    return min(wanted, MOST)
