"""Points at which a derivation is compared with the program: random values of every site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowerbound.joint.blocks.kind import Kind
from lowerbound.joint.latents import Latent
from lowerbound.joint.multiaffine import Joint

# By how much the positive sites of one point after another are moved, in logarithms: a function of
# a scale may underflow, or overflow, at all scales but the smallest, or the largest.
MOVED = (0.0, 0.0, -1.5, 1.5, -3.0, 3.0, -0.75, 0.75, -5.0, 5.0)


@dataclass(frozen=True)
class Within:
    """What the data say about the support of a site."""

    family: type[Kind]
    extras: Mapping[str, np.ndarray]


def random_point(
    latent: Latent, rng: np.random.Generator, within: Within | None = None, moved: float = 0.0
) -> np.ndarray:
    """A random point of a latent site's support, inside what the data allow.

    Values of a discrete site are given by their number; `moved` moves the log of positive ones.
    """
    if within is None:
        return latent.domain.point(latent, rng, moved)
    return within.family.point(latent, rng, moved, within.extras)


def restricted(joint: Joint, data: Mapping[str, Any]) -> dict[str, Within]:
    """What the data say about the supports of latent sites, by site."""
    blocks = [block for block in joint.blocks if block.extras and not block.family.free_form]
    if not blocks:
        return {}
    arrays = joint.compress(data)
    found: dict[str, Within] = {}
    for block in blocks:
        extras = {name: np.asarray(arrays[slot]) for name, slot in block.extras.items()}
        found |= dict.fromkeys(block.sites, Within(block.family, extras))
    return found
