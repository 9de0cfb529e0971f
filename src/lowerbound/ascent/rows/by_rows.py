"""From points of a climb to the parameters of a Gaussian on the unconstrained space, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowerbound.ascent.rows.objective import Objective
from lowerbound.ascent.rows.row_gaussians import Block, root
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian


def by_rows(objective: Objective, own: Block, shared: Block) -> dict[str, np.ndarray]:
    """The parameters of q (family.unconstrained), in the simplest form that has them."""
    size = objective.coordinates.size
    loc, scale = np.zeros(size), np.ones(size)
    loc[objective.own], loc[objective.shared] = own["loc"], shared["loc"]
    roots = root(own), root(shared)
    if "lower" not in own and "lower" not in shared:
        scale[objective.own], scale[objective.shared] = roots
        return {"loc": loc, "scale": scale}
    if not objective.own.size:
        return {"loc": loc, "scale_tril": roots[1]}
    return {
        "loc": loc,
        "own": objective.own,
        "own_root": roots[0],
        "shared": objective.shared,
        "shared_root": roots[1],
    }


def shared_block(family: UnconstrainedGaussian, naturals: Any, objective: Objective) -> Block:
    """The Gaussian of what rows share, in the order of a program of other rows."""
    names = [n for n in objective.coordinates.shapes if n not in objective.model.local]
    every = np.arange(family.coordinates.size)
    parts = [every[family.coordinates.part(name)] for name in names]
    entries = np.concatenate([np.zeros(0, int), *parts])
    loc = np.asarray(naturals["loc"])[entries]
    if "scale" in naturals:
        return {"loc": loc, "log_scale": np.log(np.asarray(naturals["scale"])[entries])}
    whole = np.asarray(naturals.get("scale_tril", naturals.get("shared_root")))
    if whole.ndim < 2:
        return {"loc": loc, "log_scale": np.log(whole)}
    scale = np.diagonal(whole)
    return {"loc": loc, "log_scale": np.log(scale), "lower": whole / scale[:, None]}
