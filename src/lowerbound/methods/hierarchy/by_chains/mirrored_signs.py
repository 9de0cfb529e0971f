"""Signs that the data do not tell: hyperparameters that may be turned around without any loss."""

from __future__ import annotations

import numpy as np

from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.hierarchy.surface import Solved, Surface

SAME = 1e-8  # relative difference of values that are one
MOST_COLUMNS = 12  # of a site, each of which may have a sign of its own


def mirrored(surface: Surface, top: Solved, one: Predictors) -> list[tuple[str, np.ndarray]]:
    """Sites, or columns of them, whose signs may be changed: names, and -1 where t changes (k,).

    Looked for at one place that has no symmetry of its own.
    """
    found: list[tuple[str, np.ndarray]] = []
    begin = 0
    for name in one.theta:
        own = np.arange(begin, begin + one.length(name))
        begin += len(own)
        if not one.is_real(name) or not len(own):
            continue
        shape = one.coordinates.shapes[name]
        columns: list[tuple[str, np.ndarray]] = []
        if len(shape) == 2 and 1 < shape[1] <= MOST_COLUMNS:
            for column, some in enumerate(own.reshape(shape).T):
                signs = _turned(surface, top, some)
                if signs is not None:
                    columns.append((f"'{name}'[:, {column}]", signs))
        whole = None if columns else _turned(surface, top, own)
        found += columns if whole is None else [(f"'{name}'", whole)]
    return found


def _turned(surface: Surface, top: Solved, some: np.ndarray) -> np.ndarray | None:
    """The signs that turn some of t around, where L is the same for it."""
    signs = np.ones(len(top.t))
    signs[some] = -1.0
    if not (abs(top.t[some]) > 1e-3).any():
        return None
    other = surface(signs * top.t, (), False)
    if other is None or not abs(other.value - top.value) <= SAME * (1.0 + abs(top.value)):
        return None
    return signs


def turned_at_random(
    t: np.ndarray, signs: list[tuple[str, np.ndarray]], rng: np.random.Generator
) -> np.ndarray:
    """Draws with every sign that is not told changed by the toss of a coin."""
    for _, one in signs:
        t = np.where(rng.random(len(t))[:, None] < 0.5, t, t * one)
    return t
