"""Reads beyond the end of an array, where codes and data tell: JAX takes the last entry instead."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from lowerbound.compiled import traced
from lowerbound.compiled.host import hosted
from lowerbound.errors import CodeRangeError, LowerboundError, ReadBeyondWarning
from lowerbound.model.dependence import Inputs, dependence, restrict, scan_sizes

PROMISED = jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS  # as of a[codes]
MOST = 1.0  # seconds that NumPy may take to compute positions
FILLED = jax.lax.GatherScatterMode.FILL_OR_DROP  # what lies beyond has a value that is given


@dataclass(frozen=True, eq=False)
class _Read:
    """Places of an array, as an equation reads it: the array, and where on each axis."""

    array: Any
    positions: tuple[Any, ...]
    axes: tuple[int, ...]  # of the array; one of positions each, or of their last axis
    sizes: tuple[int, ...]
    promised: bool  # to be within the array, as of codes
    stacked: bool  # the positions of all axes are one array


def check_reads(closed: ClosedJaxpr, inputs: Sequence[tuple[str, Any]]) -> None:
    """Raise where codes lead beyond an array; warn where a step of a loop reads one after the last.

    inputs: names and values of what the program is given; None is the value of a latent site.
    Positions that depend on latent sites, or take long to compute, are not looked at.
    """
    latent = {i: name for i, (name, value) in enumerate(inputs) if value is None}
    values = [
        _unknown(variable) if value is None else value
        for variable, (_, value) in zip(closed.jaxpr.invars, inputs, strict=True)
    ]
    try:
        _check(closed, values, latent)
        for equation in closed.jaxpr.eqns:
            if equation.primitive.name == "scan":
                _check_steps(closed, equation, values, latent)
    except (LowerboundError, ReadBeyondWarning):
        raise
    except Exception:  # whatever an unusual program holds, what cannot be looked at is not refused
        return


def _unknown(variable: Any, *rows: int) -> np.ndarray:
    """An array in the place of one that nothing depends on; keys of random numbers have others."""
    dtype = variable.aval.dtype
    is_key = jnp.issubdtype(dtype, jax.dtypes.prng_key)
    return np.zeros((*rows, *variable.aval.shape), bool if is_key else dtype)


def _check(closed: ClosedJaxpr, values: Sequence[Any], latent: Mapping[int, str]) -> None:
    reads = list(_reads(closed.jaxpr))
    found = _known(closed, [p for one in reads for p in one.positions], values, latent)
    owners = _dependence(closed.jaxpr, [one.array for one in reads])
    for one, own in zip(reads, owners, strict=True):
        _judge(one, _places(one, found), [latent[i] for i in sorted(own & set(latent))])


def _check_steps(
    closed: ClosedJaxpr, scan: Any, values: Sequence[Any], latent: Mapping[int, str]
) -> None:
    """The reads of the steps of a scan, all of them at once; what it hands on is not known."""
    body, (fixed, carries) = scan.params["jaxpr"], scan_sizes(scan.params)
    reads = list(_reads(body.jaxpr))
    if not reads:
        return
    known = _known(closed, [v for v in scan.invars if not isinstance(v, Literal)], values, latent)
    owners = _dependence(closed.jaxpr, scan.invars)
    given: list[Any] = []
    hidden: dict[int, str] = {}
    for i, (outer, inner) in enumerate(zip(scan.invars, body.jaxpr.invars, strict=True)):
        value = outer.val if isinstance(outer, Literal) else known.get(outer)
        carried = fixed <= i < fixed + carries
        if value is None or carried:
            names = [latent[n] for n in sorted(owners[i] & set(latent))]
            hidden[i] = ", ".join(names)
            value = _unknown(inner, *(() if i < fixed + carries else (scan.params["length"],)))
        given.append(value)
    steps = [None if i < fixed + carries else 0 for i in range(len(given))]
    positions = [p for one in reads for p in one.positions]
    found = _known(body, positions, given, hidden, steps)
    for one, own in zip(reads, _dependence(body.jaxpr, [r.array for r in reads]), strict=True):
        names = [hidden[i] for i in sorted(own & set(hidden)) if hidden[i]]
        _judge(one, _places(one, found), names)


def _places(one: _Read, found: Mapping[Any, np.ndarray]) -> list[Any]:
    """Where an array is read, axis by axis; None where that is not known."""
    return [p.val if isinstance(p, Literal) else found.get(p) for p in one.positions]


def _reads(jaxpr: Jaxpr) -> Iterator[_Read]:
    """The reads of a program at places that it computes."""
    for equation in jaxpr.eqns:
        kind, parameters = equation.primitive.name, equation.params
        if kind == "gather" and parameters["mode"] != FILLED:
            axes = parameters["dimension_numbers"].start_index_map
            sizes = tuple(parameters["slice_sizes"][axis] for axis in axes)
            codes = parameters["mode"] == PROMISED
            yield _Read(equation.invars[0], (equation.invars[1],), tuple(axes), sizes, codes, True)
        elif kind == "dynamic_slice":
            sizes = tuple(parameters["slice_sizes"])
            places = tuple(equation.invars[1 : 1 + len(sizes)])
            yield _Read(equation.invars[0], places, tuple(range(len(sizes))), sizes, False, False)


def _known(
    closed: ClosedJaxpr,
    wanted: Sequence[Any],
    values: Sequence[Any],
    latent: Mapping[int, str],
    steps: Sequence[int | None] | None = None,
) -> dict[Any, np.ndarray]:
    """What depends on no latent site, and NumPy computes in no time; of all `steps` at once."""
    names = list(dict.fromkeys(v for v in wanted if not isinstance(v, Literal)))
    depends = _dependence(closed.jaxpr, names)
    names = [v for v, own in zip(names, depends, strict=True) if not own & set(latent)]
    if not names:
        return {}
    whole = ClosedJaxpr(closed.jaxpr.replace(outvars=names), closed.consts)
    part = restrict(whole, range(len(names)))
    if steps is not None and 0 in steps:
        part = traced(jax.vmap(jaxpr_as_fun(part), in_axes=tuple(steps)))(*values)
    run = hosted(part)
    if run is None or run.seconds > MOST:
        return {}
    return dict(zip(names, run(*values), strict=True))


def _dependence(jaxpr: Jaxpr, names: Sequence[Any]) -> list[Inputs]:
    part: Jaxpr = jaxpr.replace(outvars=list(names))  # type: ignore[no-untyped-call]
    return dependence(part)


def _judge(one: _Read, positions: Sequence[Any], names: Sequence[str]) -> None:
    """Raise or warn where a place is known to be beyond the array."""
    if any(place is None for place in positions):
        return
    if one.stacked:
        positions = list(np.moveaxis(np.asarray(positions[0]), -1, 0))
    for place, axis, size in zip(positions, one.axes, one.sizes, strict=True):
        found, length = np.asarray(place), one.array.aval.shape[axis]
        beyond = found[(found < 0) | (found > length - size)]
        if not beyond.size:
            continue
        if one.promised or names:
            raise CodeRangeError(names, length, int(beyond.flat[0]))
        warnings.warn(ReadBeyondWarning(length, int(beyond.flat[0])), stacklevel=2)
