"""The mean-field family: the named product of factors q(z) = prod_j q_j(z_j) (eq:mf-family)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
from jax import Array

from lowerbound.family.exponential import ExponentialFamily, Natural
from lowerbound.family.registry import family_of
from lowerbound.joint import Block, Statistics


@dataclass(frozen=True)
class MeanField:
    """One exponential family per block, and the packing of sites into blocks."""

    blocks: tuple[Block, ...]
    families: tuple[ExponentialFamily, ...]

    @classmethod
    def of(cls, blocks: tuple[Block, ...]) -> MeanField:
        """The families that the blocks' kinds name."""
        return cls(blocks, tuple(family_of(b.kind, b.batch_shape, **b.static) for b in blocks))

    def statistics(self, values: Mapping[str, Array]) -> Statistics:
        """t(z) of every block at point values of the sites."""
        return tuple(
            family.statistics(block.pack(values))
            for block, family in zip(self.blocks, self.families, strict=True)
        )

    def sample(
        self, naturals: tuple[Natural, ...], key: Array, shape: tuple[int, ...] = ()
    ) -> dict[str, Array]:
        """Independent draws of all sites, with leading axes `shape`."""
        values: dict[str, Array] = {}
        keys = jax.random.split(key, len(self.blocks))
        for block, family, natural, k in zip(
            self.blocks, self.families, naturals, keys, strict=True
        ):
            values.update(block.unpack(family.sample(natural, k, shape)))
        return values
