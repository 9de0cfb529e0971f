"""A model as a multi-affine function of the statistics of its blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.compiled import equations, jit
from lowerbound.compiled import traced as trace
from lowerbound.compiled.host import FITS, lightly
from lowerbound.errors import Residual
from lowerbound.joint.blocks.block import Block, Entry, Layout
from lowerbound.joint.blocks.coupling import restriction, separate
from lowerbound.joint.blocks.kind import Misfit, Restriction, expected_family
from lowerbound.joint.blocks.neighbours import tightened
from lowerbound.joint.blocks.statistics import find_blocks
from lowerbound.joint.derive import Derivation, derive
from lowerbound.joint.energy.integrals import build
from lowerbound.joint.energy.summands import Store, Summand, UnreadableError, compile_terms
from lowerbound.joint.latents import Latent
from lowerbound.joint.terms.indices import Array
from lowerbound.joint.terms.normal import fuse, projections_of, without_projections
from lowerbound.joint.terms.value import Operand, Poison, Value, full, sites_of
from lowerbound.joint.traced_program import FEW, Program, abstract, inputs_of, trace_program
from lowerbound.model import Model


@dataclass(frozen=True)
class Structure:
    """What the derivation decided, without the data: blocks, summands, residuals."""

    blocks: tuple[Block, ...]
    summands: tuple[Summand, ...]
    residuals: tuple[Residual, ...]

    def block_of(self, site: str) -> Block:
        """The block that holds a latent site."""
        return next(block for block in self.blocks if site in block.sites)

    @property
    def independent(self) -> bool:
        """Whether no term joins two factors, so that their product is the posterior."""
        return all(len(summand.blocks) <= 1 for summand in self.summands)

    @property
    def by_quadrature(self) -> bool:
        """Whether some expectation of a Gaussian factor is a quadrature."""
        return any(summand.curved for summand in self.summands)

    @property
    def is_posterior(self) -> bool:
        """Whether the best factors are the posterior itself."""
        return self.independent and not self.by_quadrature and not self.residuals


@dataclass(frozen=True, eq=False)
class Joint:
    """log p(x, z) in multi-affine form.

    `compress(data)` contracts the data once into the arrays that `energy` and `gradient` need;
    `extras` in the blocks and slots in the summands are positions in that tuple.
    """

    model: Model
    program: Program
    structure: Structure
    compress: Callable[[Mapping[str, Any]], tuple[jax.Array, ...]]
    slots: int  # how many arrays `compress` returns
    operations: int = 0  # of `compress`, which whatever uses it compiles

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The factors of q, in program order."""
        return self.structure.blocks

    @property
    def summands(self) -> tuple[Summand, ...]:
        """The summands of E_q[log p]."""
        return self.structure.summands


def multi_affine(
    model: Model,
    partition: Sequence[Sequence[str]] | None = None,
    weighted: Mapping[str, int] | None = None,
    program: Program | None = None,
    apart: Sequence[str] = (),
    origins: Mapping[str, tuple[int, ...]] | None = None,
) -> Joint:
    """Derive the multi-affine form of a model (paper section 4.1, complete conditionals).

    `partition` forces blocks; `weighted` (site -> batch axis) adds an argument "weights" to the
    data, one number per row of that axis, which multiplies the site's log density; sites `apart`
    are never joined with the others; `origins` (site -> shape) adds arguments "origin of ..." of
    that shape, from which those sites are measured.
    """
    data = inputs_of(model)
    traced = program or trace_program(model)
    found: dict[str, Structure] = {}

    def contract(arrays: Mapping[str, Array]) -> tuple[jax.Array, ...]:
        weights = {site: (axis, arrays["weights"]) for site, axis in (weighted or {}).items()}
        starts = {site: arrays[origin_name(site)] for site in origins or ()}
        derivation = derive(traced, {k: arrays[k] for k in data}, weights, starts)
        store = Store()
        found["structure"] = _structure(
            model, traced, derivation, store, partition, apart, bool(weights)
        )
        return tuple(jnp.asarray(array) for array in store.arrays)

    shapes = {k: abstract(np.shape(a), a.dtype) for k, a in data.items()}
    if weighted:
        rows = row_count(model, weighted)
        shapes["weights"] = abstract((rows,), np.dtype(float))
    for site, shape in (origins or {}).items():
        shapes[origin_name(site)] = abstract(shape, np.dtype(float))
    compress = lightly(jit(contract), FITS)
    closed = trace(compress)(shapes)
    operations = equations(closed.jaxpr)
    return Joint(model, traced, found["structure"], compress, len(closed.out_avals), operations)


