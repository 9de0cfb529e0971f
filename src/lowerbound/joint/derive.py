"""From a model to the terms of log p(x, z): one scalar value per site.

The program is traced once into a jaxpr that yields each site's distribution parameters; the jaxpr
is interpreted with latent sites as atoms and data as (traced) constants, and each site's density
template is applied to the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import jax

from lowerbound.joint.blocks.kind import FAMILIES
from lowerbound.joint.rules.elementwise import NAMED
from lowerbound.joint.rules.interpret import RULES, interpret
from lowerbound.joint.templates.table import TEMPLATES
from lowerbound.joint.terms.expression import OPERATIONS
from lowerbound.joint.terms.impossible import possible
from lowerbound.joint.terms.indices import Array
from lowerbound.joint.terms.value import (
    Operand,
    Outcome,
    Poison,
    add,
    broadcast,
    lift,
    times,
    total,
)
from lowerbound.joint.traced_program import Program


@dataclass(frozen=True)
class Constraint:
    """A latent site tied to data by an observed Delta: its value, what it must equal."""

    site: str
    value: Outcome
    observed: Outcome


@dataclass(frozen=True)
class Derivation:
    """log p as one scalar value (or poison) per site, the hard constraints, and latent masks.

    `constants` are the parameters of latent sites that are constants of their factors, by name.
    """

    densities: dict[str, Outcome]
    constraints: tuple[Constraint, ...]
    constants: dict[str, dict[str, Outcome]]
    masks: dict[str, Operand]


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
    densities: dict[str, Outcome] = {}
    found: list[Constraint] = []
    constants: dict[str, dict[str, Outcome]] = {}
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


def _value(operand: Operand) -> Outcome:
    return operand if isinstance(operand, Poison) else lift(operand)


def _summed(
    value: Operand,
    record: Mapping[str, Operand],
    fixed: Mapping[str, Any],
    weight: tuple[int, Array] | None,
) -> Outcome:
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
