"""From a model to the terms of log p(x, z): one scalar value per site.

The program is traced once into a jaxpr that yields each site's distribution parameters; the jaxpr
is interpreted with latent sites as atoms and data as (traced) constants, and each site's density
template is applied to the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax.extend import core as jex

from lowerbound.compiled import traced
from lowerbound.joint.blocks.kind import FAMILIES
from lowerbound.joint.latents import Latent, latent_of
from lowerbound.joint.rules.elementwise import NAMED
from lowerbound.joint.rules.interpret import RULES, interpret
from lowerbound.joint.templates.table import TEMPLATES
from lowerbound.joint.terms.expression import OPERATIONS
from lowerbound.joint.terms.impossible import holds_infinity, possible
from lowerbound.joint.terms.indices import Array
from lowerbound.joint.terms.value import (
    Operand,
    Poison,
    Value,
    add,
    broadcast,
    lift,
    times,
    total,
)
from lowerbound.model import Model
from lowerbound.model.dependence import digest
from lowerbound.model.reads import check_reads


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


@dataclass(frozen=True)
class Constraint:
    """A latent site tied to data by an observed Delta: its value, what it must equal."""

    site: str
    value: Value | Poison
    observed: Value | Poison


@dataclass(frozen=True)
class Derivation:
    """log p as one scalar value (or poison) per site, the hard constraints, and latent masks.

    `constants` are the parameters of latent sites that are constants of their factors, by name.
    """

    densities: dict[str, Value | Poison]
    constraints: tuple[Constraint, ...]
    constants: dict[str, dict[str, Value | Poison]]
    masks: dict[str, Operand]


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
    closed, out_shape = traced(outputs, return_shape=True)(shapes, arrays)
    values = [(name, None) for name in sorted(shapes)] + [(n, data[n]) for n in sorted(arrays)]
    check_reads(closed, values)
    infinite = frozenset(name for name, array in data.items() if holds_infinity(array))
    return Program(closed, jax.tree.structure(out_shape), static, latents, names, infinite)


def vocabulary() -> int:
    """A number that tells apart the tables that a derivation depends on."""
    tables: tuple[Mapping[str, object], ...] = (FAMILIES, RULES, NAMED, OPERATIONS, TEMPLATES)
    return hash(tuple(tuple(table.items()) for table in tables))


def derive(
    program: Program,
    data: Mapping[str, Array],
    weights: Mapping[str, tuple[int, Array]] = MappingProxyType({}),
    origins: Mapping[str, Array] = MappingProxyType({}),
) -> Derivation:
    """Interpret the program on the given (traced) data.

    `weights` multiplies the log density of a site along one batch axis: site -> (axis, array).
    A site with an origin c enters as c + its atom, so that its factor is about z - c: in
    x^2 - 2 x mu + mu^2 nothing then cancels when the data sit far from zero.
    """
    values: dict[str, Operand] = {latent.name: latent.value() for latent in program.latents}
    values.update({name: add(values[name], origin) for name, origin in origins.items()})
    # The jaxpr's inputs are flattened dictionaries, which JAX sorts by key.
    inputs: list[Operand] = [values[name] for name in sorted(values)]
    inputs += [
        possible(data[name]) if name in program.infinite else data[name]
        for name in sorted(program.data_names)
    ]
    flat = interpret(program.jaxpr, inputs)
    records = jax.tree.unflatten(program.outputs, flat)
    densities: dict[str, Value | Poison] = {}
    found: list[Constraint] = []
    constants: dict[str, dict[str, Value | Poison]] = {}
    latents = {latent.name for latent in program.latents}
    for name, record in records.items():
        fixed = program.static[name]
        if fixed["kind"] == "Delta":
            found.append(Constraint(name, _value(record["v"]), lift(record["value"])))
            value: Operand = record["log_density"]
        elif "log_prob" in record:
            value = record["log_prob"]
            if isinstance(value, Poison):  # an inner primitive would tell the reader nothing
                value = replace(value, operation=f"{fixed['kind']}.log_prob")
                if fixed["kind"] == "Inside":
                    value = replace(
                        value,
                        operation="the bounds of its support",
                        reason="what is possible depends on latent values",
                    )
                if fixed["kind"].startswith("Mixture"):
                    advice = "the mixture is marginalised; write its assignment as a Categorical"
                    value = replace(value, reason=advice)
        else:
            template = TEMPLATES[fixed["kind"]]
            if template.constants and name in latents:
                parameters = record["parameters"]
                constants[name] = {
                    constant: _value(parameters[parameter])
                    for parameter, constant in template.constants
                }
            value = template.density(
                record["value"], **record["parameters"], **fixed.get("strings", {})
            )
        densities[name] = _summed(value, record, fixed, weights.get(name))
    masks = {n: r["mask"] for n, r in records.items() if n in latents and "mask" in r}
    return Derivation(densities, tuple(found), constants, masks)


def _value(operand: Operand) -> Value | Poison:
    return operand if isinstance(operand, Poison) else lift(operand)


def _summed(
    value: Operand,
    record: Mapping[str, Operand],
    fixed: Mapping[str, Any],
    weight: tuple[int, Array] | None,
) -> Value | Poison:
    """Broadcast to the site's batch, apply mask, scale and weight, and sum."""
    batch, event = fixed["batch_shape"], fixed["event_shape"]
    shape = batch + event[: fixed["reinterpreted"]]
    if fixed.get("mask") is False:
        return lift(0.0)
    if not isinstance(value, Poison):
        (value,) = broadcast([lift(value)], shape)
    for part in ("mask", "scale"):
        extra: Operand | None = record.get(part)
        if extra is None and part == "scale" and fixed.get(part) is not None:
            extra = float(fixed[part])
        if extra is not None:
            value = times(value, extra)
    if weight is not None:
        axis, array = weight
        spread = [1] * len(shape)
        spread[axis] = len(array)
        value = times(value, array.reshape(spread))
    return total(add(value, 0.0))
