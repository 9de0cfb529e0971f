"""Batches on the devices: the entries travel as they are, and tables are laid out over there."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from lowerbound.compiled import jit
from lowerbound.compute.devices import ROWS, Placement
from lowerbound.topics.documents import Documents
from lowerbound.topics.xla.buckets import buckets, size_class
from lowerbound.topics.xla.spreading import EACH, WHOLE, everywhere, over_rows, platform_of

SLOTS: Final = {"cpu": 1 << 17, "gpu": 1 << 23}  # places of a table
PARTS: Final = {"cpu": 8, "gpu": 2}  # into which the documents of a batch fall, at least


class Table(NamedTuple):
    """Documents in rows; a place without a word has word 0 and count 0."""

    words: Any  # (R, L) int32
    counts: Any  # (R, L)
    documents: Any  # (R,) int32: number in the batch; in a row without a document, `size`
    firsts: Any  # (R,) int32: where its entries begin in the batch


class Batch(NamedTuple):
    """Documents of a batch in tables."""

    tables: tuple[Table, ...]
    documents: int
    size: int  # `documents`, rounded up to a power of two
    vocabulary: int


def packed(documents: Documents, where: Placement | None, precision: str) -> Batch:
    """A batch in tables on the devices; the copies run while the caller goes on."""
    platform = platform_of(where)
    kind = "cpu" if platform == "cpu" else "gpu"
    distinct, size = documents.distinct, size_class(len(documents))
    count = 1 if where is None else where.count
    plan = buckets(distinct, SLOTS[kind], parts=PARTS[kind], multiple=count)
    room = _room(int(documents.starts[-1]))
    words = everywhere(_lengthened(documents.words, room), where, np.int32)
    counts = everywhere(_lengthened(documents.counts, room), where, np.float32)
    tables = []
    for bucket in plan:
        rows = np.zeros((3, bucket.rows), np.int32)  # number, first entry, entries
        rows[0] = size
        chosen = bucket.documents
        rows[:, : len(chosen)] = chosen, documents.starts[chosen], distinct[chosen]
        placed = jnp.asarray(rows) if where is None else where.shard(rows, 1)
        tables.append(_table(words, counts, placed, bucket.length, precision, where))
    return Batch(tuple(tables), len(documents), size, documents.vocabulary)


def _room(entries: int) -> int:
    """So many entries, rounded up by an eighth at most: batches alike have arrays of one size."""
    unit = 1 << max(8, entries.bit_length() - 4)
    return -(-max(entries, 1) // unit) * unit


def _lengthened(array: np.ndarray, room: int) -> np.ndarray:
    longer = np.empty(room, array.dtype)
    longer[: len(array)] = array
    longer[len(array) :] = 0
    return longer


@partial(jit, ahead=True, static_argnames=("length", "precision", "where"))
def _table(
    words: jax.Array,
    counts: jax.Array,
    rows: jax.Array,
    length: int,
    precision: str,
    where: Placement | None,
) -> Table:
    def lay(words: jax.Array, counts: jax.Array, rows: jax.Array) -> Table:
        numbers, firsts, entries = rows
        place = jnp.arange(length, dtype=jnp.int32)
        at = (firsts[:, None] + place).clip(max=len(words) - 1)
        inside = place < entries[:, None]
        return Table(
            jnp.where(inside, words[at], 0),
            jnp.where(inside, counts[at], 0).astype(precision),
            numbers,
            firsts,
        )

    by_column = PartitionSpec(None, ROWS)  # type: ignore[no-untyped-call]
    spread = over_rows(lay, where, (WHOLE, WHOLE, by_column), Table(EACH, EACH, EACH, EACH))
    table: Table = spread(words, counts, rows)
    return table
