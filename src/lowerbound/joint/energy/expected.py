"""Expected statistics of rows (paper section 4.3): all that the global factors see of the data.

Given the factors of the local variables, the energy of some rows is a sum of products of global
statistics, each with a coefficient array that is a sum over the rows (soft counts, responsibility
weighted sums, X'X, ...). These arrays add up over batches and over devices, which is all that
stochastic, memoised and sharded inference need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array as JaxArray

from lowerbound.joint.blocks.block import Read
from lowerbound.joint.energy.summands import Slot, Statistics, Summand, filled
from lowerbound.joint.terms.indices import Gather, Index, Label, align, labels_read, take, unique

Expected = tuple[JaxArray, ...]  # coefficient arrays, sums over rows


@dataclass(frozen=True)
class Reduction:
    """Row summands with their rows and local statistics summed out.

    `summands` reads the coefficient arrays from slots `first`, `first + 1`, ...; the arrays are
    what calling the reduction returns.
    """

    rows: tuple[Summand, ...]
    local: frozenset[int]
    summands: tuple[Summand, ...]
    outputs: tuple[tuple[Label, ...], ...]
    gathers: tuple[Mapping[Label, Gather], ...]  # new label -> the index that it replaces

    def __call__(self, arrays: Sequence[JaxArray], statistics: Statistics) -> Expected:
        """The coefficient arrays of the given rows; `statistics` of global blocks are not read."""
        return tuple(
            _coefficients(summand, self.local, output, gathers, arrays, statistics)
            for summand, output, gathers in zip(self.rows, self.outputs, self.gathers, strict=True)
        )


def reduction(rows: Sequence[Summand], local: frozenset[int], first: int) -> Reduction:
    """Sum the rows out of `rows`; coefficient arrays go to slots from `first` on.

    An index of a global statistic by data, a[g[n]], becomes a sum over the entries of a with the
    rows of each gathered.
    """
    summands, outputs, gathers = [], [], []
    for number, summand in enumerate(rows):
        shared = [read for read in summand.reads if read.block not in local]
        replaced: dict[object, Label] = {}
        mapping: dict[Label, Gather] = {}
        renamed: list[Read] = []
        for read in shared:
            index: list[Index] = []
            for axis, i in enumerate(read.index):
                if not isinstance(i, Gather):
                    index.append(i)
                    continue
                key = (_identity(i.array), i.labels, read.shape[axis])
                if key not in replaced:
                    replaced[key] = Label(read.shape[axis])
                    mapping[replaced[key]] = i
                index.append(replaced[key])
            renamed.append(replace(read, index=tuple(index)))
        plain = {i for read in renamed for i in read.index if isinstance(i, Label)}
        own = _own_labels(summand, local) | {l for g in mapping.values() for l in g.labels}
        # Labels that only global statistics carry are left to them.
        order = labels_read(renamed)
        output = tuple(l for l in order if l in plain and (l in own or l in mapping))
        constants = ((first + number, output),)
        summands.append(Summand(summand.site, summand.coefficient, constants, tuple(renamed)))
        outputs.append(output)
        gathers.append(mapping)
    return Reduction(tuple(rows), local, tuple(summands), tuple(outputs), tuple(gathers))


def _identity(array: Any) -> object:
    return array.number if isinstance(array, Slot) else id(array)


def _own_labels(summand: Summand, local: frozenset[int]) -> set[Label]:
    """The labels of constants and of local statistics."""
    labels = {label for _, span in summand.constants for label in span}
    return labels.union(labels_read(read for read in summand.reads if read.block in local))


def _coefficients(
    summand: Summand,
    local: frozenset[int],
    output: tuple[Label, ...],
    gathers: Mapping[Label, Gather],
    arrays: Sequence[JaxArray],
    statistics: Statistics,
) -> JaxArray:
    """The product of constants and local statistics, summed over every label but `output`."""
    operands: list[tuple[Any, tuple[Label, ...]]] = [
        (arrays[slot], labels) for slot, labels in summand.constants
    ]
    for read in summand.reads:
        if read.block in local:
            operands.append(take(read.view(statistics[read.block]), filled(read, arrays)))
    indices = {
        label: gather
        if not isinstance(gather.array, Slot)
        else Gather(arrays[gather.array.number], gather.labels)
        for label, gather in gathers.items()
        if label in output
    }
    carried = unique([labels for _, labels in operands])
    gathered = {label for gather in indices.values() for label in gather.labels}
    kept = tuple(l for l in carried if l in output or l in gathered)
    total = _product(operands, kept)
    if not indices:
        return _spread(total, kept, output)
    # The rows of each entry: scatter over the labels of the indices.
    wide = (*kept, *(l for l in unique([g.labels for g in indices.values()]) if l not in kept))
    everywhere = jnp.broadcast_to(_expand(total, kept, wide), [label.size for label in wide])
    positions = tuple(
        align(jnp.asarray(indices[label].array), indices[label].labels, wide)
        if label in indices
        else align(np.arange(label.size), (label,), wide)
        for label in output
    )
    blank = jnp.zeros([label.size for label in output], everywhere.dtype)
    return blank.at[positions].add(everywhere, mode="clip")


def _product(
    operands: Sequence[tuple[Any, tuple[Label, ...]]], output: tuple[Label, ...]
) -> JaxArray:
    if not operands:
        return jnp.ones(())
    number = {label: i for i, label in enumerate(unique([labels for _, labels in operands]))}
    flat: list[Any] = []
    for array, labels in operands:
        flat += [array, [number[label] for label in labels]]
    out = [number[label] for label in output]
    return jnp.einsum(*flat, out, precision="highest")


def _expand(array: JaxArray, labels: tuple[Label, ...], onto: tuple[Label, ...]) -> JaxArray:
    return jnp.asarray(align(array, labels, onto))


def _spread(array: JaxArray, labels: tuple[Label, ...], onto: tuple[Label, ...]) -> JaxArray:
    return jnp.broadcast_to(_expand(array, labels, onto), [label.size for label in onto])
