"""Which sites have exact factors given all others, and the program without them, certified."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import biject_to

from lowerbound.compiled.host import lightly
from lowerbound.compute.engine import derived
from lowerbound.errors import (
    CertificateError,
    ChosenSitesError,
    LowerboundError,
    UncertifiedError,
    UnknownSiteError,
)
from lowerbound.family.completed.collapsed_sites import Collapse
from lowerbound.joint import Joint
from lowerbound.joint.latents import domain_of
from lowerbound.joint.multiaffine import Structure
from lowerbound.joint.terms.domain import POSITIVE, SIMPLEX, UNIT
from lowerbound.model import Model, trace_model
from lowerbound.model.program import MaskMissing
from lowerbound.rewrite.given_values import with_given
from lowerbound.rewrite.hidden_sites import parents_among

LEAST = 3  # numbers, from which it is worth while to integrate them out
MOST_JOINT = 200  # numbers of one Gaussian vector, whose factor is found at every point
MOST_TRIED = 8  # sites that are looked at, the largest first
POINTS, MOST_POINTS = 2, 16  # at which the densities are compared, and that are tried
SPREAD = 0.5  # of these points, on the unconstrained space
CLOSE = 1e-6  # relative, of log densities: JAX's betaln has seven digits


def collapse(model: Model, sites: Sequence[str]) -> Collapse:
    """The program with these sites integrated out.

    Raises ChosenSitesError, with the reason, where they have no exact factors given all others, or
    these are not independent; CertificateError where the density is not that of the program.
    """
    wanted = set(sites)
    for name in sites:
        if name not in model.latent:
            raise UnknownSiteError("Collapsed got", name, tuple(model.latent))
    names = tuple(name for name in model.latent if name in wanted)
    key = f"collapse {names}"
    if key not in model.findings:
        with jax.enable_x64(True):
            try:
                model.findings[key] = certified(_collapse(model, names))
            except LowerboundError as error:
                model.findings[key] = error
    found: Collapse | LowerboundError = model.findings[key]
    if isinstance(found, LowerboundError):
        raise found
    return found


def _collapse(model: Model, names: tuple[str, ...]) -> Collapse:
    rest = [name for name in model.latent if name not in names]
    if not rest:
        raise ChosenSitesError.inexact(names, "no latent site would be left")
    for name, site in model.latent.items():
        if site.support is None or site.support.is_discrete:
            kind = "discrete" if site.support is not None else "of a support that is not fixed"
            raise ChosenSitesError.inexact(names, f"'{name}' is {kind}", site.where)
    joint = _given(model, rest)
    reason = _misfit(joint)
    if reason:
        raise ChosenSitesError.inexact(names, *reason)
    parents = parents_among(model, names)
    reached = [site.name for site in model.sites if parents.get(site.name)]
    moved = tuple(name for name in reached if name in rest)
    hidden = tuple(name for name in reached if name not in moved)
    return Collapse(model, joint, hidden, moved)


def _given(model: Model, rest: Sequence[str]) -> Joint:
    """What is derived of the program with the rest as data; once for a model."""
    key = f"given {tuple(rest)}"
    if key in model.findings:
        known: Joint = model.findings[key]
        return known
    masked = replace(model, function=_masked(model))
    first = {name: value[None] for name, value in _point(model, rest, 0).items()}
    call = model.arguments.call(model._inputs(model.arguments.data))
    found = model.findings[key] = derived(with_given(masked, first, *call))
    return found


def _masked(model: Model) -> Callable[..., Any]:
    if not model.missing:
        return model.function

    @functools.wraps(model.function)
    def program(*args: Any, **kwargs: Any) -> Any:
        with MaskMissing(model.missing):
            return model.function(*args, **kwargs)

    return program


def _misfit(joint: Joint) -> tuple[str, str] | tuple[()]:
    """Why the rest of a program is no product of exact factors, and where; empty where it is."""
    structure = joint.structure
    if structure.residuals:
        first = structure.residuals[0]
        entered = f"{', '.join(map(repr, first.latents))} enters '{first.site}'"
        return f"given the rest, {entered} through {first.operation}", first.where
    if not structure.independent:
        return "given the rest, they are not independent of each other", ""
    for block in structure.blocks:
        own = ", ".join(map(repr, block.sites))
        if block.family.free_form or structure.by_quadrature:
            return f"{own} has no factor of a closed form", ""
        if block.sequential or block.presence is not None:
            return f"elements of {own} meet, or are masked", ""
    return ()


# --------------------------------------------------------------------------------------------------
# Which sites


def collapsible(model: Model) -> tuple[str, ...]:
    """The sites that have exact factors, not Gaussian, given the rest, and hyperparameters in it.

    Positive numbers, shares and simplices whose prior depends on other latent sites, several in
    all: the largest first, then those that are independent of it given the rest.
    """
    key = "collapsible"
    if key not in model.findings:
        with jax.enable_x64(True):
            model.findings[key] = _collapsible(model)
    found: tuple[str, ...] = model.findings[key]
    return found


def _collapsible(model: Model) -> tuple[str, ...]:
    latent = model.latent
    sizes = {
        name: math.prod(site.shape)
        for name, site in latent.items()
        if domain_of(site) in (POSITIVE, UNIT, SIMPLEX)
    }
    if sum(sizes.values()) < LEAST or any(
        site.support is None or site.support.is_discrete for site in latent.values()
    ):
        return ()
    parents = parents_among(model, tuple(latent))
    wanted = [name for name in sizes if parents[name] - {name}]
    chosen = _independent(model, sorted(wanted, key=lambda name: -sizes[name]))
    return chosen if sum(sizes[name] for name in chosen) >= LEAST else ()


def _independent(model: Model, ordered: Sequence[str]) -> tuple[str, ...]:
    """Those of some sites that have exact factors given the rest: all, or one after the other."""
    latent = model.latent

    def fits(names: Sequence[str]) -> bool:
        rest = [name for name in latent if name not in names]
        return bool(rest) and not _misfit(_given(model, rest))

    chosen: list[str] = list(ordered) if ordered and fits(ordered) else []
    for name in ordered[:MOST_TRIED] if not chosen else ():
        if fits([*chosen, name]):
            chosen.append(name)
    return tuple(name for name in latent if name in chosen)


def largest_factor(model: Model) -> Collapse | None:
    """The program without its largest factor that is exact given the rest; None without any."""
    with jax.enable_x64(True):
        structure = derived(model).structure
        sites = collapsible(model) if structure.residuals else _largest(structure, model)
        if not sites:
            return None
        try:
            return collapse(model, sites)
        except LowerboundError:
            return None


def _largest(structure: Structure, model: Model) -> tuple[str, ...]:
    """The sites of the factor of the most numbers that can be integrated out at every point."""
    curved = frozenset().union(*(s.curved for s in structure.summands))
    sizes = {}
    for block in structure.blocks:
        joint = sum(layout.size for layout in block.layouts.values())
        plain = not (block.family.free_form or block.sequential or block.presence is not None)
        if plain and block.number not in curved and joint <= MOST_JOINT:
            sizes[block.sites] = sum(math.prod(model.latent[s].shape) for s in block.sites)
    return max(sizes, key=lambda sites: sizes[sites], default=())


# --------------------------------------------------------------------------------------------------
# The certificate


def certified(found: Collapse) -> Collapse:
    """The same, where log p(x, theta) + log p(z | x, theta) = log p(x, z, theta) at random points.

    Raises CertificateError where they differ, UncertifiedError where no density is finite.
    """
    model = found.model
    without = trace_model(found.function, *found.call)

    def both(values: dict[str, Array], data: Mapping[str, Any]) -> tuple[Array, Array]:
        theta = {name: values[name] for name in found.rest}
        given = found.log_prob(found.conditional(theta, data), theta, values, data)
        return without.log_density(theta, data) + given, model.log_density(values, data)

    compared, agreed = lightly(both, POINTS), 0
    for number in range(MOST_POINTS):
        values = _point(model, tuple(model.latent), number)
        derived_, expected = map(float, compared(values, model.arguments.data))
        if not (math.isfinite(derived_) and math.isfinite(expected)):
            continue
        if abs(derived_ - expected) > CLOSE * (1.0 + abs(expected)):
            raise CertificateError(derived_, expected)
        agreed += 1
        if agreed == POINTS:
            return found
    raise UncertifiedError(MOST_POINTS, list(found.names))


def _point(model: Model, names: Sequence[str], number: int) -> dict[str, np.ndarray]:
    """Values of some sites, about the middle of their supports."""
    rng, found = np.random.default_rng(number), {}
    for name in names:
        site = model.latent[name]
        transform: Any = biject_to(site.support)
        u = SPREAD * rng.standard_normal(transform.inverse_shape(site.shape))
        found[name] = np.asarray(transform(jnp.asarray(u)))
    return found
