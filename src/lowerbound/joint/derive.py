"""From a model to the terms of log p(x, z): one scalar value per site.

The program is traced once into a jaxpr that yields each site's distribution parameters; the jaxpr
is interpreted with latent sites as atoms and data as (traced) constants, and each site's density
template is applied to the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax.extend import core as jex
from numpyro.distributions import constraints

from lowerbound.joint.rules.interpret import interpret
from lowerbound.joint.templates.nonconjugate import ALL_TEMPLATES
from lowerbound.joint.terms.labelled import Array, Atom, Constant, Factor, Label, Term
from lowerbound.joint.terms.value import (
    Operand,
    Poison,
    Value,
    add,
    atom_value,
    broadcast,
    lift,
    times,
    total,
)
from lowerbound.model import Model, Site


@dataclass(frozen=True)
class Latent:
    """What the derivation needs to know of a latent site."""

    name: str
    shape: tuple[int, ...]
    domain: str
    support_values: np.ndarray | None = None
    lower: float = -math.inf  # the bounds of an interval
    upper: float = math.inf

    def value(self) -> Value:
        """The site as a value: sum_k v_k 1[z=k] when discrete, else itself."""
        if self.support_values is None:
            positive = self.domain == "interval" and self.lower >= 0.0
            domain = "positive" if positive else self.domain
            return atom_value(Atom(self.name, domain=domain), self.shape)
        count = len(self.support_values)
        atom = Atom(self.name, "indicator", float(count), "discrete")
        indicator = atom_value(atom, self.shape)
        (term,) = indicator.terms
        category = Label(count)
        factor = Factor(atom, (*term.latents[0].index, category))
        support = Factor(Constant(np.asarray(self.support_values)), (category,))
        return replace(indicator, terms=(Term(1.0, (support,), (factor,)),))


@dataclass(frozen=True)
class Program:
    """The traced program: a jaxpr of parameters, and how to read its outputs."""

    jaxpr: jex.ClosedJaxpr
    outputs: Any  # PyTreeDef of {site: {"parameters": ..., "value": ..., ...}}
    static: dict[str, dict[str, Any]]
    latents: tuple[Latent, ...]
    data_names: tuple[str, ...]


@dataclass(frozen=True)
class Constraint:
    """A latent site tied to data by an observed Delta: its value, what it must equal.

    Also a Pólya-Gamma site and its count, which is a constant of its factor.
    """

    site: str
    value: Value | Poison
    observed: Value | Poison


@dataclass(frozen=True)
class Derivation:
    """log p as one scalar value (or poison) per site, the hard constraints, and latent masks."""

    densities: dict[str, Value | Poison]
    constraints: tuple[Constraint, ...]
    masks: dict[str, Operand]


def latent_of(site: Site) -> Latent:
    """A latent site as the derivation sees it."""
    domain = domain_of(site)
    bounds = _bounds(site) if domain == "interval" else None
    lower, upper = bounds or (-math.inf, math.inf)
    return Latent(site.name, site.shape, domain, site.support_values, lower, upper)


_DOMAINS = (
    (constraints.real, "real"),
    (constraints.real_vector, "real"),
    (constraints.real_matrix, "real"),
    (constraints.positive, "positive"),
    (constraints.nonnegative, "positive"),
    (constraints.unit_interval, "unit"),
    (constraints.simplex, "simplex"),
    (constraints.positive_definite, "matrix"),
    (constraints.nonnegative_integer, "count"),
)

# Auxiliary variables, whose factor is of one kind whatever enters.
_AUXILIARY = {"PolyaGamma": "polya_gamma", "LevyWeight": "inverse_gaussian", "Offset": "point"}


def domain_of(site: Site) -> str:
    """The kind of set a latent site lives in, which decides the functions that may act on it."""
    support = _innermost(site)
    if site.support_values is not None:
        return "discrete"
    if site.distribution in _AUXILIARY:
        return _AUXILIARY[site.distribution]
    for constraint, domain in _DOMAINS:
        if type(support) is type(constraint):
            return domain
    match _bounds(site):
        case None:
            return "other"
        case (0.0, 1.0):
            return "unit"
        case (0.0, math.inf):
            return "positive"
    return "interval"


def _innermost(site: Site) -> Any:
    support: Any = site.support
    while isinstance(support, type(constraints.independent(constraints.real, 1))):
        support = support.base_constraint
    return support


_INTERVALS = tuple(
    type(constraint)
    for constraint in (
        constraints.interval(0.0, 1.0),
        constraints.open_interval(0.0, 1.0),
        constraints.greater_than(0.0),
        constraints.greater_than_eq(0.0),
        constraints.less_than(0.0),
        constraints.less_than_eq(0.0),
    )
)


def _bounds(site: Site) -> tuple[float, float] | None:
    """The fixed bounds of an interval, the same for all elements of the site; else None."""
    support = _innermost(site)
    if not isinstance(support, _INTERVALS):
        return None
    found = []
    for name, unbounded in (("lower_bound", -math.inf), ("upper_bound", math.inf)):
        bound = getattr(support, name, unbounded)
        if isinstance(bound, jax.core.Tracer):
            return None
        array = np.asarray(bound, dtype=float)
        if not array.size or not (array == array.flat[0]).all():
            return None
        found.append(float(array.flat[0]))
    return found[0], found[1]


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
            elif kind in ALL_TEMPLATES:
                parameters: dict[str, Any] = ALL_TEMPLATES[kind].parameters(density.distribution)
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
    closed, out_shape = jax.make_jaxpr(outputs, return_shape=True)(shapes, arrays)
    return Program(closed, jax.tree.structure(out_shape), static, latents, names)


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
    inputs += [data[name] for name in sorted(program.data_names)]
    flat = interpret(program.jaxpr, inputs)
    records = jax.tree.unflatten(program.outputs, flat)
    densities: dict[str, Value | Poison] = {}
    found: list[Constraint] = []
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
            if fixed["kind"] == "PolyaGamma":
                count = _value(record["parameters"]["total_count"])
                found.append(Constraint(name, _value(record["value"]), count))
            template = ALL_TEMPLATES[fixed["kind"]]
            value = template.density(
                record["value"], **record["parameters"], **fixed.get("strings", {})
            )
        densities[name] = _summed(value, record, fixed, weights.get(name))
    latents = {latent.name for latent in program.latents}
    masks = {n: r["mask"] for n, r in records.items() if n in latents and "mask" in r}
    return Derivation(densities, tuple(found), masks)


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
