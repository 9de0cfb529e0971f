"""CVB0 with phi of every entry on the device, a batch of documents at a time.

All phi of a batch are computed from the counts before it, so a sweep is a few large programs. It
converges in about as many sweeps as one that counts after every entry.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.compiled import jit
from lowerbound.compute.devices import Placement
from lowerbound.topics.documents import Documents
from lowerbound.topics.xla.batch import Batch, Table, packed
from lowerbound.topics.xla.rules import FLOORS, Task, Weights, solve, started
from lowerbound.topics.xla.spreading import EACH, WHOLE, everywhere, over_rows, platform_of, summed
from lowerbound.topics.xla.sums import by_word

SETTLE: Final = (20, 1e-2)  # iterations and tolerance when phi first follows from given topics
BATCH: Final = 8192  # documents that see the same counts


class Assigned(NamedTuple):
    """phi of all entries, batch after batch of documents."""

    batches: tuple[Batch, ...]
    phi: tuple[tuple[Any, ...], ...]  # (R, L, K) for each table of each batch
    by_word: Any  # (V, K) float64, N_wk
    where: Placement | None


def assign(
    documents: Documents,
    weights: Weights,
    prior: np.ndarray,
    where: Placement | None,
    batch: int = BATCH,
) -> Assigned:
    """The phi that follow from given topics by the collapsed rule."""
    vocabulary, topics = weights.rows.shape
    precision = str(weights.rows.dtype)
    batches = tuple(
        packed(documents.between(a, min(a + batch, len(documents))), where, precision)
        for a in range(0, len(documents), batch)
    )
    alpha = everywhere(prior, where, precision)
    phi = tuple(
        tuple(_settled(table, weights.rows, alpha, where) for table in packing.tables)
        for packing in batches
    )
    nothing = everywhere(np.zeros((vocabulary, topics)), where, np.float64)
    counted = Assigned(batches, phi, nothing, where)
    return counted._replace(by_word=word_counts(counted))


def reassign(assigned: Assigned, prior: np.ndarray, eta: np.ndarray) -> Assigned:
    """One sweep: phi ∝ (N_dk + alpha) (N_wk + eta) / (N_k + sum eta), without the own token."""
    where, by_word, swept = assigned.where, assigned.by_word, []
    precision = assigned.phi[0][0].dtype if assigned.phi else np.float64
    alpha = everywhere(prior, where, precision)
    smooth = everywhere(np.broadcast_to(eta, len(by_word)), where, np.float64)
    for batch, phi in zip(assigned.batches, assigned.phi, strict=True):
        factors = _factors(by_word, smooth, precision)
        new = []
        for table, old in zip(batch.tables, phi, strict=True):
            moved, by_word = _swept(old, by_word, table, factors, alpha, where)
            new.append(moved)
        swept.append(tuple(new))
    return Assigned(assigned.batches, tuple(swept), by_word, where)


def word_counts(assigned: Assigned) -> jax.Array:
    """N_wk (V, K) of the current phi, counted anew."""
    counts = jnp.zeros_like(assigned.by_word)
    for batch, phi in zip(assigned.batches, assigned.phi, strict=True):
        for table, own in zip(batch.tables, phi, strict=True):
            counts = _counted(counts, table, own, assigned.where)
    return counts


def document_counts(assigned: Assigned) -> np.ndarray:
    """N_dk (D, K) of the current phi, in the order of the documents."""
    where, topics = assigned.where, assigned.by_word.shape[1]
    parts = [np.zeros((0, topics))]
    for batch, phi in zip(assigned.batches, assigned.phi, strict=True):
        counts = everywhere(np.zeros((batch.size, topics)), where, np.float64)
        for table, own in zip(batch.tables, phi, strict=True):
            counts = _of_documents(counts, table, own)
        parts.append(np.asarray(counts)[: batch.documents])
    return np.concatenate(parts)


def responsibilities(assigned: Assigned) -> np.ndarray:
    """The phi (entries, K) in the order of the documents' entries."""
    parts = [np.zeros((0, assigned.by_word.shape[1]))]
    for batch, phi in zip(assigned.batches, assigned.phi, strict=True):
        entries = [
            (np.asarray(t.firsts)[:, None] + np.arange(t.words.shape[1]))[np.asarray(t.counts) > 0]
            for t in batch.tables
        ]
        values = [
            np.asarray(own, np.float64)[np.asarray(t.counts) > 0]
            for t, own in zip(batch.tables, phi, strict=True)
        ]
        if entries:
            parts.append(np.concatenate(values)[np.argsort(np.concatenate(entries))])
    return np.concatenate(parts)