def origin_name(site: str) -> str:
    """The name of the input that holds the origin of a site."""
    return f"origin of {site}"


def row_count(model: Model, axes: Mapping[str, int]) -> int:
    """The number of rows, from sites and the batch axes their rows lie along."""
    name, axis = next(iter(axes.items()))
    return next(s.batch_shape[axis] for s in model.sites if s.name == name)


def _structure(
    model: Model,
    program: Program,
    derivation: Derivation,
    store: Store,
    partition: Sequence[Sequence[str]] | None,
    apart: Sequence[str],
    weighted: bool = False,
) -> Structure:
    latents = {latent.name: latent for latent in program.latents}
    entries: list[Entry] = []
    residuals: list[Residual] = []
    for site, value in derivation.densities.items():
        if isinstance(value, Poison):
            residuals.append(_from_poison(model, latents, site, value))
        else:
            entries += [Entry(site, fuse(term, latents)) for term in value.terms]
    restrictions, unusable = _restrictions(model, derivation, latents)
    constants, unknown = _constants(model, derivation, latents)
    residuals += unusable + unknown
    entries, coupled = separate(entries, latents)
    entries = tightened(entries, latents, coupled)
    fixed = {r.latent: r.block for r in restrictions}
    projected = projections_of(entries)
    seen = without_projections(entries, projected)
    blocks, misfits = find_blocks(seen, latents, fixed, partition, coupled, apart)
    misfits += _base_measure_misfits(entries, weighted) + _not_gaussian(entries, fixed)
    residuals += [_from_misfit(model, latents, misfit) for misfit in misfits]
    if residuals:
        bare = tuple(replace(block, atoms=()) for block in blocks)
        return Structure(bare, (), _unique(residuals))
    constants |= {r.latent: r.extras for r in restrictions}
    blocks = [_with_extras(block, constants, store) for block in blocks]
    blocks = [_with_presence(block, derivation.masks, store) for block in blocks]
    bare = tuple(replace(block, atoms=()) for block in blocks)  # no array outlives the derivation
    try:
        integrals = {
            projection: build(number, projection, atoms, blocks, store)
            for number, (projection, atoms) in enumerate(projected.items())
        }
        summands = compile_terms(entries, blocks, store, integrals, _single(model))
    except UnreadableError as error:
        return Structure(bare, (), (_from_unreadable(model, latents, error),))
    return Structure(bare, summands, ())


def _single(model: Model) -> frozenset[str]:
    """The sites of one observation each, where they are many: a loop over rows in Python."""
    found = [s.name for s in model.sites if s.kind == "observed" and not s.batch_shape]
    return frozenset(found if len(found) > FEW else ())


def _with_extras(block: Block, constants: Mapping[str, Mapping[str, Array]], store: Store) -> Block:
    """A block with its constants in the store: those of its support, and of its statistics."""
    arrays = {**block.family.constants(block), **constants.get(block.sites[0], {})}
    if not arrays:
        return block
    return replace(block, extras={name: store.put(array) for name, array in arrays.items()})


def _with_presence(block: Block, masks: Mapping[str, Operand], store: Store) -> Block:
    """A block whose masked elements are no part of the model, nor of q."""
    if block.family.counts_absent:
        parts = [_absent(masks.get(s), layout) for s, layout in block.layouts.items()]
        absent = jnp.broadcast_to(sum(parts, jnp.zeros(())), block.batch_shape)
        return replace(block, extras={**block.extras, "absent": store.put(absent)})
    site = block.sites[0]
    mask = masks.get(site)
    if mask is None or len(block.sites) > 1 or isinstance(mask, Poison):
        return block
    kept = _kept(mask, block.layouts[site])[..., 0]
    return replace(block, presence=store.put(jnp.broadcast_to(kept, block.batch_shape)))


def _kept(mask: Value | Array | float, layout: Layout) -> jax.Array:
    """A mask by batch, and the elements of a copy in one axis."""
    array = full(mask) if isinstance(mask, Value) else jnp.asarray(mask)
    rank = len(layout.shape)
    array = array.reshape((1,) * (rank - array.ndim) + array.shape)
    kept = jnp.transpose(array, (*layout.batch, *layout.vector))
    return jnp.asarray(kept).reshape((*kept.shape[: len(layout.batch)], -1))


