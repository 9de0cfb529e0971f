"""`fit` by stochastic variational inference (alg:svi): rows, batches, start, steps, result."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from lowerbound.errors import ArgumentError, ConvergenceWarning
from lowerbound.fit.batches import Batches
from lowerbound.fit.begin import assignments, check_components, given_values, precision
from lowerbound.fit.checkpoint import Keeper
from lowerbound.fit.devices import Placement, placement
from lowerbound.fit.engine import Arrays
from lowerbound.fit.lap import Total, elbo_terms, lap_total
from lowerbound.fit.memoized import Memory, memo_reason, run_visits, total_of_memory
from lowerbound.fit.method import SVI
from lowerbound.fit.minibatch import (
    Before,
    Minibatch,
    RowPlan,
    find_rows,
    prepare,
    trace_batch,
    with_masks,
)
from lowerbound.fit.monitor import given_rows, scorer
from lowerbound.fit.placed import gathered
from lowerbound.fit.plan import Plan, check_partition, make_plan
from lowerbound.fit.posterior import History, Restart
from lowerbound.fit.result import Fit, site_records, versions
from lowerbound.fit.source import Call, open_call
from lowerbound.fit.start import Chance, chances, start
from lowerbound.fit.stochastic import (
    Carry,
    Clockwork,
    Run,
    first_carry,
    result_of,
    run_steps,
    schedule_of,
    stop_reason,
)
from lowerbound.model import Model
from lowerbound.update import State

BATCH = 4096
HELD_OUT = 1000  # at most; and no more than a twentieth of the rows
FEWEST_HELD_OUT = 20


@dataclass(frozen=True)
class Setting:
    """A model call opened for minibatches: its rows, and the model on the first of them."""

    call: Call
    plan: RowPlan
    batches: Batches
    model: Model
    batch: Minibatch
    before: Before | None = None
    where: Placement | None = None

    def weighted(self) -> Minibatch:
        """The batch with a weight for each row."""
        batch, names = self.batch, self.plan.names
        dtype, partition = batch.rows.engine.dtype, batch.partition
        return prepare(self.model, names, dtype, partition, True, batch.origins, self.before)


def run_svi(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: SVI,
    seed: int,
    progress: bool | None,
    keep: Keeper | None = None,
    resumed: Mapping[str, Any] | None = None,
) -> Fit:
    """Fit the global factors of a model from minibatches of its rows."""
    with jax.enable_x64(True):
        setting = open_rows(function, args, kwargs, method, seed)
        return run_setting(setting, method, seed, progress, keep, resumed)


def run_setting(
    setting: Setting,
    method: SVI,
    seed: int,
    progress: bool | None,
    keep: Keeper | None,
    resumed: Mapping[str, Any] | None,
    state: State | None = None,
) -> Fit:
    """Start (or go on from a state), step and report."""
    if method.memoized:
        return run_memoized(setting, method, seed, progress, keep, resumed, state)
    batch, batches = setting.batch, setting.batches
    clock = Clockwork.of(
        batches.total, batches.size, method.steps, keep.checkpoint.every if keep else None
    )
    score = held_out_score(setting, method, seed)
    schedule = schedule_of(method)
    if resumed is not None:
        run = Run.restored(resumed)
    else:
        first = state or first_state(setting, method, seed)
        run = first_run(first_carry(batch, schedule, first))
    if not (run.settled or run.done >= clock.limit):
        run = run_steps(
            batch, batches, schedule, method, clock, setting.where, run, score, keep, progress
        )
    batch.rows.engine.certified()
    if not run.settled and method.steps is None:
        reason = stop_reason(run, method, clock)
        warnings.warn(ConvergenceWarning(f"{reason}. Give more with steps=..."), stacklevel=4)
    last = with_means(batch, result_of(run, method))
    check_proper(batch, last)
    total = total_of(setting, run, last)
    reason = stop_reason(run, method, clock)
    return make_result(setting, method, seed, run, last, total, reason)


def run_memoized(
    setting: Setting,
    method: SVI,
    seed: int,
    progress: bool | None,
    keep: Keeper | None,
    resumed: Mapping[str, Any] | None,
    state: State | None,
) -> Fit:
    """Start, visit batches in turn, and report."""
    score = held_out_score(setting, method, seed)
    batch = setting.weighted()
    run = None if resumed is None else Memory.restored(resumed)
    if run is None and state is None:
        state = first_state(setting, method, seed)
    run = run_visits(
        batch, setting.batches, method, setting.where, run, state, score, keep, progress
    )
    batch.rows.engine.certified()
    check_proper(batch, run.state)
    total = total_of_memory(batch, run)
    return make_result(setting, method, seed, run, run.state, total, memo_reason(run, method))


# --------------------------------------------------------------------------------------------------
# Rows


def open_rows(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: SVI,
    seed: int,
    before: Before | None = None,
) -> Setting:
    """Decide which arguments are rows, and derive the model on the first batch of them."""
    call = open_call(function, args, kwargs)
    plan = find_rows(function, call, method.plate)
    source = call.source(plan.names)
    held_out = held_out_count(method, plan.total)
    where = placement(method.devices)
    size = batch_size(method, plan.total - held_out, where)
    part = (0, 1) if where is None else (where.process, where.processes)
    batches = Batches(source, size, seed, method.sampling, held_out, part)
    chunks = batches.chunks(0, 1, 1)
    first = gathered({n: a[0] for n, a in next(chunks).items()}, where)
    chunks.close()
    model = trace_batch(function, call, plan, first)
    check_partition(method.blocks, model)
    batch = prepare(model, plan.names, precision(method, where), method.blocks, before=before)
    return Setting(call, plan, batches, model, batch, before, where)


def batch_size(method: SVI, rows: int, where: Placement | None) -> int:
    """Rows per step, an equal part of them on each device."""
    devices = 1 if where is None else where.count
    size = method.batch_size
    if size is None:
        return min(BATCH, rows) // devices * devices or rows
    if size % devices:
        raise ArgumentError(
            f"SVI got batch_size={size} for {devices} devices.\nExpected a multiple of {devices}, "
            f"as many rows on each device. Use batch_size={-(-size // devices) * devices}."
        )
    return size


def held_out_count(method: SVI, total: int) -> int:
    """How many rows to set aside."""
    if method.memoized and method.monitor == "auto":
        return 0  # the ELBO itself is there to stop by
    if isinstance(method.monitor, int):
        return int(method.monitor)
    if not isinstance(method.monitor, str):
        return 0
    count = min(HELD_OUT, total // 20)
    return count if count >= FEWEST_HELD_OUT else 0


def held_out_score(setting: Setting, method: SVI, seed: int) -> Callable[[State], float] | None:
    """The average log predictive of the rows held out, as a function of the global factors."""
    model, batch = setting.model, setting.batch
    if setting.batches.held_out:
        rows = setting.batches.held_out_rows()
        held_out = trace_batch(model.function, setting.call, setting.plan, rows)
    elif method.monitor is None or isinstance(method.monitor, str):
        return None
    else:
        held_out = given_rows(model, method.monitor)
    score = scorer(held_out, batch.shared.family, seed)
    return lambda state: score(batch.moved_back(state))


# --------------------------------------------------------------------------------------------------
# Start and end


def first_state(setting: Setting, method: SVI, seed: int) -> State:
    """Global factors that a start on the first batch leads to, before any step."""
    model, batch = setting.model, setting.batch
    engine = batch.rows.engine
    seeded = assignments(engine, model)
    check_components(engine, model, seeded)
    given = {n: v - batch.origins.get(n, 0) for n, v in given_values(model, method).items()}
    for name in given:
        if name in model.local:
            raise ArgumentError(
                f"SVI got init for '{name}', which is local: it is solved anew in every batch.\n"
                "Expected values of global sites."
            )
    how = method.init if isinstance(method.init, str) else "auto"
    chance: Chance = jax.tree.map(lambda a: a[0], chances(engine, seed, 1, how, seeded))
    inputs = batch.example
    key = ("svi start", how, tuple(sorted(given)), seeded)
    if key not in engine.compiled:

        def begin(inputs: Any, chance: Chance, given: Any) -> State:
            arrays: Arrays = batch.compress(inputs)
            return batch.shared.take(start(engine, arrays, chance, how, given, seeded))

        engine.compiled[key] = engine.compile(begin, inputs, chance, dict(given))
    state: State = engine.compiled[key](inputs, chance, dict(given))
    return doubled(state)


def doubled(state: State) -> State:
    """Global factors are kept in double precision: they are small, and they accumulate."""

    def double(array: Any) -> Any:
        floating = np.issubdtype(array.dtype, np.floating)
        return np.asarray(array, dtype=float) if floating else np.asarray(array)

    doubles: State = jax.tree.map(double, state)
    return doubles


def first_run(carry: Carry) -> Run:
    """Nothing done yet."""
    none = np.zeros(0)
    return Run(carry, 0, none, none, none, np.zeros(0, int))


def with_means(batch: Minibatch, state: State) -> State:
    """The state with the means that belong to its natural parameters."""
    families = batch.shared.family.families
    means = tuple(f.mean(n) for f, n in zip(families, state.naturals, strict=True))
    return State(state.naturals, means)


def check_proper(batch: Minibatch, state: State) -> None:
    """Every global factor must be a proper density; name the site whose factor is not."""
    shared = batch.shared.family
    for block, family, natural in zip(shared.blocks, shared.families, state.naturals, strict=True):
        if not bool(np.all(family.in_domain(natural))):
            sites = ", ".join(f"'{site}'" for site in block.sites)
            raise ArgumentError(
                f"The factor of {sites} is improper after the last step.\nExpected a proper "
                f"posterior. Give {sites} a proper prior, or take larger batches."
            )


def total_of(setting: Setting, run: Run, state: State) -> Total:
    """Sums over all rows; over as many as the run has seen where that is fewer."""
    batches, weighted, where = setting.batches, setting.weighted(), setting.where
    share = batches.size // batches.part[1]
    if run.done * batches.size >= batches.total:
        return lap_total(weighted, batches.lap(), share, state, where)
    drawn = batches.chunks(run.done, 1, 2 * run.done)
    laps = ({n: a[0] for n, a in chunk.items()} for chunk in drawn)
    return lap_total(weighted, laps, share, state, where, sampled=batches.total)


def make_result(
    setting: Setting,
    method: SVI,
    seed: int,
    run: Run | Memory,
    state: State,
    total: Total,
    reason: str,
) -> Fit:
    """The record of a finished run: global factors, and the batch that the model was traced on."""
    batch, model = setting.batch, setting.model
    terms = elbo_terms(total, state)
    args, kwargs = model.arguments.call(with_masks(model, model.arguments.data))
    elbo = sum(terms.values())
    return Fit(
        elbo=elbo,
        elbo_error=total.error,
        history=History(run.elbo, run.seconds, run.held_out, run.rows),
        restarts=(Restart(elbo, run.done, reason),),
        converged=run.settled,
        stop_reason=reason,
        plan=svi_plan(setting, method),
        method=repr(method),
        seed=seed,
        versions=versions(),
        precision=str(batch.rows.engine.dtype),
        state=batch.moved_back(state),
        family=batch.shared.family,
        function=model.function,
        args=args,
        kwargs=kwargs,
        sites={n: s for n, s in site_records(model).items() if s["scope"] == "global"},
        blocks=method.blocks,
        whole=False,
        terms={s.name: terms[s.name] for s in model.sites if s.name in terms},
        plate=setting.plan.plate,
    )


def svi_plan(setting: Setting, method: SVI) -> Plan:
    """What `explain` prints of a stochastic fit."""
    return make_plan(setting.model, setting.batch.rows.engine.joint)
