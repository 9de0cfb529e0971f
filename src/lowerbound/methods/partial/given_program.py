"""A program given some of its sites g, for q(g) q(z) with exact factors of z.

With g observed, log p is affine in the statistics of each factor of z, and its coefficients are
arrays that depend on g. Under q(g) the factors see the averages of these arrays, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import biject_to

from lowerbound.compiled import traced
from lowerbound.compute.engine import Engine, derived, engine_for
from lowerbound.errors import ChosenSitesError, Residual, UnknownSiteError
from lowerbound.joint import Joint, Statistics, Summand, energy, inputs_of
from lowerbound.joint.blocks.block import Read
from lowerbound.joint.energy.summands import Slot
from lowerbound.joint.terms.indices import Gather, Label, align, unique
from lowerbound.joint.traced_program import abstract
from lowerbound.model import Model
from lowerbound.model.dependence import dependence, digest
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.rewrite.given_values import given_name, with_given

MOST_PRODUCT = 5_000_000  # numbers in a product of arrays that depend on g
MOST_TRIALS = 8  # sites of which the smallest set is looked for


@dataclass(frozen=True)
class Formed:
    """A product of arrays of the compressed data, on all their labels."""

    parts: tuple[tuple[int, tuple[Label, ...]], ...]
    labels: tuple[Label, ...]


@dataclass(frozen=True, eq=False)
class Affine:
    """Summands of which each has at most one array that depends on g: `moving` numbers these.

    `formed` are products that follow the compressed data; `unfit` the blocks in which something is
    not affine: the expectation of a function whose constants depend on g, a support that does.
    """

    summands: tuple[Summand, ...]
    formed: tuple[Formed, ...]
    moving: tuple[int, ...]
    unfit: frozenset[int]


@dataclass(frozen=True, eq=False)
class GivenSites:
    """The program with the sites g as data: its engine, and its energy as a function of g."""

    engine: Engine
    coordinates: Coordinates
    affine: Affine
    key: str  # equal programs share what is compiled

    def arrays(self, vector: Array, inputs: Mapping[str, Any]) -> tuple[Array, ...]:
        """The arrays that the energy needs, at u = `vector`; traceable."""
        values = self.coordinates.constrain(vector, {})
        given = {given_name(name): value[None] for name, value in values.items()}
        arrays = self.engine.joint.compress({**inputs, **given})
        products = []
        for one in self.affine.formed:
            wide = [align(arrays[slot], span, one.labels) for slot, span in one.parts]
            products.append(jnp.asarray(reduce(lambda a, b: a * b, wide)))
        return (*arrays, *products)

    def density(self, vector: Array, inputs: Mapping[str, Any], means: Statistics) -> Array:
        """E_q(z)[log p(x, z, g(u))] + log |dg/du|."""
        value = energy(self.affine.summands, self.arrays(vector, inputs), means)
        return value + log_jacobian(self.coordinates, vector)


def log_jacobian(coordinates: Coordinates, vector: Array) -> Array:
    """Log |dg/du|, where every support is fixed."""
    total = jnp.zeros(())
    for name, part in coordinates.split(vector).items():
        transform = biject_to(coordinates.supports[name])
        total = total + jnp.sum(transform.log_abs_det_jacobian(part, transform(part)))
    return total


def given_sites(
    model: Model, sites: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[GivenSites, Model]:
    """The program given some sites, and its model; raises where the rest has no exact updates."""
    if set(sites) >= set(model.latent):
        raise ChosenSitesError.all_of_them(tuple(sites))
    program = conditioned_on(model, sites, args, kwargs)
    coordinates = coordinates_of(model, sites)
    left = left_over(program, sites)
    if left:
        raise ChosenSitesError.too_few(tuple(sites), left)
    engine = engine_for(program, np.dtype(float))
    known = engine.compiled.get("affine")
    if known is None:
        known = engine.compiled["affine"] = affine_in(engine.joint, sites)
    vector = abstract((coordinates.size,), np.dtype(float))
    written = traced(lambda u: (coordinates.constrain(u, {}), log_jacobian(coordinates, u)))
    return GivenSites(engine, coordinates, known, digest(written(vector))), program


def coordinates_of(model: Model, sites: Sequence[str]) -> Coordinates:
    """The unconstrained space of some continuous sites, whose supports must be fixed."""
    shapes, supports = {}, {}
    for name in sites:
        if name not in model.latent:
            raise UnknownSiteError("Over got sites with", name, tuple(model.latent))
        site = model.latent[name]
        if is_discrete(model, name):
            raise ChosenSitesError.discrete(name, site.distribution, site.where)
        if site.support is None:
            raise ChosenSitesError.moving(name, site.where)
        shapes[name] = tuple(biject_to(site.support).inverse_shape(site.shape))
        supports[name] = site.support
    ordered = [name for name in model.latent if name in shapes]
    return Coordinates(None, {n: shapes[n] for n in ordered}, {n: supports[n] for n in ordered})


def is_discrete(model: Model, name: str) -> bool:
    """Whether a latent site has no density."""
    site = model.latent[name]
    return site.support_values is not None or bool(site.support and site.support.is_discrete)


def conditioned_on(
    model: Model, sites: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Model:
    """The program with some sites as data, at a point of no special meaning."""
    coordinates = coordinates_of(model, sites)
    point = 0.3 * np.random.default_rng(0).standard_normal(coordinates.size)
    values = coordinates.constrain(jnp.asarray(point), {})
    first = {name: np.asarray(value)[None] for name, value in values.items()}
    return with_given(model, first, args, kwargs)


# --------------------------------------------------------------------------------------------------
# Which sites


def sites_to_cover(
    model: Model,
    residuals: Sequence[Residual],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> tuple[str, ...] | None:
    """The sites of terms that fit no factor, as few as leave exact updates of all others.

    None where there are none such: a discrete site, or all sites, would have to be among them.
    """
    chosen = {name for r in residuals for name in r.latents if not is_discrete(model, name)}
    while len(chosen) < len(model.latent):
        if any(model.latent[name].support is None for name in chosen):
            return None
        found = _left_given(model, chosen, args, kwargs)
        if not found:
            break
        more = {name for name in found if not is_discrete(model, name)} - chosen
        if not more:
            return None
        chosen |= more
    if len(chosen) <= MOST_TRIALS and all(model.latent[n].support is not None for n in chosen):
        # A loop, say, counts all sites that it touches: most may be spared, the largest first.
        for name in sorted(chosen, key=lambda n: -math.prod(model.latent[n].shape)):
            fewer = chosen - {name}
            if fewer and not _left_given(model, fewer, args, kwargs):
                chosen = fewer
    if not chosen or len(chosen) == len(model.latent):
        return None
    return tuple(name for name in model.latent if name in chosen)


def _left_given(
    model: Model, chosen: set[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[str, ...]:
    sites = [name for name in model.latent if name in chosen]
    return left_over(conditioned_on(model, sites, args, kwargs), sites)


def left_over(program: Model, sites: Sequence[str]) -> tuple[str, ...]:
    """The sites of a program given others that no exact factor fits, or not for averages of g."""
    joint = derived(program)
    residuals = joint.structure.residuals
    if residuals:
        return tuple(dict.fromkeys(name for r in residuals for name in r.latents))
    unfit = affine_in(joint, sites).unfit
    return tuple(name for block in joint.blocks if block.number in unfit for name in block.sites)


# --------------------------------------------------------------------------------------------------
# Averages over g


def affine_in(joint: Joint, sites: Sequence[str]) -> Affine:
    """The summands, with what depends on g multiplied out: the energy is affine in it."""
    inputs = inputs_of(joint.model)
    shapes = {name: abstract(np.shape(a), a.dtype) for name, a in inputs.items()}
    closed = traced(joint.compress)(shapes)
    names = {given_name(site) for site in sites}
    own = {i for i, name in enumerate(sorted(shapes)) if name in names}  # JAX sorts by key
    moving = {slot for slot, found in enumerate(dependence(closed.jaxpr)) if found & own}
    unfit: set[int] = set()
    for block in joint.blocks:
        slots = {*block.extras.values(), *([] if block.presence is None else [block.presence])}
        if slots & moving:
            unfit.add(block.number)
    summands: list[Summand] = []
    formed: list[Formed] = []
    for summand in joint.summands:
        for read in summand.reads:
            if _slots(read) & moving:
                unfit |= read.blocks
        parts = tuple(part for part in summand.constants if part[0] in moving)
        if len(parts) > 1:
            labels = tuple(unique(span for _, span in parts))
            if math.prod(label.size for label in labels) > MOST_PRODUCT:
                unfit |= summand.blocks
            others = tuple(part for part in summand.constants if part not in parts)
            number = joint.slots + len(formed)
            formed.append(Formed(parts, labels))
            summand = replace(summand, constants=(*others, (number, labels)))
        summands.append(summand)
    new = range(joint.slots, joint.slots + len(formed))
    return Affine(tuple(summands), tuple(formed), (*sorted(moving), *new), frozenset(unfit))


def _slots(read: Read) -> set[int]:
    """The arrays that a statistic is computed from, or read at."""
    found = {
        i.array.number for i in read.index if isinstance(i, Gather) and isinstance(i.array, Slot)
    }
    integral: Any = read.integral
    if integral is not None:
        for function in integral.functions:
            found |= set(function.slots)
        for summand in (*integral.first, *integral.second):
            found |= {slot for slot, _ in summand.constants}
            for own in summand.reads:
                found |= _slots(own)
    return found
