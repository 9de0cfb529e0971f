"""The global factors of a model on batches: a family of their own, and the prior of new rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lowerbound.ascent import State
from lowerbound.errors import ArgumentError
from lowerbound.family.meanfield import MeanField
from lowerbound.joint import Block, Summand
from lowerbound.joint.blocks.block import Read
from lowerbound.joint.terms.indices import Label


@dataclass(frozen=True)
class Shared:
    """The global factors of a derived model, as a mean-field family of their own."""

    numbers: tuple[int, ...]
    family: MeanField
    count: int

    def take(self, state: State) -> State:
        """The global part of a state."""
        return State(
            tuple(state.naturals[n] for n in self.numbers),
            tuple(state.means[n] for n in self.numbers),
        )

    def put(self, state: State) -> State:
        """A state of all blocks with nothing in the local ones."""
        naturals = dict(zip(self.numbers, state.naturals, strict=True))
        means = dict(zip(self.numbers, state.means, strict=True))
        return State(
            tuple(naturals.get(n, {}) for n in range(self.count)),
            tuple(means.get(n, {}) for n in range(self.count)),
        )


@dataclass(frozen=True)
class Before:
    """Factors found from earlier data."""

    family: MeanField
    state: State

    def natural(self, block: Block) -> dict[str, Any]:
        """The natural parameters of the factor of the block's sites."""
        for mine, natural in zip(self.family.blocks, self.state.naturals, strict=True):
            same = (mine.sites, mine.kind, mine.batch_shape, mine.static)
            if same == (block.sites, block.kind, block.batch_shape, block.static):
                return dict(natural)
        raise ArgumentError(
            f"The fit has no factor of {', '.join(block.sites)} alone, of kind {block.kind} and "
            f"shape {block.batch_shape}.\nExpected a fit of the same model whose global sites "
            "share no factor with local ones. Fit the first data with method=lb.SVI()."
        )


def prior_summands(
    before: Before, shared: Shared, first: int
) -> tuple[tuple[Summand, ...], dict[str, Any]]:
    """<natural, t(z)> - A(natural), the log density of the earlier factors, as summands."""
    summands: list[Summand] = []
    arrays: dict[str, Any] = {}
    for block, family, number in zip(
        shared.family.blocks, shared.family.families, shared.numbers, strict=True
    ):
        natural, site = before.natural(block), block.sites[0]
        shapes = family.statistic_shapes()
        for name, shape in shapes.items():
            labels = tuple(Label(size) for size in shape)
            read = Read(number, name, (), shape, labels)
            slot = first + len(arrays)
            summands.append(Summand(site, 1.0, ((slot, labels),), (read,)))
            arrays[f"prior of {', '.join(block.sites)}: {name}"] = np.asarray(natural[name], float)
        slot = first + len(arrays)
        summands.append(Summand(site, -1.0, ((slot, ()),), ()))
        total = np.asarray(family.log_normalizer(natural)).sum()
        arrays[f"prior of {', '.join(block.sites)}: log normaliser"] = total
    return tuple(summands), arrays