def _absent(mask: Operand | None, layout: Layout) -> jax.Array:
    """How many elements of every copy a mask leaves out."""
    if mask is None or isinstance(mask, Poison):
        return jnp.zeros(())
    left = 1.0 - _kept(mask, layout)
    return jnp.asarray(left.sum(axis=-1) * (layout.size // left.shape[-1]))


def _restrictions(
    model: Model, derivation: Derivation, latents: Mapping[str, Latent]
) -> tuple[list[Restriction], list[Residual]]:
    usable: list[Restriction] = []
    unusable: list[Residual] = []
    for constraint in derivation.constraints:
        outcome = restriction(constraint, latents)
        if isinstance(outcome, Restriction):
            usable.append(outcome)
            continue
        sites = tuple(sorted(sites_of(constraint.value)))
        where = _where(model, constraint.site)
        unusable.append(Residual(constraint.site, sites, "an observed Delta", outcome, where))
    return usable, unusable


def _constants(
    model: Model, derivation: Derivation, latents: Mapping[str, Latent]
) -> tuple[dict[str, Mapping[str, Array]], list[Residual]]:
    """The constants of factors that parameters of the sites' own densities are."""
    known: dict[str, Mapping[str, Array]] = {}
    unknown: list[Residual] = []
    for site, named in derivation.constants.items():
        found: dict[str, Array] = {}
        for name, value in named.items():
            if isinstance(value, Value) and value.is_constant:
                found[name] = jnp.broadcast_to(full(value), latents[site].shape) * 1.0
                continue
            reason = "it is a constant of the factor, and must be known"
            unknown.append(Residual(site, (site,), f"its {name}", reason, _where(model, site)))
        known[site] = found
    return known, unknown


def _where(model: Model, site: str) -> str:
    return next(s.where for s in model.sites if s.name == site)


def _not_gaussian(entries: Sequence[Entry], fixed: Mapping[str, Block]) -> list[Misfit]:
    """Functions of linear combinations of sites whose factor cannot be Gaussian."""
    return [
        Misfit(site, entry.site, str(factor.atom), "the data truncate it")
        for entry in entries
        for factor in entry.term.latents
        if factor.atom.projection is not None
        for site in sorted(factor.atom.projection.sites & set(fixed))
    ]


def _base_measure_misfits(entries: Sequence[Entry], weighted: bool) -> list[Misfit]:
    """The term log z! of a latent count must enter once, as -log z!, to be the base measure.

    Where rows are `weighted`, so is the entropy of their factors: a weight a row does no harm.
    """
    misfits = []
    for entry in entries:
        counts = [f for f in entry.term.latents if f.atom.is_base]
        rows = [f for f in entry.term.constants if not weighted or len(f.index) > 1]
        plain = len(entry.term.latents) == 1 and not rows
        if counts and not (plain and entry.term.coefficient == -1.0):
            site = counts[0].atom.site
            misfits.append(Misfit(site, entry.site, f"log {site}!", "it is not a plain count"))
    return misfits


# --------------------------------------------------------------------------------------------------
# Residuals, in words


def _from_poison(
    model: Model, latents: Mapping[str, Latent], site: str, poison: Poison
) -> Residual:
    order = [name for name in latents if name in poison.sites]
    operation = f"{poison.operation}({', '.join(order)})"
    family, statistics = expected_family(latents[order[0]]) if order else ("", "")
    return Residual(
        site=site,
        latents=tuple(order),
        operation=operation,
        reason=poison.reason,
        where=poison.where or _where(model, site),
        family=family,
        statistics=statistics,
        left_over=operation,
    )


def _from_misfit(model: Model, latents: Mapping[str, Latent], misfit: Misfit) -> Residual:
    family, statistics = expected_family(latents[misfit.latent])
    return Residual(
        site=misfit.site,
        latents=(misfit.latent,),
        operation=misfit.left_over,
        reason=misfit.reason,
        where=_where(model, misfit.site),
        family=family,
        statistics=statistics,
        left_over=misfit.left_over,
    )


def _from_unreadable(
    model: Model, latents: Mapping[str, Latent], error: UnreadableError
) -> Residual:
    sites = error.block.sites
    factors = [
        str(f.atom)
        for f in error.entry.term.latents
        if f.atom.site in sites or (f.atom.projection and f.atom.projection.sites & set(sites))
    ]
    product = " * ".join(factors)
    reason = f"no factor of {', '.join(sites)} has the statistic {product}"
    misfit = Misfit(sites[0], error.entry.site, product, reason)
    return _from_misfit(model, latents, misfit)


def _unique(residuals: Sequence[Residual]) -> tuple[Residual, ...]:
    return tuple(dict.fromkeys(residuals))
