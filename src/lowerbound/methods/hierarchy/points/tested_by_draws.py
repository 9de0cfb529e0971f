"""Whether a density through points of a surface is that of the surface, by draws of it.

Points that do not foresee each other may make a good density all the same: what it misses at one
and at the other averages out. Draws that no point was chosen for tell, and cost no more than as
many points, where chains that start anew need thousands of slopes.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from lowerbound.family.numerics.smoothed import Smoothed
from lowerbound.methods.hierarchy.summits.uphill import Evaluated
from lowerbound.methods.hierarchy.surface import Solved

DRAWS = 128
ALIKE = 0.95  # effective size of the weights of draws, over their number
SHIFTED = 0.06  # sds that the weights may move a mean or a square by, half of which is noise
TAIL = 3.0  # sds beyond which a draw counts no more: of a log scale that may go far below zero


def agrees(evaluated: Evaluated, smoothed: Smoothed, seed: int) -> Generator[Solved, None, bool]:
    """Whether draws of a density have even weights; yields after every evaluation."""
    smoothed = smoothed.trimmed()
    t = smoothed.sample(np.random.default_rng(seed), DRAWS)
    values = []
    for one in evaluated.several(list(t)):
        yield one
        values.append(one.value)
    ratios = np.array(values) - smoothed.log_prob(t)
    if not np.isfinite(ratios).all():
        return False
    weights = np.exp(ratios - ratios.max())
    weights = weights / weights.sum()
    # What is off somewhere weighs little in the size of all, and the more in some mean.
    shifted = np.clip((t - t.mean(axis=0)) / t.std(axis=0), -TAIL, TAIL)
    both = np.concatenate([shifted, (shifted**2 - 1.0) / math.sqrt(2.0)], axis=1)
    moved = float(abs((weights - 1.0 / DRAWS) @ both).max())
    return ALIKE * DRAWS * float(weights @ weights) < 1.0 and moved < SHIFTED
