"""Memoised variational inference (Hughes and Sudderth 2013): coordinate ascent, batch by batch.

The expected statistics of every batch are kept. A visit to a batch replaces its own, and the
global factors take a full step towards the optimum for the sum over all batches. Nothing is
scaled and nothing is noisy: after the first pass the ELBO is exact and never falls.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.ascent import State
from lowerbound.methods.coordinate.progress import host
from lowerbound.methods.stochastic.lap import Total, local_sums
from lowerbound.methods.stochastic.minibatch import Minibatch
from lowerbound.source.batches import Batches
from lowerbound.source.call import Batch

# Expected statistics of some rows, and the entropies of their local factors.
Kept = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]


@dataclass(frozen=True, eq=False)
class Memory:
    """What a memoised run has come to: the global factors, and what is kept of each batch."""

    state: State
    memo: tuple[Kept, ...]
    total: Kept  # its sum
    visits: int = 0
    bound: float = -np.inf  # after the last visit; noisy in the first pass
    gain: float = np.nan  # of the bound in the last pass
    passed: float = np.nan  # the bound at the end of it
    held_out: np.ndarray = field(default_factory=lambda: np.zeros(0))  # one value a pass

    def document(self) -> dict[str, Any]:
        """Arrays and plain values; what is kept with a leading axis of batches."""
        own = {n: getattr(self, n) for n in self.__dataclass_fields__ if n not in ("state", "memo")}
        naturals, means = host(self.state)
        return {**own, "naturals": naturals, "means": means, "memo": _stacked(self.memo)}

    @classmethod
    def restored(cls, document: Mapping[str, Any]) -> Memory:
        """As it was when `document` was written."""
        own = dict(document)
        state, memo = State(own.pop("naturals"), own.pop("means")), own.pop("memo")
        count = len(jax.tree.leaves(memo)[0])
        each = tuple(jax.tree.map(lambda a, i=i: a[i], memo) for i in range(count))
        return cls(state, each, **own)

    def summed(self) -> Kept:
        """The sum of what is kept, afresh, so that rounding does not add up."""
        total: Kept = jax.tree.map(lambda a: a.sum(axis=0), _stacked(self.memo))
        return total


def _stacked(memo: tuple[Kept, ...]) -> Any:
    return jax.tree.map(lambda *each: np.stack(each), *memo)


def first_memory(batch: Minibatch, state: State, count: int) -> Memory:
    """Nothing kept yet of so many batches."""
    shapes = jax.eval_shape(
        lambda inputs, means: local_sums(batch, inputs, means),
        batch.example,
        batch.shared.put(state).means,
    )
    nothing: Kept = jax.tree.map(lambda s: np.zeros(s.shape), shapes)
    return Memory(state, (nothing,) * count, nothing)


def laps(batches: Batches, visit: int) -> Generator[Batch]:
    """The batches from a visit on, each with a leading axis of length one, pass after pass."""
    first = visit % len(batches.lap_sizes)
    while True:
        rows = batches.lap()
        try:
            for number, own in enumerate(rows):
                if number >= first:
                    yield {n: a[None] for n, a in own.items()}
        finally:
            rows.close()
        first = 0


def visit(batch: Minibatch, inputs: Any, fixed: Any, state: State, old: Any, rest: Any) -> Any:
    """Visit one batch: new statistics for it, and a full step of the global factors.

    `old` is what is kept of the batch, `rest` the sum of what is kept of the others. Local factors
    are found by a search; should it end below the old ones, these are kept.
    """
    shared = batch.shared
    whole = shared.put(state)
    found = local_sums(batch, {**fixed, **inputs}, whole.means)
    seen = rest["seen"]
    better = (batch.worth(found, whole.means) >= batch.worth(old, whole.means)) | ~rest["known"]
    kept = jax.tree.map(lambda a, b: jnp.where(better, a, b), found, old)
    sums, entropies = jax.tree.map(jnp.add, kept, rest["total"])
    arrays = batch.compress({**fixed, **inputs})
    # In the first pass the batches seen so far stand for all.
    scale = 1.0 / seen
    moved, bound = batch.sweep((*arrays, *(scale * s for s in sums)), whole)
    bound = bound + scale * sum(entropies, jnp.zeros(()))
    return shared.take(moved), kept, bound


def total_of_memory(batch: Minibatch, run: Memory) -> Total:
    """The sums over all rows that the run has kept."""
    sums, entropies = jax.tree.map(jnp.asarray, run.total)
    return Total(batch, sums, entropies, batch.compress(batch.example))
