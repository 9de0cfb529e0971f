"""The traced program: the parameters of every site's density as functions of latents and data.

Observed sites of one row each, of which a loop in Python makes many, are one site with an axis of
rows where they have densities of one kind and depend on the same latent sites: a loop over rows
then costs what a plate does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from lowerbound.compiled import abreast, traced
from lowerbound.joint.latents import Latent, latent_of
from lowerbound.joint.templates.table import TEMPLATES
from lowerbound.joint.terms.impossible import holds_infinity
from lowerbound.model import Model
from lowerbound.model.checks.reads import check_reads
from lowerbound.model.dependence import dependence, digest

FEW = 20  # observed sites of one row each, which are kept apart


@dataclass(frozen=True)
class Program:
    """The traced program: a jaxpr of parameters, and how to read its outputs."""

    jaxpr: jex.ClosedJaxpr
    outputs: Any  # PyTreeDef of {site: {"parameters": ..., "value": ..., ...}}
    static: dict[str, dict[str, Any]]
    latents: tuple[Latent, ...]
    data_names: tuple[str, ...]
    infinite: frozenset[str] = frozenset()  # data that hold -inf or inf

    @cached_property
    def key(self) -> str:
        """A digest that equal programs share, whatever their data."""
        total = hashlib.sha256()
        parts: list[Any] = [digest(self.jaxpr), str(self.outputs), self.static, self.data_names]
        parts.append(sorted(self.infinite))
        for latent in self.latents:
            values = latent.support_values
            parts += [latent.name, latent.shape, latent.domain.name, latent.lower, latent.upper]
            parts.append(b"" if values is None else np.asarray(values).tobytes())
        for part in parts:
            total.update(part if isinstance(part, bytes) else repr(part).encode())
            total.update(b"\0")
        return total.hexdigest()


def abstract(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of which only shape and type are known."""
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def inputs_of(model: Model) -> dict[str, Any]:
    """The arrays a program depends on: data arguments, and masks of missing entries."""
    masks = {mask_name(site): mask for site, mask in model.missing.items()}
    return {**model.arguments.data, **masks}


def split_inputs(model: Model, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Data arguments and masks by site, as `Model.run` and `Model.log_density` take them."""
    data = {name: inputs[name] for name in model.arguments.data}
    return data, {site: inputs[mask_name(site)] for site in model.missing}


def mask_name(site: str) -> str:
    """The name of the input that says which entries of an observed site are missing."""
    return f"missing entries of {site}"


_programs: WeakKeyDictionary[Model, Program] = WeakKeyDictionary()


def trace_program(model: Model) -> Program:
    """The parameters of every site's density as functions of latents and data, traced once."""
    found = _programs.get(model)
    if found is None:
        found = _programs[model] = _trace_program(model)
    return found


def _trace_program(model: Model) -> Program:
    data = inputs_of(model)
    latents = tuple(latent_of(site) for site in model.latent.values())
    static: dict[str, dict[str, Any]] = {}
    names = tuple(data)

    def outputs(values: dict[str, Any], arrays: dict[str, Any]) -> dict[str, dict[str, Any]]:
        collected: dict[str, dict[str, Any]] = {}
        for name, density in model.run(values, *split_inputs(model, arrays)).items():
            kind = type(density.distribution).__name__
            record: dict[str, Any] = {}
            fixed: dict[str, Any] = {
                "kind": kind,
                "batch_shape": density.batch_shape,
                "event_shape": density.event_shape,
                "reinterpreted": density.reinterpreted,
            }
            if kind == "Delta":
                record["v"] = density.distribution.v
                record["log_density"] = density.distribution.log_density
                record["value"] = density.value
            elif kind in TEMPLATES:
                parameters: dict[str, Any] = TEMPLATES[kind].parameters(density.distribution)
                fixed["strings"] = {k: v for k, v in parameters.items() if isinstance(v, str)}
                record["parameters"] = {
                    k: v for k, v in parameters.items() if not isinstance(v, str)
                }
                record["value"] = density.value
            else:
                record["log_prob"] = density.distribution.log_prob(density.value)
            for part in ("mask", "scale"):
                extra = getattr(density, part)
                if extra is None or isinstance(extra, bool | int | float):
                    fixed[part] = extra
                else:
                    record[part] = extra
            collected[name] = record
            static[name] = fixed
        return collected

    shapes = {
        site.name: abstract(
            site.shape, np.dtype(int) if site.support_values is not None else np.dtype(float)
        )
        for site in model.latent.values()
    }
    arrays = {name: abstract(np.shape(a), a.dtype) for name, a in data.items()}
    closed, found = traced(outputs, return_shape=True)(shapes, arrays)
    values = [(name, None) for name in sorted(shapes)] + [(n, data[n]) for n in sorted(arrays)]
    check_reads(closed, values)
    structure = jax.tree.structure(found)
    rows = _rows(model, closed, structure, static)
    if rows:
        closed, structure, static = _in_rows(closed, structure, static, rows)
    infinite = frozenset(name for name, array in data.items() if holds_infinity(array))
    return Program(abreast(closed, len(latents)), structure, static, latents, names, infinite)


def _rows(
    model: Model, closed: jex.ClosedJaxpr, structure: Any, static: Mapping[str, Mapping[str, Any]]
) -> list[list[str]]:
    """The observed sites of one row each that are alike, where these are many."""
    single = [
        name
        for name, site in model.observed.items()
        if name in static
        and not site.batch_shape
        and not static[name]["reinterpreted"]
        and static[name]["kind"] != "Delta"
    ]
    if len(single) <= FEW:
        return []
    depends = dependence(closed.jaxpr)
    positions = jax.tree.unflatten(structure, range(structure.num_leaves))
    alike: dict[object, list[str]] = {}
    for name in single:
        places, own = jax.tree.flatten(positions[name])
        avals = tuple((closed.out_avals[n].shape, closed.out_avals[n].dtype) for n in places)
        latent = frozenset(i for n in places for i in depends[n] if i < len(model.latent))
        alike.setdefault((repr(static[name]), own, avals, latent), []).append(name)
    return [names for names in alike.values() if len(names) > 1]


def _in_rows(
    closed: jex.ClosedJaxpr,
    structure: Any,
    static: Mapping[str, dict[str, Any]],
    rows: Sequence[Sequence[str]],
) -> tuple[jex.ClosedJaxpr, Any, dict[str, dict[str, Any]]]:
    """The program with the sites of every group as one, by the name of the first."""
    first = {name: names for names in rows for name in names[:1]}
    others = {name for names in rows for name in names[1:]}

    def outputs(*inputs: Any) -> dict[str, Any]:
        records = jax.tree.unflatten(structure, jex.jaxpr_as_fun(closed)(*inputs))
        return {
            name: jax.tree.map(lambda *parts: jnp.stack(parts), *(records[n] for n in first[name]))
            if name in first
            else record
            for name, record in records.items()
            if name not in others
        }

    given = [abstract(aval.shape, aval.dtype) for aval in closed.in_avals]
    whole, found = traced(outputs, return_shape=True)(*given)
    fixed = {
        name: {**own, "batch_shape": (len(first[name]),)} if name in first else own
        for name, own in static.items()
        if name not in others
    }
    return whole, jax.tree.structure(found), fixed
