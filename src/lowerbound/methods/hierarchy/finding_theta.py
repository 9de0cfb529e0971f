"""Which sites are hyperparameters: those that no linear predictor can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from lowerbound.compiled import Kept, quickly
from lowerbound.errors import NoPredictorsError
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.hierarchy.reading.flat_program import FlatProgram, Name, flattened
from lowerbound.methods.hierarchy.reading.plain_terms import in_plain_terms
from lowerbound.methods.hierarchy.reading.splitting import split
from lowerbound.model import Model
from lowerbound.model.dependence import digest
from lowerbound.rewrite.coordinates import Coordinates

MOST = 15  # numbers of theta
_programs: Kept[dict[object, Any]] = Kept(16)  # what equal programs share, with whatever data


def predictors_of(model: Model, given: Sequence[str] = ()) -> Predictors:
    """The predictors of a program, with the sites `given` part of theta, and others as need be.

    Theta are the sites that are not real, and those that meet the predictors of others. Raises
    NoPredictorsError with the reason where there are none.
    """
    coordinates = Coordinates.of(model)
    if len(coordinates.supports) < len(coordinates.shapes):
        raise NoPredictorsError("the support of some site depends on other sites")
    theta = [n for n in coordinates.shapes if n in given or not _is_real(coordinates, n)]
    while True:
        z = [name for name in coordinates.shapes if name not in theta]
        count = sum(int(np.prod(coordinates.shapes[name], dtype=int)) for name in theta)
        if count > MOST:
            what = f"{count} numbers of {_listed(theta)}"
            raise NoPredictorsError(f"{what} are too many to be integrated")
        if not z:
            raise NoPredictorsError("no site is left given these")
        try:
            return _split(model, coordinates, tuple(theta), tuple(z))
        except NoPredictorsError as error:
            if not error.sites:
                raise
            theta = [n for n in coordinates.shapes if n in theta or n in error.sites]


def _split(
    model: Model, coordinates: Coordinates, theta: tuple[str, ...], z: tuple[str, ...]
) -> Predictors:
    names = sorted(model.arguments.data)
    leaves = tuple(np.asarray(model.arguments.data[name]) for name in names)

    def density(*inputs: Any) -> Array:
        sites = dict(zip((*theta, *z), inputs, strict=False))
        data = dict(zip(names, inputs[len(sites) :], strict=True))
        return coordinates.log_density_at(sites, data)

    shapes = [np.zeros(coordinates.shapes[name]) for name in (*theta, *z)]
    closed = jax.make_jaxpr(density)(*shapes, *leaves)
    closed = in_plain_terms(closed, range(len(theta), len(theta) + len(z)))
    shared = _programs.of(digest(closed, *theta, "|", *z, *names), dict)
    flat = flattened(closed)
    inputs = flat.inputs
    start = len(theta) + len(z)

    def known(flat: FlatProgram, wanted: Sequence[Name]) -> list[np.ndarray]:
        if not wanted:
            return []
        makers = flat.makers

        def compute(leaves: Sequence[Any]) -> list[Any]:
            return flat.values(wanted, dict(zip(inputs[start:], leaves, strict=True)), makers)

        key = ("places", flat.decided, tuple(name.number for name in wanted))
        if key not in shared:
            shared[key] = quickly(compute)
        return [np.asarray(value) for value in shared[key](list(leaves))]

    parts = split(
        flat, inputs[: len(theta)], dict(zip(z, inputs[len(theta) :], strict=False)), known
    )
    entries = tuple((len(parts.maps.of(name)), name.number) for name in parts.cut)
    lengths = tuple(map(len, parts.maps.tape.indices))
    compiled = shared.setdefault(("programs", parts.flat.decided, entries, lengths), {})
    found = Predictors(model, coordinates, theta, z, parts, leaves, compiled)
    _check(found)
    return found


def _check(found: Predictors) -> None:
    """Raise where A z + b is not what the program computes: a rule would be wrong."""
    rng = np.random.default_rng(1)
    t, z = 0.3 * rng.normal(size=found.dimension), rng.normal(size=found.size)
    offset, whole = found.at(t, np.zeros(found.size)), found.at(t, z)
    sums = np.zeros(found.count)
    products = found.entries(t) * z[found.columns]
    np.add.at(sums, found.rows, products)
    scale = np.zeros(found.count)
    np.add.at(scale, found.rows, abs(products))
    scale += abs(offset) + 1.0
    if not (abs(offset + sums - whole) <= 1e-9 * scale).all():
        raise NoPredictorsError("some term is not what its linear predictors say")


def _is_real(coordinates: Coordinates, site: str) -> bool:
    part = coordinates.part(site)
    return part.stop == part.start or coordinates.is_real(part.start)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
