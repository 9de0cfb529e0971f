"""Which observed entries are missing, when an argument is a masked array."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import numpy as np
from jax import Array

from lowerbound.errors import MissingDataError
from lowerbound.model.inputs.arguments import Arguments
from lowerbound.model.record import Entry, Record, record


def missing_masks(
    function: Callable[..., Any],
    arguments: Arguments,
    found: Record,
    key: Array,
) -> dict[str, np.ndarray]:
    """For each observed site that has missing entries its mask.

    It has one element per event of the innermost distribution: the shape of the site without the
    dimensions of, say, a multivariate normal, but with those that `to_event` declares.

    An entry is missing when it changes as the missing entries of an argument are filled with
    different numbers, so observations computed from an argument work too. Nothing but observed
    values may change.
    """
    masks: dict[str, np.ndarray] = {}
    for argument, entries in arguments.missing.items():
        read = _reader(function, argument, found, key)
        runs = [
            read(arguments.replace({argument: filled}))
            for filled in _fillings(arguments.data[argument], entries)
        ]
        for entry in found.entries:
            if entry.kind == "deterministic":
                continue
            conditions = [*entry.parameters, entry.mask, entry.scale]
            if any(_differs(runs, output).any() for output in conditions if output is not None):
                count = int(entries.sum())
                raise MissingDataError.not_observed(argument, count, entry.name, entry.where)
            if entry.kind == "observed" and not entry.is_factor:
                mask = _site_mask(_differs(runs, entry.value), entry, argument)
                if mask.any():
                    masks[entry.name] = mask | masks.get(entry.name, False)
    return masks


Numbers = dict[int, np.ndarray]


def _reader(
    function: Callable[..., Any], argument: str, found: Record, key: Array
) -> Callable[[Arguments], Numbers]:
    """All outputs of the record that may depend on an argument, as a function of the data."""
    outputs = found.depending_on(argument)
    if argument in found.names:
        return found.reader(outputs, key)

    def read(arguments: Arguments) -> Numbers:
        # The program inspects the argument, so only another run shows what it does.
        other = record(function, arguments, found.sight, key)
        for before, after in zip_longest(found.entries, other.entries):
            if _outline(before) != _outline(after):
                site = before or after
                assert site is not None
                count = int(arguments.missing[argument].sum())
                raise MissingDataError.not_observed(argument, count, site.name, site.where)
        return other.reader(outputs, key)(arguments)

    return read


def _outline(entry: Entry | None) -> tuple[Any, ...]:
    return () if entry is None else (entry.name, entry.base, entry.parameters, entry.batch_shape)


def _fillings(array: np.ndarray, mask: np.ndarray) -> list[np.ndarray]:
    """The array with its missing entries at several levels, inside and outside its range.

    Two levels would not do: they may fall on the same side of a threshold in the program.
    """
    if array.dtype == bool:
        levels: list[Any] = [False, True]
    else:
        low, high = array.min(), array.max()
        reach = max(abs(float(low)), abs(float(high))) + 1
        levels = [low, high, 0, reach, -reach]
        if array.dtype.kind in "iu":
            limits = np.iinfo(array.dtype)
            levels = [min(max(int(level), limits.min), limits.max) for level in levels]
    fillings = []
    for level in dict.fromkeys(levels):
        filled = array.copy()
        filled[mask] = level
        fillings.append(filled)
    return fillings


def _differs(runs: list[Numbers], output: int) -> np.ndarray:
    """Where an output is not the same in all runs; nowhere when it cannot depend on them."""
    if output not in runs[0]:
        return np.zeros((), bool)
    first = runs[0][output]
    differs = np.zeros(first.shape, bool)
    for run in runs[1:]:
        if run[output].shape != first.shape:
            return np.ones(first.shape, bool)
        differs |= ~np.isclose(run[output], first, rtol=0.0, atol=0.0, equal_nan=True)
    return differs


def _site_mask(differs: np.ndarray, entry: Entry, argument: str) -> np.ndarray:
    events = entry.base_event_dim
    differs = np.broadcast_to(differs, entry.batch_shape + entry.event_shape)
    axes = tuple(range(differs.ndim - events, differs.ndim))
    some, every = np.asarray(differs.any(axis=axes)), np.asarray(differs.all(axis=axes))
    partly = some & ~every
    if partly.any():
        index = tuple(int(i) for i in np.argwhere(partly)[0])
        raise MissingDataError.partial_event(
            argument, entry.name, entry.where, index, entry.event_shape
        )
    return every
