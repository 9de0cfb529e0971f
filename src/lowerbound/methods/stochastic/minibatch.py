"""A model on minibatches of its rows (paper section 4.3): what is local, and what adds up.

The model runs on a batch as though it were the data set. Its local factors are optimal given the
global ones; what the global factors see of the batch are its expected statistics, scaled by N/B
("as though x_t was repeated n times", alg:svi).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent import State, Sweep
from lowerbound.compute.engine import Arrays, engine_for
from lowerbound.errors import ArgumentError, NotConjugateError, Residual, ShapeError
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import Block, Joint, Statistics, Summand, energy, inputs_of
from lowerbound.joint.blocks.block import Read
from lowerbound.joint.derive import mask_name
from lowerbound.joint.energy.expected import Expected, Reduction, reduction
from lowerbound.joint.terms.expression import text
from lowerbound.joint.terms.labelled import Label
from lowerbound.methods.coordinate.origin import (
    far_from_zero,
    find_origins,
    moved_back,
    with_origins,
)
from lowerbound.model import Model, Plate, trace_model
from lowerbound.model.sites import shared_plates
from lowerbound.model.trace import outline
from lowerbound.result.new_rows import Rows, row_axes
from lowerbound.source.call import Call

LOCAL_SWEEPS = 50
LOCAL_TOLERANCE = 1e-6


# --------------------------------------------------------------------------------------------------
# Which arguments are rows


@dataclass(frozen=True)
class RowPlan:
    """The plate of the rows, how many there are, and the arguments that hold one entry a row."""

    plate: str | None
    total: int
    names: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]  # of the latent sites, for all rows


def find_rows(function: Callable[..., Any], call: Call, plate: str | None) -> RowPlan:
    """Decide which arguments are sliced: those as long as the plate of the observations."""
    entries, concrete = outline(function, *call.outline())
    observed = [e for e in entries if e.kind == "observed" and not e.is_factor]
    observed = observed or [e for e in entries if e.is_factor and e.plates]
    plates = [e.plates for e in observed]
    lengths = call.lengths
    name: str | None
    if plate is not None:
        known = list(dict.fromkeys(p for own in plates for p in own))
        chosen = [p for p in known if p.name == plate]
        if not chosen:
            listed = ", ".join(f"'{p.name}'" for p in known) or "none"
            raise ArgumentError(
                f"SVI got plate='{plate}', which holds no observed site.\n"
                f"Expected one of the plates of the observations: {listed}."
            )
        size, name = chosen[0].size, chosen[0].name
    else:
        size, name = _only_plate(shared_plates(plates), plates, lengths, observed)
    aligned = tuple(n for n, length in lengths.items() if length == size)
    if not aligned:
        raise ArgumentError(
            f"No argument has one entry for each of the {size} rows of plate '{name}'; leading "
            f"dimensions are {_lengths(lengths)}.\n"
            "Expected data arrays with the rows along their first axis."
        )
    inspected = [n for n in aligned if n in concrete]
    if inspected:
        raise ArgumentError(
            f"The model inspects the values of {', '.join(inspected)} in Python, so every batch of "
            "rows would be another program.\n"
            "Expected operations that JAX can trace; or use method=lb.CAVI()."
        )
    latent = {e.name: e.batch_shape + e.event_shape for e in entries if e.kind == "latent"}
    return RowPlan(name, size, aligned, latent)


def _only_plate(
    shared: Sequence[Plate],
    plates: Sequence[tuple[Plate, ...]],
    lengths: Mapping[str, int],
    observed: Sequence[Any],
) -> tuple[int, str | None]:
    fitting = [p for p in shared if p.size in lengths.values()]
    if not fitting and not shared:
        # Sites of several plates, none of which holds all: any as long as an argument will do.
        every = dict.fromkeys(p for own in plates for p in own)
        fitting = [p for p in every if p.size in lengths.values()]
    if len(fitting) > 1:
        named = " and ".join(f"'{p.name}' ({p.size})" for p in fitting)
        raise ArgumentError(
            f"SVI cannot tell which plate holds the rows: {named} could both be the local one.\n"
            f'Say which: lb.SVI(plate="{fitting[0].name}").'
        )
    if fitting:
        return fitting[0].size, fitting[0].name
    sizes = {e.batch_shape[0] for e in observed if e.batch_shape}
    sizes &= set(lengths.values())
    if len(sizes) != 1:
        raise ArgumentError(
            "SVI found no rows: no plate of the observations is as long as an argument; leading "
            f"dimensions are {_lengths(lengths)}.\n"
            "Put the observed sites into a numpyro.plate with one member for each row of the data."
        )
    return sizes.pop(), None


def _lengths(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {length}" for name, length in lengths.items()) or "none"


def trace_batch(
    function: Callable[..., Any], call: Call, plan: RowPlan, rows: Mapping[str, Any]
) -> Model:
    """The model on some rows, which must differ from the whole in the number of rows alone."""
    count = len(next(iter(rows.values())))
    try:
        model = trace_model(function, *call.put(rows), plan.plate)
    except ShapeError as error:
        if count == plan.total:
            raise
        reason = str(error).splitlines()[0]
        raise ArgumentError(
            f"The model fits its {plan.total} rows, but not a batch of {count}: {reason}\n"
            "Expected every size to follow from the data: write "
            f'numpyro.plate("{plan.plate or "rows"}", len({plan.names[0]})).'
        ) from error
    plate = model.data_plate
    if plan.plate is not None and (plate is None or plate.size != count):
        found = "absent" if plate is None else f"of size {plate.size}"
        raise ArgumentError(
            f"On a batch of {count} rows, plate '{plan.plate}' is {found}.\n"
            "Expected one member for each entry along the first axis of the data: write "
            f'numpyro.plate("{plan.plate}", len({plan.names[0]})).'
        )
    for name, site in model.latent.items():
        if name not in model.local and site.shape != plan.shapes[name]:
            raise ArgumentError(
                f"Site '{name}' is outside plate '{plan.plate}', but its shape follows the rows: "
                f"{site.shape} for {count} rows, {plan.shapes[name]} for {plan.total}   "
                f"({site.where})\nPut it into the plate, or use method=lb.CAVI()."
            )
    return model


# --------------------------------------------------------------------------------------------------
# A prepared batch


@dataclass(frozen=True)
class Shared:
    """The global factors of a derived model, as a mean-field family of their own."""

    numbers: tuple[int, ...]
    family: MeanField
    count: int

    def take(self, state: State) -> State:
        """The global part of a state."""
        return State(
            tuple(state.naturals[n] for n in self.numbers),
            tuple(state.means[n] for n in self.numbers),
        )

    def put(self, state: State) -> State:
        """A state of all blocks with nothing in the local ones."""
        naturals = dict(zip(self.numbers, state.naturals, strict=True))
        means = dict(zip(self.numbers, state.means, strict=True))
        return State(
            tuple(naturals.get(n, {}) for n in range(self.count)),
            tuple(means.get(n, {}) for n in range(self.count)),
        )


@dataclass(frozen=True, eq=False)
class Minibatch:
    """A model derived on a batch of its rows.

    `sweep` goes over the global blocks; its arrays are those of the compressed batch, followed by
    the expected statistics that `reduction` sums over the rows.
    """

    model: Model
    rows: Rows
    shared: Shared
    reduction: Reduction
    sweep: Sweep
    names: tuple[str, ...]  # inputs with one entry a row
    masks: Mapping[str, tuple[str, int]]  # mask input -> (argument, dimensions of an event)
    origins: Mapping[str, np.ndarray]
    partition: Sequence[Sequence[str]] | None = None
    prior: Mapping[str, Any] = field(default_factory=dict)  # inputs that stand for log q of old

    def inputs(self, rows: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The inputs of the program that belong to rows; `rows` may have leading axes."""
        found = {n: np.asarray(np.ma.getdata(a)) for n, a in rows.items()}
        for name, (argument, events) in self.masks.items():
            mask = np.ma.getmaskarray(rows[argument])
            found[name] = np.asarray(mask.all(axis=tuple(range(mask.ndim - events, mask.ndim))))
        return found

    @property
    def fixed(self) -> dict[str, Any]:
        """The inputs that are the same for every batch."""
        inputs = with_origins(inputs_of(self.model), self.origins)
        own = {n: a for n, a in inputs.items() if n not in self.names}
        return {**own, **self.prior}

    @property
    def example(self) -> dict[str, Any]:
        """All inputs, with the rows that the model was traced on."""
        model = self.model
        data = {n: a for n, a in model.arguments.data.items() if n in self.names}
        inputs = {**self.inputs(with_masks(model, data)), **self.fixed}
        if "weights" in self.names:
            inputs["weights"] = np.ones(self.rows.count)
        return inputs

    def compress(self, inputs: Mapping[str, Array]) -> Arrays:
        """The batch, contracted as far as it can be before anything is inferred."""
        engine = self.rows.engine
        double = {n: a.astype(float) if _floating(a) else a for n, a in inputs.items()}
        given = tuple(jnp.asarray(double.pop(name)) for name in self.prior)
        return (*(engine.cast(a) for a in engine.joint.compress(double)), *given)

    def worth(self, kept: Any, means: Statistics) -> Array:
        """What rows contribute to the ELBO: `kept` are their sums, and the entropies of factors."""
        sums, entropies = kept
        first = self.rows.engine.joint.slots + len(self.prior)
        blank = tuple(jnp.zeros(()) for _ in range(first))
        energies = energy(self.reduction.summands, (*blank, *sums), means)
        return energies + sum(entropies, jnp.zeros(()))

    def local(self, arrays: Arrays, means: Statistics) -> State:
        """Optimal local factors given the means of the global ones."""
        return self.rows.solve(arrays, means, LOCAL_SWEEPS, LOCAL_TOLERANCE)

    def expected(self, arrays: Arrays, state: State) -> tuple[Expected, Array]:
        """Expected statistics of the rows in double precision, and the entropy of their factors."""
        family = self.rows.engine.family
        entropy = sum(
            (family.entropy(state.naturals, state.means, arrays, n) for n in self.rows.local),
            jnp.zeros(()),
        )
        sums = self.reduction(arrays, state.means)
        return tuple(s.astype(float) for s in sums), entropy

    def moved_back(self, state: State) -> State:
        """Global factors in the sites' own coordinates."""
        return moved_back(self.shared.family, state, self.origins) if self.origins else state


