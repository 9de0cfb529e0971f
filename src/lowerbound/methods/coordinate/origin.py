"""Origins: Gaussian sites are measured from where the data put them, when that is far from zero.

x^2 - 2 x mu + mu^2 cancels when the data sit far from zero. A first estimate of each
location, in double precision, becomes the origin from which the fit measures it; at the end the
factors are moved back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.ascent import State
from lowerbound.compute.engine import Arrays, Engine, engine_for
from lowerbound.compute.prior_state import from_prior
from lowerbound.compute.spread import Spread, fetch
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import Block, inputs_of
from lowerbound.joint.multiaffine import origin_name
from lowerbound.joint.terms.domain import REAL
from lowerbound.model import Model

# Deviations from zero at which the cancellation costs about half of the digits.
FAR = {np.dtype("float64"): 1000.0, np.dtype("float32"): 3.0}


def far_from_zero(data: Mapping[str, Any], dtype: np.dtype[Any]) -> bool:
    """Whether some column's mean is so many deviations from zero that sums of squares cancel."""
    for array in data.values():
        if np.issubdtype(array.dtype, np.floating) and len(array) > 1:
            array = array[:: max(1, len(array) // 1000)]  # some rows tell
            mean, spread = array.mean(axis=0), array.std(axis=0)
            if ((spread > 0) & (abs(mean) > FAR[dtype] * spread)).any():  # constants are intercepts
                return True
    return False


def find_origins(
    model: Model,
    partition: Sequence[Sequence[str]] | None,
    spread: Spread | None = None,
) -> dict[str, np.ndarray]:
    """A first estimate of every location that enters alone, in double precision.

    Along the axis of mixture components it is their average, so that no term of all rows and all
    components arises.
    """
    engine = engine_for(model, np.dtype("float64"), partition, spread=spread)
    blocks = [b for b in engine.joint.blocks if b.family.located and _alone(engine, b)]
    if not blocks:
        return {}
    arrays = engine.prepare(inputs_of(model))
    key = "origins"
    if key not in engine.compiled:

        def first(arrays: Arrays) -> dict[str, jax.Array]:
            state = from_prior(engine, arrays)
            found: dict[str, jax.Array] = {}
            for block in blocks:
                state, _ = engine.sweep.update(arrays, state, block.number)
                family = engine.family.families[block.number]
                values = block.unpack(family.centre(state.means[block.number]))
                found.update({name: values[name] for name in block.layouts})
            return found

        engine.compiled[key] = engine.once(first, arrays)
    located: dict[str, np.ndarray] = fetch(engine.compiled[key](arrays))
    origins = {}
    for block in blocks:
        for name in block.layouts:
            axes = tuple(_component_axes(engine, block, name))
            origin = located[name].mean(axis=axes, keepdims=True)
            if np.isfinite(origin).all():
                origins[name] = origin
    return origins


def _alone(engine: Engine, block: Block) -> bool:
    """Whether the block enters through its moments, and multiplies no other real-valued block."""
    if any(block.number in s.curved for s in engine.joint.summands):
        return False
    real = {b.number for b in engine.joint.blocks if REAL in b.family.domains}
    return not any(
        block.number in s.blocks and s.blocks & real - {block.number} for s in engine.joint.summands
    )


def _component_axes(engine: Engine, block: Block, site: str) -> set[int]:
    """Axes of a site that a discrete latent indexes."""
    layout = block.layouts[site]
    order = (*layout.batch, *layout.vector)
    found: set[int] = set()
    for summand in engine.joint.summands:
        categories = {r.index[-1] for r in summand.reads if r.statistic == "indicator"}
        for read in summand.reads:
            if read.block == block.number and len(read.index) >= len(order):
                for position, axis in enumerate(order):
                    if read.index[position] in categories:
                        found.add(axis)
    return found


def with_origins(data: Mapping[str, Any], origins: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The inputs of a program with the origins added."""
    return {**data, **{origin_name(name): origin for name, origin in origins.items()}}


def moved_back(family: MeanField, state: State, origins: Mapping[str, np.ndarray]) -> State:
    """The state in the sites' own coordinates, in double precision."""
    double: State = jax.tree.map(lambda a: jnp.asarray(a, dtype=_double(a)), state)
    naturals = list(double.naturals)
    for block, factor in zip(family.blocks, family.families, strict=True):
        number = block.number
        if any(name in origins for name in block.layouts):
            places: dict[str, Any] = {
                name: np.broadcast_to(origins.get(name, np.zeros(())), layout.shape)
                for name, layout in block.layouts.items()
            }
            if block.scale:
                places[block.scale] = np.ones(block.batch_shape)
            origin = block.pack(places)["x"]
            naturals[number] = factor.translated(naturals[number], origin)
    return State(tuple(naturals), family.means(tuple(naturals)))


def _double(array: Any) -> Any:
    return float if np.issubdtype(array.dtype, np.floating) else array.dtype
