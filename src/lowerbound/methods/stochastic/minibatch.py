"""A model on minibatches of its rows (paper section 4.3): what is local, and what adds up.

The model runs on a batch as though it were the data set. Its local factors are optimal given the
global ones; what the global factors see of the batch are its expected statistics, scaled by N/B
("as though x_t was repeated n times", alg:svi).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent import State, Sweep
from lowerbound.compute.engine import Arrays, engine_for
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import Statistics, energy, inputs_of
from lowerbound.joint.energy.expected import Expected, Reduction, reduction
from lowerbound.methods.coordinate.origin import (
    far_from_zero,
    find_origins,
    moved_back,
    with_origins,
)
from lowerbound.methods.stochastic.adding_up import local_blocks, mask_sources
from lowerbound.methods.stochastic.shared_factors import Before, Shared, prior_summands
from lowerbound.model import Model
from lowerbound.result.unseen.new_rows import Rows, row_axes

LOCAL_SWEEPS = 50
LOCAL_TOLERANCE = 1e-6


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
    local = local_blocks(model, engine.joint)
    rows = Rows(model, engine, local, axes)
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
    masks = mask_sources(model)
    aligned = (*names, *masks, *(("weights",) if weighted else ()))
    return Minibatch(model, rows, shared, reduced, sweep, aligned, masks, origins, partition, prior)