def with_masks(model: Model, data: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Data arguments with their missing entries masked, as they were given."""
    missing = model.arguments.missing
    return {n: np.ma.array(a, mask=missing[n]) if n in missing else a for n, a in data.items()}


def _floating(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jnp.floating))


def prepare(
    model: Model,
    names: Sequence[str],
    dtype: np.dtype[Any],
    partition: Sequence[Sequence[str]] | None,
    weighted: bool = False,
    origins: Mapping[str, np.ndarray] | None = None,
    before: Before | None = None,
) -> Minibatch:
    """Derive a model on a batch: locals apart from globals, rows summed out.

    `weighted` adds an input "weights", one number a row: rows of weight zero do not count. The
    factors of `before`, found from earlier data, take the place of the prior.
    """
    axes = row_axes(model)
    if before is not None:
        origins = {}
    if origins is None:
        far = far_from_zero(model.arguments.data, dtype)
        origins = find_origins(model, partition) if far else {}
        origins = {n: o for n, o in origins.items() if n not in model.local}
    engine = engine_for(model, dtype, partition, axes if weighted else None, True, origins)
    residuals = batch_residuals(model, engine.joint)
    if residuals:
        raise NotConjugateError(residuals)
    local = tuple(b.number for b in engine.joint.blocks if set(b.sites) & set(model.local))
    rows = Rows(model, engine, local, axes)
    check_locals(rows)
    numbers = tuple(b.number for b in engine.joint.blocks if b.number not in local)
    if "global factors" not in engine.compiled:  # one family for all fits of the program
        own = [replace(engine.joint.blocks[n], number=i) for i, n in enumerate(numbers)]
        engine.compiled["global factors"] = MeanField.of(tuple(own))
    shared = Shared(numbers, engine.compiled["global factors"], len(engine.joint.blocks))
    inside = tuple(s for s in engine.joint.summands if s.site in axes)
    outside = tuple(s for s in engine.joint.summands if s.site not in axes)
    first = engine.joint.slots
    prior: dict[str, Any] = {}
    if before is not None:
        outside, prior = prior_summands(before, shared, first)
        first += len(prior)
    reduced = reduction(inside, frozenset(local), first)
    order = tuple(n for n in engine.sweep.order if n in numbers)
    sweep = Sweep(engine.family, (*outside, *reduced.summands), order)
    masks = _mask_sources(model)
    aligned = (*names, *masks, *(("weights",) if weighted else ()))
    return Minibatch(model, rows, shared, reduced, sweep, aligned, masks, origins, partition, prior)


def batch_residuals(model: Model, joint: Joint) -> tuple[Residual, ...]:
    """Terms through which the rows do not add up: every row brings a function of its own."""
    reason = "every row brings a function of its own, so that batches of rows do not add up"
    where = {site.name: site.where for site in model.sites}
    found: dict[tuple[str, ...], Residual] = {}
    for summand in joint.summands:
        for read in summand.reads:
            block = joint.blocks[read.block]
            wide = block.family.free_form and len(read.index) > len(block.batch_shape)
            if read.integral is None and not (wide and block.sites[0] not in model.local):
                continue
            trees = block.static["trees"] if wide else read.integral.trees
            tree = trees[int(read.statistic.split("s")[1])]
            operation = text(tree, ", ".join(block.sites))
            residual = Residual(summand.site, block.sites, operation, reason, where[summand.site])
            found.setdefault((summand.site, *block.sites), residual)
    return tuple(found.values())


# --------------------------------------------------------------------------------------------------
# The posterior becomes the prior


@dataclass(frozen=True)
class Before:
    """Factors found from earlier data."""

    family: MeanField
    state: State

    def natural(self, block: Block) -> dict[str, Any]:
        """The natural parameters of the factor of the block's sites."""
        for mine, natural in zip(self.family.blocks, self.state.naturals, strict=True):
            same = (mine.sites, mine.kind, mine.batch_shape, mine.static)
            if same == (block.sites, block.kind, block.batch_shape, block.static):
                return dict(natural)
        raise ArgumentError(
            f"The fit has no factor of {', '.join(block.sites)} alone, of kind {block.kind} and "
            f"shape {block.batch_shape}.\nExpected a fit of the same model whose global sites "
            "share no factor with local ones. Fit the first data with method=lb.SVI()."
        )


def prior_summands(
    before: Before, shared: Shared, first: int
) -> tuple[tuple[Summand, ...], dict[str, Any]]:
    """<natural, t(z)> - A(natural), the log density of the earlier factors, as summands."""
    summands: list[Summand] = []
    arrays: dict[str, Any] = {}
    for block, family, number in zip(
        shared.family.blocks, shared.family.families, shared.numbers, strict=True
    ):
        natural, site = before.natural(block), block.sites[0]
        shapes = family.statistic_shapes()
        for name, shape in shapes.items():
            labels = tuple(Label(size) for size in shape)
            read = Read(number, name, (), shape, labels)
            slot = first + len(arrays)
            summands.append(Summand(site, 1.0, ((slot, labels),), (read,)))
            arrays[f"prior of {', '.join(block.sites)}: {name}"] = np.asarray(natural[name], float)
        slot = first + len(arrays)
        summands.append(Summand(site, -1.0, ((slot, ()),), ()))
        total = np.asarray(family.log_normalizer(natural)).sum()
        arrays[f"prior of {', '.join(block.sites)}: log normaliser"] = total
    return tuple(summands), arrays


def check_locals(rows: Rows) -> None:
    """Local factors must be independent from row to row."""
    for number in rows.local:
        block = rows.engine.joint.blocks[number]
        site = next(iter(block.layouts), block.scale)
        layout = block.layouts.get(site or "")
        apart = layout is None or rows.axes[site or ""] in layout.batch
        if block.sequential or not apart:
            raise ArgumentError(
                f"The rows of the local site '{site}' are coupled, so a batch of them cannot be "
                "fitted without the others.\nUse method=lb.CAVI()."
            )


def _mask_sources(model: Model) -> dict[str, tuple[str, int]]:
    """Which argument's missing entries are those of each observed site."""
    found = {}
    for site, mask in model.missing.items():
        for name, entries in model.arguments.missing.items():
            events = entries.ndim - mask.ndim
            axes = tuple(range(mask.ndim, entries.ndim))
            if events >= 0 and np.array_equal(entries.all(axis=axes), mask):
                found[mask_name(site)] = (name, events)
        if mask_name(site) not in found:
            raise ArgumentError(
                f"Site '{site}' has missing entries that are not those of one argument.\n"
                "Expected a masked array that the site observes as it is; or use "
                "method=lb.CAVI()."
            )
    return found