@partial(jit, ahead=True, static_argnames=("where",))
def _settled(table: Table, rows: jax.Array, prior: jax.Array, where: Placement | None) -> jax.Array:
    def own_rows(table: Table, rows: jax.Array, prior: jax.Array) -> jax.Array:
        words, counts, _, _ = table
        task = Task(
            words,
            counts,
            started(counts, prior),
            prior,
            jnp.asarray(SETTLE[0], jnp.int32),
            jnp.asarray(SETTLE[1], counts.dtype),
        )
        solved = solve(rows, task, rule="collapsed", platform=platform_of(where))
        values = solved.t * rows[words]
        phi: jax.Array = values / values.sum(-1, keepdims=True)
        return phi

    settled: jax.Array = over_rows(own_rows, where, (EACH, WHOLE, WHOLE), EACH)(table, rows, prior)
    return settled


class _Factors(NamedTuple):
    """The counts that all phi of a batch see, with their priors."""

    words: Any  # (V, K): N_wk + eta_w
    topics: Any  # (K,): N_k + sum_w eta_w


@partial(jit, ahead=True, static_argnames=("precision",))
def _factors(by_word: jax.Array, eta: jax.Array, precision: Any) -> _Factors:
    smoothed = by_word + eta[:, None]
    return _Factors(smoothed.astype(precision), smoothed.sum(0).astype(precision))


@partial(jit, ahead=True, static_argnames=("where",), donate_argnames=("phi", "by_word_sum"))
def _swept(
    phi: jax.Array,
    by_word_sum: jax.Array,
    table: Table,
    factors: _Factors,
    prior: jax.Array,
    where: Placement | None,
) -> tuple[jax.Array, jax.Array]:
    """The phi of a table, and N_wk with them."""

    def own_rows(
        phi: jax.Array, table: Table, factors: _Factors, prior: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        floor = FLOORS[str(phi.dtype)]
        of_document = (table.counts[..., None] * phi).sum(1) + prior
        new = (of_document[:, None] - phi) * jnp.maximum(factors.words[table.words] - phi, floor)
        new = jnp.maximum(new / jnp.maximum(factors.topics - phi, floor), floor)
        new = new / new.sum(-1, keepdims=True)
        return new, summed(_by_word(table, new - phi, factors.words, where), where)

    spread = over_rows(own_rows, where, (EACH, EACH, WHOLE, WHOLE), (EACH, WHOLE))
    new, change = spread(phi, table, factors, prior)
    return new, by_word_sum + change


@partial(jit, ahead=True, static_argnames=("where",), donate_argnames=("counts",))
def _counted(counts: jax.Array, table: Table, phi: jax.Array, where: Placement | None) -> jax.Array:
    def own_rows(table: Table, phi: jax.Array) -> Any:
        return summed(_by_word(table, phi, counts, where), where)

    own: jax.Array = over_rows(own_rows, where, (EACH, EACH), WHOLE)(table, phi)
    return counts + own


def _by_word(table: Table, values: jax.Array, like: jax.Array, where: Placement | None) -> Any:
    """sum_d n_dw values[d, w, :], (V, K) float64."""
    sums = by_word(
        table.words,
        table.counts,
        table.counts,
        values,
        vocabulary=like.shape[0],
        platform=platform_of(where),
    )
    return sums.astype(jnp.float64)


@partial(jit, ahead=True, donate_argnames=("counts",))
def _of_documents(counts: jax.Array, table: Table, phi: jax.Array) -> jax.Array:
    own = (table.counts[..., None] * phi).sum(1).astype(jnp.float64)
    return counts.at[table.documents].set(own, mode="drop")
