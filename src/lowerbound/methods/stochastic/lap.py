"""One pass over all rows with the global factors held fixed: the exact ELBO of a streamed fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent import State
from lowerbound.bound import elbo_by_site
from lowerbound.compiled import jit
from lowerbound.compute.devices import Placement
from lowerbound.compute.placed import compiled
from lowerbound.joint.energy.expected import Expected
from lowerbound.methods.coordinate.progress import host
from lowerbound.methods.stochastic.minibatch import Minibatch


def filler(batch: Minibatch) -> dict[str, np.ndarray]:
    """The inputs of one row, the same in every process: the first that the model was traced on."""
    return {n: np.asarray(a)[:1] for n, a in batch.example.items() if n in batch.names}


def padded(
    batch: Minibatch, rows: Mapping[str, Any], size: int, spare: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The inputs of a batch of `size` rows, those that are missing like `spare`, of weight zero.

    A search for local factors ends when those of all rows have settled, the added ones too: they
    must not depend on what was read before, nor on how rows are shared among processes.
    """
    count = len(next(iter(rows.values())))
    inputs = batch.inputs(rows)
    if count < size:
        inputs = {
            n: np.concatenate([a, np.repeat(spare[n], size - count, axis=0).astype(a.dtype)])
            for n, a in inputs.items()
        }
    return {**inputs, "weights": (np.arange(size) < count).astype(float)}


def local_sums(
    batch: Minibatch, inputs: Mapping[str, Array], means: Any
) -> tuple[Expected, tuple[Array, ...]]:
    """Expected statistics of the rows that count, and the entropies of their local factors.

    The factors of a row do not depend on its weight; its share in the sums does.
    """
    every = batch.compress({**inputs, "weights": jnp.ones_like(inputs["weights"])})
    local = batch.local(every, means)
    weighted = batch.compress(inputs)
    sums = tuple(s.astype(float) for s in batch.reduction(weighted, local.means))
    entropies = tuple(
        jnp.sum(inputs["weights"] * batch.rows.row_entropy(n, local, every), dtype=float)
        for n in batch.rows.local
    )
    return sums, entropies


@dataclass(frozen=True)
class Total:
    """Sums over the rows of a weighted `batch`; `arrays` are those of the one it was traced on.

    `error` is the standard error of their share in the ELBO: zero when all rows were read.
    """

    batch: Minibatch
    sums: Expected
    entropies: tuple[Array, ...]
    arrays: tuple[Array, ...]
    error: float = 0.0


def lap_total(
    batch: Minibatch,
    laps: Iterator[Mapping[str, Any]],
    size: int,
    state: State,
    where: Placement | None = None,
    sampled: int | None = None,
) -> Total:
    """Expected statistics and local entropies of all rows.

    With `sampled`, the number of all rows, `laps` are batches drawn from them, and the sums are
    estimates for all.
    """
    engine = batch.rows.engine
    means = batch.shared.put(state).means
    fixed = batch.fixed
    total: Any = None
    spare = filler(batch)
    inputs: dict[str, np.ndarray] = {}
    values: list[float] = []

    def once(inputs: Any, fixed: Any, means: Any) -> Any:
        sums, entropies = local_sums(batch, {**fixed, **inputs}, means)
        return sums, entropies, batch.worth((sums, entropies), means)

    for rows in laps:
        inputs = padded(batch, rows, size, spare)
        key = ("lap", size, tuple(batch.prior))
        *found, value = compiled(engine, where, key, once, 0, inputs, fixed, means)(
            inputs, fixed, means
        )
        total = found if total is None else jax.tree.map(jnp.add, total, found)
        values.append(float(value))
    arrays = batch.compress(batch.example)
    total = host(total)
    if sampled is None:
        return Total(batch, total[0], total[1], arrays)
    processes = 1 if where is None else where.processes
    scale, count = sampled / (size * processes * len(values)), len(values)
    error = float(np.std(values, ddof=1) * scale * count**0.5) if count > 1 else float("nan")
    sums, entropies = jax.tree.map(lambda a: scale * a, total)
    return Total(batch, sums, entropies, arrays, error)


def elbo_terms(total: Total, state: State) -> dict[str, float]:
    """The ELBO by site, from sums over all rows."""
    batch = total.batch
    engine = batch.rows.engine
    key = ("elbo of sums", tuple(batch.prior))
    if key not in engine.compiled:
        family = batch.shared.family
        numbers = {n: i for i, n in enumerate(batch.shared.numbers)}
        summands = [s.renumbered(numbers) for s in batch.sweep.summands]

        def terms(arrays: Sequence[Array], state: State) -> dict[str, Array]:
            return elbo_by_site(family, summands, arrays, state.naturals, state.means)

        engine.compiled[key] = jit(terms)
    arrays = (*total.arrays, *total.sums)
    found = {k: float(v) for k, v in engine.compiled[key](arrays, state).items()}
    for number, entropy in zip(batch.rows.local, total.entropies, strict=True):
        sites = engine.joint.blocks[number].sites
        for site in sites:
            found[site] = found.get(site, 0.0) + float(entropy) / len(sites)
    return found
