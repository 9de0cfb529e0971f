"""Before a run: its precision, the block that seeds its start, and the values given to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lowerbound.compute.engine import Engine
from lowerbound.errors import ArgumentError, TooManyComponentsError, UnknownSiteError
from lowerbound.model import Model
from lowerbound.run.method import Method


def assignments(engine: Engine, model: Model) -> int | None:
    """The block of mixture assignments: one discrete variable per row, with components to index."""
    plate = model.data_plate
    discrete = [b for b in engine.joint.blocks if b.family.enumerable and not b.sequential]
    if len(discrete) != 1:
        return None
    (block,) = discrete
    rows = block.elements
    if plate is None:  # a vector of them, without a plate
        if len(block.layouts[block.sites[0]].shape) != 1 or rows < block.static["dim"]:
            return None
    elif rows != plate.size or block.sites[0] not in model.local:
        return None
    meets = [s for s in engine.joint.summands if block.number in s.blocks and len(s.blocks) > 1]
    return block.number if meets else None


def check_components(engine: Engine, model: Model, seeded: int | None) -> None:
    """A mixture needs a row for every component."""
    if seeded is None:
        return
    rows = engine.joint.blocks[seeded].elements
    components = engine.joint.blocks[seeded].static["dim"]
    if components > rows:
        static = {
            name: value
            for name, value in zip(model.arguments.names, model.arguments.leaves, strict=True)
            if name is None and isinstance(value, int) and value == components
        }
        name = "K" if static else f"Site '{engine.joint.blocks[seeded].sites[0]}'"
        raise TooManyComponentsError(name, components, rows)


def given_values(model: Model, method: Method) -> dict[str, Any]:
    """The values to start from, checked against the model's sites."""
    init: Any = getattr(method, "init", None)
    if not isinstance(init, Mapping):
        return {}
    given, kind = {}, method.name
    for name, value in init.items():
        if name not in model.latent:
            raise UnknownSiteError(f"{kind} got init for", name, tuple(model.latent))
        array = np.asarray(value, dtype=float)
        expected = model.latent[name].shape
        try:
            array = np.broadcast_to(array, expected)
        except ValueError:
            raise ArgumentError(
                f"{kind} got init['{name}'] of shape {np.shape(value)}.\n"
                f"Expected the shape of the site, {expected}."
            ) from None
        if not np.isfinite(array).all():
            raise ArgumentError(f"{kind} got init['{name}'] with NaN or infinite entries.\n"
                                "Expected finite values of the site.")  # fmt: skip
        values = model.latent[name].support_values
        if values is not None:
            array = np.argmin(abs(array[..., None] - np.asarray(values)), axis=-1)
        given[name] = array
    return given


def check_partition(method: Method, model: Model) -> None:
    """Every site that `blocks` names must be a latent site of the model."""
    blocks: Any = getattr(method, "blocks", None) or ()
    for name in (name for block in blocks for name in block):
        if name not in model.latent:
            got = f"{method.name} got blocks with the site"
            raise UnknownSiteError(got, name, tuple(model.latent))
