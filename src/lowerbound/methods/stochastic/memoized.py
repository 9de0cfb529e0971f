"""Memoised variational inference (Hughes and Sudderth 2013): coordinate ascent, batch by batch.

The expected statistics of every batch are kept. A visit to a batch replaces its own, and the
global factors take a full step towards the optimum for the sum over all batches. Nothing is
scaled and nothing is noisy: after the first pass the ELBO is exact and never falls.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.ascent import State
from lowerbound.compiled import partial_results_are_asked_for
from lowerbound.compute.devices import Placement
from lowerbound.compute.placed import compiled
from lowerbound.errors import DecreasingBoundError, DecreasingBoundWarning
from lowerbound.methods.coordinate.loop import rounding
from lowerbound.methods.coordinate.progress import host
from lowerbound.methods.stochastic.lap import Total, filler, local_sums, padded
from lowerbound.methods.stochastic.minibatch import Minibatch
from lowerbound.methods.values import SVI
from lowerbound.run.bar import Bar
from lowerbound.source.batches import Batches
from lowerbound.store.checkpoint import Keeper

# Expected statistics of some rows, and the entropies of their local factors.
Kept = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Memory:
    """What a memoised run has come to.

    `memo` holds what is kept of each batch, with a leading axis of batches; `total` its sum.
    """

    state: State
    memo: Kept
    total: Kept
    visits: int
    elbo: np.ndarray  # one per pass; that of a first pass cut short is noisy
    held_out: np.ndarray
    seconds: np.ndarray
    rows: np.ndarray
    bound: float = -np.inf  # after the last visit
    fell: bool = False
    settled: bool = False
    interrupted: bool = False

    @property
    def done(self) -> int:
        """The number of visits, which are the steps of this method."""
        return self.visits

    def over(self, limit: int) -> bool:
        """Whether there is a reason to stop."""
        return self.settled or self.fell or self.visits >= limit

    def document(self) -> dict[str, Any]:
        """Arrays and plain values."""
        own = {n: getattr(self, n) for n in self.__dataclass_fields__ if n != "state"}
        naturals, means = host(self.state)
        return {**own, "naturals": naturals, "means": means}

    @classmethod
    def restored(cls, document: Mapping[str, Any]) -> Memory:
        """As it was when `document` was written."""
        own = dict(document)
        return cls(State(own.pop("naturals"), own.pop("means")), **own)


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


def run_visits(
    batch: Minibatch,
    batches: Batches,
    method: SVI,
    where: Placement | None,
    run: Memory | None,
    state: State | None,
    score: Any,
    keep: Keeper | None,
    show: bool | None,
) -> Memory:
    """Visit batches in turn, pass after pass, until the ELBO has settled."""
    engine = batch.rows.engine
    sizes = batches.lap_sizes
    count = len(sizes)
    limit = method.steps or 1000 * count
    fixed = batch.fixed
    share = batches.size // batches.part[1]
    spare = filler(batch)
    if run is None:
        assert state is not None
        run = _first(batch, state, count)
    began = time.perf_counter() - (run.seconds[-1] if len(run.seconds) else 0.0)

    def one(*args: Any) -> Any:
        return visit(batch, *args)

    with Bar(show, limit, "SVI", "visit") as bar:
        try:
            while not run.over(limit):
                lap, first = divmod(run.visits, count)
                if first == 0:  # summed afresh in every pass, so that rounding does not add up
                    run = replace(run, total=jax.tree.map(lambda a: a.sum(axis=0), run.memo))
                total, memo = run.total, jax.tree.map(np.array, run.memo)
                rows = batches.lap()
                for number, own in enumerate(rows):
                    if number < first:
                        continue
                    inputs = padded(batch, own, share, spare)
                    old = jax.tree.map(lambda a, i=number: a[i], memo)
                    others = jax.tree.map(np.subtract, total, old)
                    seen = 1.0 if lap else float(sizes[: number + 1].sum() / batches.total)
                    rest = {"total": others, "known": np.asarray(lap > 0), "seen": np.asarray(seen)}
                    args = (inputs, fixed, run.state, old, rest)
                    key = ("visit", batches.size, tuple(batch.prior))
                    state, kept, bound = compiled(engine, where, key, one, 0, *args)(*args)
                    kept = host(kept)
                    total = jax.tree.map(np.add, others, kept)
                    for stored, new in zip(
                        jax.tree.leaves(memo), jax.tree.leaves(kept), strict=True
                    ):
                        stored[number] = new
                    run = _visited(run, engine.dtype, state, memo, total, float(bound), lap)
                    if number == count - 1 or run.visits >= limit:
                        done = lap * batches.total + int(sizes[: number + 1].sum())
                        run = _evaluated(run, method, done, score, began)
                        bar.update(run.visits, f"ELBO {run.elbo[-1]:.6g}")
                    if keep is not None and (
                        run.visits == keep.next(run.visits - 1) or run.over(limit)
                    ):
                        keep.write(run.visits, run.document())
                    if run.over(limit):
                        break
                rows.close()
        except KeyboardInterrupt:
            if not run.visits or not partial_results_are_asked_for():
                raise
            run = replace(run, interrupted=True)
    return run


def _first(batch: Minibatch, state: State, count: int) -> Memory:
    shapes = jax.eval_shape(
        lambda inputs, means: local_sums(batch, inputs, means),
        batch.example,
        batch.shared.put(state).means,
    )
    memo = jax.tree.map(lambda s: np.zeros((count, *s.shape)), shapes)
    total = jax.tree.map(lambda a: a[0], memo)
    none = np.zeros(0)
    return Memory(state, memo, total, 0, none, none, none, np.zeros(0, int))


def _visited(
    run: Memory,
    dtype: np.dtype[Any],
    state: State,
    memo: Kept,
    total: Kept,
    bound: float,
    lap: int,
) -> Memory:
    # The bound is exact from the last visit of the first pass on.
    fell = lap > 0 and bound < run.bound - rounding(dtype) * max(abs(bound), 1.0)
    if fell:
        details = (run.bound, bound, run.visits + 1)
        if os.environ.get("LOWERBOUND_STRICT"):
            raise DecreasingBoundError(*details)
        warnings.warn(DecreasingBoundWarning(*details), stacklevel=6)
    return replace(
        run,
        state=state,
        memo=memo,
        total=total,
        visits=run.visits + 1,
        bound=bound,
        fell=run.fell or fell,
    )


def _evaluated(run: Memory, method: SVI, done: int, score: Any, began: float) -> Memory:
    """The run with its history one pass longer; settled when the ELBO gained little."""
    elbo = np.append(run.elbo, run.bound)
    held_out = run.held_out
    if score is not None:
        held_out = np.append(held_out, score(host(run.state)))
    settled = False
    if method.least_gain > 0 and len(elbo) > 2:
        gain = elbo[-1] - elbo[-2]
        settled = not run.fell and bool(gain <= method.least_gain * max(abs(elbo[-1]), 1.0))
    return replace(
        run,
        elbo=elbo,
        held_out=held_out,
        seconds=np.append(run.seconds, time.perf_counter() - began),
        rows=np.append(run.rows, done),
        settled=settled,
    )


def memo_reason(run: Memory, method: SVI) -> str:
    """Why the run stopped, in words."""
    if run.fell:
        return f"stopped: the ELBO fell at visit {run.visits}"
    if run.settled:
        gain = (run.elbo[-1] - run.elbo[-2]) / max(abs(run.elbo[-1]), 1.0)
        return (
            f"converged: relative change {max(gain, 0.0):.1e} of the ELBO in pass {len(run.elbo)} "
            f"is within the tolerance {method.least_gain:g}"
        )
    if run.interrupted:
        return f"stopped: interrupted after visit {run.visits}"
    return f"stopped: ran {run.visits} visits"


def total_of_memory(batch: Minibatch, run: Memory) -> Total:
    """The sums over all rows that the run has kept."""
    sums, entropies = jax.tree.map(jnp.asarray, run.total)
    return Total(batch, sums, entropies, batch.compress(batch.example))
