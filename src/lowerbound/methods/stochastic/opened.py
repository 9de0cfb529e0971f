"""Opening a call for minibatches: which rows, how many at a time, and the model on the first."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowerbound.compute.devices import Placement
from lowerbound.compute.engine import derived
from lowerbound.compute.placed import gathered
from lowerbound.compute.spread import check_agreement
from lowerbound.errors import MinibatchError, Residual
from lowerbound.joint import Joint
from lowerbound.methods.coordinate.begin import check_partition, given_values
from lowerbound.methods.stochastic.adding_up import batch_residuals, check_locals, mask_sources
from lowerbound.methods.stochastic.batched import ByRows
from lowerbound.methods.stochastic.minibatch import Minibatch, prepare
from lowerbound.methods.stochastic.row_plan import RowPlan, find_rows, trace_batch
from lowerbound.methods.stochastic.shared_factors import Before
from lowerbound.model import Model
from lowerbound.run.problem import Problem
from lowerbound.run.resume import fingerprint
from lowerbound.source import Batches, Call, open_call

BATCH = 8192
START_ROWS = 8192  # rows on which the start of a mixture is found
HELD_OUT = 1000  # at most; and no more than a twentieth of the rows
FEWEST_HELD_OUT = 20


@dataclass(frozen=True, eq=False)
class Reading:
    """A model call opened for minibatches: its rows, and the model on the first of them.

    joint: what is derived of that, with all that keeps batches from adding up.
    """

    call: Call
    plan: RowPlan
    batches: Batches
    model: Model
    joint: Joint
    where: Placement | None

    @property
    def residuals(self) -> tuple[Residual, ...]:
        """The terms through which batches do not add up."""
        return self.joint.structure.residuals


@dataclass(frozen=True, eq=False)
class Setting:
    """A call opened for minibatches, with the model compiled on the first of them."""

    reading: Reading
    batch: Minibatch
    before: Before | None = None

    @property
    def share(self) -> int:
        """The rows of a batch that this process has."""
        return self.reading.batches.size // self.reading.batches.part[1]

    def start_rows(self) -> tuple[Model, Minibatch]:
        """The model on enough rows to find the components of a mixture."""
        batches, batch = self.reading.batches, self.batch
        count = -(-min(START_ROWS, batches.total) // batches.size)
        if count == 1:
            return self.reading.model, batch
        chunk = rows_of_batches(batches, count, self.reading.where)
        rows = {n: a.reshape((-1, *a.shape[2:]))[: batches.total] for n, a in chunk.items()}
        call, plan = self.reading.call, self.reading.plan
        model = trace_batch(self.reading.model.function, call, plan, rows)
        dtype, partition = batch.rows.engine.dtype, batch.partition
        small = prepare(model, plan.names, dtype, partition, False, batch.origins, self.before)
        return model, small

    def weighted(self) -> Minibatch:
        """The batch with a weight for each row."""
        batch, names = self.batch, self.reading.plan.names
        dtype, partition = batch.rows.engine.dtype, batch.partition
        return prepare(
            self.reading.model, names, dtype, partition, True, batch.origins, self.before
        )


def set_up(problem: Problem, reading: Reading, method: ByRows, before: Before | None) -> Setting:
    """Compile the model on the first batch of its rows."""
    dtype, names = problem.computing.dtype(reading.where), reading.plan.names
    batch = prepare(reading.model, names, dtype, method.blocks, before=before)
    return Setting(reading, batch, before)


def read_rows(problem: Problem, method: ByRows) -> Reading:
    """Decide which arguments are rows, and derive the model on the first batch of them."""
    function = problem.function
    call = open_call(function, *problem.call)
    plan = find_rows(function, call, method)
    source = call.source(plan.names)
    held_out = held_out_count(method, plan.total)
    where = problem.computing.placement()
    if where is not None and where.processes > 1:
        words = fingerprint(function, *problem.call)
        check_agreement({name: zlib.crc32(text.encode()) for name, text in words.items()}, where)
    size = batch_size(method, plan.total - held_out, where)
    part = (0, 1) if where is None else (where.process, where.processes)
    batches = Batches(source, size, problem.seed, method.sampling, held_out, part)
    first = {n: a[0] for n, a in rows_of_batches(batches, 1, where).items()}
    model = trace_batch(function, call, plan, with_missing(first, call.masked))
    check_partition(method, model)
    check_start(method, model)
    joint = derived(model, method.blocks, apart=True)
    residuals = (*joint.structure.residuals, *batch_residuals(model, joint))
    if residuals:
        joint = replace(joint, structure=replace(joint.structure, residuals=residuals))
    else:
        check_locals(model, joint)
        mask_sources(model)
    return Reading(call, plan, batches, model, joint, where)


def check_start(method: ByRows, model: Model) -> None:
    """Values to start from are those of global sites."""
    for name in method.init if isinstance(method.init, Mapping) else ():
        if name in model.local:
            raise MinibatchError.local_start(method.name, name)
    given_values(model, method)


def with_missing(rows: Mapping[str, Any], masked: Set[str]) -> dict[str, Any]:
    """The rows to trace a model on: each argument with missing entries has some among them.

    A later batch may have entries missing where this one has none, and two arguments may have the
    same entries missing here alone: so row k is marked as missing in the k-th such argument.
    """
    names = [name for name in rows if name in masked]
    found = {name: np.ma.getmaskarray(rows[name]) for name in names}
    if not names or (len(names) == 1 and found[names[0]].any()):
        return dict(rows)
    count = len(rows[names[0]])
    if count <= len(names):
        raise MinibatchError.too_few(count, names)
    marked = {}
    for k, name in enumerate(names):
        mask = found[name].copy()
        mask[k] = True
        marked[name] = np.ma.array(np.ma.getdata(rows[name]), mask=mask)
    return {**rows, **marked}


def rows_of_batches(batches: Batches, count: int, where: Placement | None) -> dict[str, Any]:
    """The first batches, whole on every process: arrays (count, size, *row)."""
    chunks = batches.chunks(0, count, count)
    own = next(chunks)
    chunks.close()
    return gathered(own, where, axis=1)


def batch_size(method: ByRows, rows: int, where: Placement | None) -> int:
    """Rows per step, an equal part of them on each device."""
    devices = 1 if where is None else where.count
    size = method.batch_size
    if size is None:
        return min(BATCH, rows) // devices * devices or rows
    if size % devices:
        raise MinibatchError.uneven(method.name, size, devices)
    return size


def held_out_count(method: ByRows, total: int) -> int:
    """How many rows to set aside."""
    if isinstance(method.monitor, int):
        return int(method.monitor)
    if not isinstance(method.monitor, str):
        return 0
    count = min(HELD_OUT, total // 20)
    return count if count >= FEWEST_HELD_OUT else 0
