"""The predictive density of a row in closed form, where the model allows it.

Given its assignment, the log density of a row is often affine in the statistics of each global
block alone. Then E_q[exp(c + sum_b <g_b, t_b>)] = exp(c + sum_b A(lambda_b + g_b) - A(lambda_b)):
Student t for a Gaussian, negative binomial for a Poisson, and sums over k of these for a mixture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from lowerbound.ascent import State
from lowerbound.compiled import jit
from lowerbound.compute.engine import Engine, engine_for
from lowerbound.errors import LowerboundError
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import Statistics, Summand, energy, gradient, inputs_of
from lowerbound.model import trace_model
from lowerbound.result.unseen.new_rows import Rows

NUMBERS_AT_ONCE = 100_000  # categories x numbers of a factor x rows


@dataclass(frozen=True)
class OneRow:
    """The program on a single row: its engine, the row's summands, its assignment block."""

    engine: Engine
    summands: tuple[Summand, ...]
    assignment: int | None
    aligned: tuple[str, ...]
    axes: Mapping[int, int]  # global block -> the batch axis that the assignment indexes

    @property
    def at_once(self) -> int:
        """How many rows to work on together."""
        size = 1
        for block, family in zip(
            self.engine.joint.blocks, self.engine.family.families, strict=True
        ):
            if block.number != self.assignment:
                numbers = sum(math.prod(s) for s in family.statistic_shapes().values())
                size = max(size, numbers * (1 if block.number in self.axes else self.categories))
        return max(1, min(512, NUMBERS_AT_ONCE // size))

    @property
    def categories(self) -> int:
        """The number of values of the assignment."""
        if self.assignment is None:
            return 1
        return int(self.engine.joint.blocks[self.assignment].static["dim"])


def one_row(rows: Rows) -> OneRow | None:
    """The program on one row, or None where the closed form does not hold."""
    model = rows.model
    if model.missing or model.concrete:
        return None
    data = model.arguments.data
    aligned = tuple(n for n, a in data.items() if a.shape[0] == rows.count)
    first = {n: a[:1] if n in aligned else a for n, a in data.items()}
    try:
        single = trace_model(model.function, *model.arguments.call(first), model.plate)
        engine = engine_for(single, np.dtype(float), apart=True)
    except LowerboundError:
        return None
    local = [b for b in engine.joint.blocks if set(b.sites) & set(single.local)]
    if len(local) > 1 or any(not b.family.enumerable or b.sequential for b in local):
        return None
    if any(b.elements != 1 for b in local):
        return None
    assignment = local[0].number if local else None
    summands = tuple(s for s in engine.joint.summands if s.site in rows.axes)
    if any(len(s.blocks - {assignment}) > 1 or s.curved for s in summands):
        return None
    if any(b.family.free_form for b in engine.joint.blocks):  # its functions hold the data of a row
        return None
    engine.certified()
    return OneRow(
        engine, summands, assignment, aligned, _component_axes(engine, summands, assignment)
    )


def _component_axes(
    engine: Engine, summands: Sequence[Summand], assignment: int | None
) -> dict[int, int]:
    """Blocks with one independent copy per category, of which an assignment touches its own alone.

    Then the gains of all categories come from one evaluation of A.
    """
    found: dict[int, int] = {}
    for block in engine.joint.blocks:
        mine = [s for s in summands if block.number in s.blocks]
        places = set()
        for summand in mine:
            categories = {r.index[-1] for r in summand.reads if r.block == assignment}
            for read in (r for r in summand.reads if r.block == block.number):
                batch = read.index[: len(block.batch_shape)]
                at = [axis for axis, i in enumerate(batch) if i in categories]
                places.add(at[0] if len(at) == 1 else None)
        if len(places) == 1 and None not in places:
            found[block.number] = places.pop()  # type: ignore[assignment]
    return found


def exact_densities(
    rows: Rows, family: MeanField, state: State, single: OneRow | None = None
) -> np.ndarray | None:
    """Log p(row | x) of every row under q, or None where it has no closed form."""
    one = single or one_row(rows)
    if one is None:
        return None
    mine = {(b.sites, b.kind): b.number for b in family.blocks}
    numbers: dict[int, int] = {}
    for block in one.engine.joint.blocks:
        if block.number == one.assignment:
            continue
        if (block.sites, block.kind) not in mine:
            return None
        numbers[block.number] = mine[block.sites, block.kind]
    naturals = {n: state.naturals[other] for n, other in numbers.items()}
    means = {n: state.means[other] for n, other in numbers.items()}
    data = {n: jnp.asarray(a) for n, a in inputs_of(rows.model).items()}
    moving = {n: data[n] for n in one.aligned}
    fixed = {n: a for n, a in data.items() if n not in one.aligned}
    key = ("exact", tuple(sorted(moving)))
    if key not in one.engine.compiled:

        def every(moving: Any, fixed: Any, naturals: Any, means: Any) -> Array:
            def density(row: Mapping[str, Array]) -> Array:
                whole = {**fixed, **{n: a[None] for n, a in row.items()}}
                return _density(one, one.engine.joint.compress(whole), naturals, means)

            values: Array = jax.lax.map(density, moving, batch_size=one.at_once)
            return values

        one.engine.compiled[key] = jit(every)
    return np.asarray(one.engine.compiled[key](moving, fixed, naturals, means))


def _density(
    one: OneRow,
    arrays: Sequence[Array],
    naturals: Mapping[int, dict[str, Array]],
    means: Mapping[int, dict[str, Array]],
) -> Array:
    """Log sum_k exp(c_k + sum_b A(lambda_b + g_bk) - A(lambda_b)) of one row."""
    families = one.engine.family.families
    before = {n: families[n].log_normalizer(natural) for n, natural in naturals.items()}
    alone = [s for s in one.summands if not s.blocks - {one.assignment}]
    shared = {n: [s for s in one.summands if n in s.blocks] for n in naturals}

    def point(indicator: Array | None) -> Statistics:
        return tuple(
            means.get(n, {"indicator": indicator})  # type: ignore[dict-item]
            for n in range(len(families))
        )

    def given(indicator: Array | None) -> Array:
        statistics = point(indicator)
        value = energy(alone, arrays, statistics)
        for number, summands in shared.items():
            if summands and number not in one.axes:
                moved = gradient(summands, arrays, statistics, number)
                natural = {k: a + moved[k] for k, a in naturals[number].items()}
                gain = families[number].log_normalizer(natural) - before[number]
                value = value + gain.sum()
        return value

    if one.assignment is None:
        return given(None)
    shape = families[one.assignment].statistic_shapes()["indicator"]
    categories = jnp.eye(shape[-1]).reshape((shape[-1], *shape))
    values = jax.vmap(given)(categories)
    everywhere = point(jnp.ones(shape))  # every category at once: each touches its own copy
    for number, axis in one.axes.items():
        moved = gradient(shared[number], arrays, everywhere, number)
        natural = {k: a + moved[k] for k, a in naturals[number].items()}
        gain = families[number].log_normalizer(natural) - before[number]
        values = values + gain.sum(axis=tuple(a for a in range(gain.ndim) if a != axis))
    return logsumexp(values)
