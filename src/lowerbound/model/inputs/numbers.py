"""NaN and infinite numbers among the data: an error where they reach a density, and only there.

A program may deal with them itself: impute NaN by latent sites, mask it, truncate at infinity. What
counts is whether the density of some site, or its slope in a latent one, is a number at a draw from
the prior, and is one again when numbers take their place. A program whose density is no number in
part of its prior (a scale that may be negative) is looked at elsewhere too: one point at which all
is well acquits the data. A log potential of -inf (a forbidden transition, a mask of states) is one
that values of discrete sites select: those that count it are impossible, and others are not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.compiled.host import lightly
from lowerbound.errors import (
    ExcludedError,
    InfiniteDataError,
    LowerboundError,
    NaNDataError,
    NaNSlopeError,
)
from lowerbound.model.prior_points import off_centre
from lowerbound.model.record import Record
from lowerbound.model.sites import Model

Masks = Mapping[str, np.ndarray]
Numbers = dict[str, np.ndarray]


def check_numbers(model: Model, missing: Masks, record: Record) -> None:
    """Raise where NaN or infinite entries of an argument reach a density that counts."""
    data = model.arguments.data
    holds = {n: ~np.isfinite(a) for n, a in data.items() if a.dtype.kind == "f"}
    holds = {name: bad for name, bad in holds.items() if bad.any()}
    if not holds:
        return
    found = _look(model, {}, missing)
    if _well(found) or _well_elsewhere(model, missing):
        return
    always = _counted_always(model, missing, found)
    if always is not None:
        if not always:
            return
        raise ExcludedError(tuple(holds), *always[0])
    filled = {
        name: np.where(bad, _number(data[name], bad), data[name]) for name, bad in holds.items()
    }
    usual = _attempt(model, filled, missing)
    for name, bad in holds.items():
        others = {other: array for other, array in filled.items() if other != name}
        alone = _attempt(model, others, missing) if others else found
        if _worse(alone.densities, usual.densities):
            raise _error(name, data[name], record)
        site = _worse(alone.slopes, usual.slopes)
        if site is not None:
            index = tuple(int(i) for i in np.argwhere(bad)[0])
            value = float(data[name][index])
            raise NaNSlopeError(name, index, int(bad.sum()), data[name].shape, site, value)


def _well(look: _Look) -> bool:
    return not (_worse(look.densities, {}) or _worse(look.slopes, {}))


def _well_elsewhere(model: Model, missing: Masks) -> bool:
    """Whether all is a number at an upper or a lower quantile of every site."""
    data = {name: jnp.asarray(array) for name, array in model.arguments.data.items()}
    for normal in (1.0, -1.0):
        try:
            if _well(_look(model, {}, missing, off_centre(model, normal, data))):
                return True
        except (NotImplementedError, TypeError, ValueError):  # a site without such a point
            continue
    return False


LOW = -1e30  # in place of -inf: no density is near it, and twice as much is a number too
STATES = 6  # draws of the discrete sites, and as many of their values for all elements at once


def _counted_always(
    model: Model, missing: Masks, found: _Look
) -> list[tuple[str, tuple[int, ...]]] | None:
    """The entries of densities that count -inf of the data at all values of the discrete sites.

    With a low number in its place a density is that number times how many of them it counts. None
    where it does not enter so.
    """
    arrays = {n: a for n, a in model.arguments.data.items() if a.dtype.kind == "f"}
    held = {n: a for n, a in arrays.items() if not np.isfinite(a).all()}
    if any((np.isnan(a) | np.isposinf(a)).any() for a in held.values()):
        return None
    if _worse(found.slopes, {}) or any(np.isnan(d).any() for d in found.densities.values()):
        return None
    once, twice = (
        {n: np.where(np.isneginf(a), low, a) for n, a in held.items()} for low in (LOW, 2 * LOW)
    )
    counts: dict[str, list[np.ndarray]] = {}
    for point in _states(model):
        low, lower = (_look(model, filled, missing, point).densities for filled in (once, twice))
        for name in low:
            count = (lower[name] - low[name]) / LOW
            if (np.abs(low[name] - LOW * count) > 1e-6 * abs(LOW)).any():
                return None  # it is no term of the sum
            counts.setdefault(name, []).append(count)
    always = {n: (np.min(c, axis=0) > 0.5) & (np.ptp(c, axis=0) < 0.5) for n, c in counts.items()}
    places = [(n, tuple(map(int, i))) for n, bad in always.items() for i in np.argwhere(bad)]
    return places if counts else None


def _states(model: Model) -> Iterator[dict[str, Array]]:
    """One draw from the prior with other values of its discrete sites; none if it has none."""
    first = model.draw(jax.random.key(0))
    whole = [n for n, a in first.items() if not jnp.issubdtype(a.dtype, jnp.floating)]
    if not whole:
        return
    draws = [first, *(model.draw(jax.random.key(number)) for number in range(1, STATES))]
    for drawn in draws:
        yield {**first, **{name: drawn[name] for name in whole}}
    seen = {name: np.unique(np.stack([drawn[name] for drawn in draws])) for name in whole}
    for number in range(min(STATES, max(map(len, seen.values())))):
        same = {n: v[min(number, len(v) - 1)] for n, v in seen.items()}
        yield {**first, **{n: jnp.full_like(first[n], v) for n, v in same.items()}}


def _error(name: str, array: np.ndarray, record: Record) -> LowerboundError:
    bad = np.isnan(array)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        reached = {*record.depending_on(name)} if name in record.names else set()
        entries = (entry.name for entry in record.entries if reached & {*entry.parameters})
        return NaNDataError(name, index, int(bad.sum()), array.shape, next(entries, None))
    index = tuple(int(i) for i in np.argwhere(np.isinf(array))[0])
    return InfiniteDataError(name, index, float(array[index]), array.shape)


def _number(array: np.ndarray, bad: np.ndarray) -> float:
    return float(array[~bad][0]) if not bad.all() else 1.0


@dataclass(frozen=True)
class _Look:
    """The densities of all sites at a draw from the prior, and the slopes of their sum."""

    densities: Numbers
    slopes: Numbers


def _look(
    model: Model,
    filled: Mapping[str, np.ndarray],
    missing: Masks,
    point: Mapping[str, Array] | None = None,
) -> _Look:
    arguments = model.arguments.replace(filled)
    program = dataclasses.replace(model, arguments=arguments)
    drawn = model.draw(jax.random.key(0)) if point is None else dict(point)
    moving = {n: a for n, a in drawn.items() if jnp.issubdtype(a.dtype, jnp.floating)}
    data = {name: jnp.asarray(array) for name, array in arguments.data.items()}
    masks = {name: jnp.asarray(mask) for name, mask in missing.items()}

    def total(moving: Mapping[str, Array]) -> tuple[Array, dict[str, Array]]:
        sites = program.run({**drawn, **moving}, data, masks)
        densities = {name: density.log_prob() for name, density in sites.items()}
        return sum((d.sum() for d in densities.values()), jnp.zeros(())), densities

    (_, densities), slopes = lightly(jax.value_and_grad(total, has_aux=True))(moving)
    return _Look(_numpy(densities), _numpy(slopes))


def _attempt(model: Model, filled: Mapping[str, np.ndarray], missing: Masks) -> _Look:
    """The same with numbers in place of some entries; of a program that then fails, nothing."""
    try:
        return _look(model, filled, missing)
    except Exception:  # the program counts its NaN, say, and has other sites without them
        return _Look({}, {})


def _numpy(arrays: Mapping[str, Any]) -> Numbers:
    return {name: np.asarray(array) for name, array in arrays.items()}


def _worse(found: Numbers, usual: Numbers) -> str | None:
    """The first site whose number is not finite where it usually is (or is not known to be not)."""
    for name, numbers in found.items():
        other = usual.get(name)
        known = other if other is not None and other.shape == numbers.shape else np.zeros(())
        if (~np.isfinite(numbers) & np.isfinite(known)).any():
            return name
    return None
