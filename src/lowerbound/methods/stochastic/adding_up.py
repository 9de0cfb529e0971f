"""What batches of rows need to add up: statistics alone, rows apart, and known missing entries."""

from __future__ import annotations

import numpy as np

from lowerbound.errors import MinibatchError, Residual
from lowerbound.joint import Joint
from lowerbound.joint.terms.expression import text
from lowerbound.joint.traced_program import mask_name
from lowerbound.model import Model
from lowerbound.result.unseen.new_rows import row_axes


def batch_residuals(model: Model, joint: Joint) -> tuple[Residual, ...]:
    """Terms through which the rows do not add up: every row brings a function of its own."""
    reason = "every row brings a function of its own, so that batches of rows do not add up"
    where = {site.name: site.where for site in model.sites}
    found: dict[tuple[str, ...], Residual] = {}
    for summand in joint.summands:
        for read in summand.reads:
            block = joint.blocks[read.block]
            wide = block.family.free_form and len(read.index) > len(block.batch_shape)
            if read.integral is None and not (wide and block.sites[0] not in model.local):
                continue
            trees = block.static["trees"] if wide else read.integral.trees
            tree = trees[int(read.statistic.split("s")[1])]
            operation = text(tree, ", ".join(block.sites))
            residual = Residual(summand.site, block.sites, operation, reason, where[summand.site])
            found.setdefault((summand.site, *block.sites), residual)
    return tuple(found.values())


def local_blocks(model: Model, joint: Joint) -> tuple[int, ...]:
    """The blocks of the sites that belong to rows."""
    return tuple(b.number for b in joint.blocks if set(b.sites) & set(model.local))


def check_locals(model: Model, joint: Joint) -> None:
    """Local factors must be independent from row to row."""
    axes = row_axes(model)
    for number in local_blocks(model, joint):
        block = joint.blocks[number]
        site = next(iter(block.layouts), block.scale)
        layout = block.layouts.get(site or "")
        apart = layout is None or axes[site or ""] in layout.batch
        if block.sequential or not apart:
            raise MinibatchError.coupled(site or "")


def mask_sources(model: Model) -> dict[str, tuple[str, int]]:
    """Which argument's missing entries are those of each observed site."""
    found = {}
    for site, mask in model.missing.items():
        for name, entries in model.arguments.missing.items():
            events = entries.ndim - mask.ndim
            axes = tuple(range(mask.ndim, entries.ndim))
            if events >= 0 and np.array_equal(entries.all(axis=axes), mask):
                found[mask_name(site)] = (name, events)
        if mask_name(site) not in found:
            raise MinibatchError.missing_of_several(site)
    return found
