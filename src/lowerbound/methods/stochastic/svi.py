"""`fit` by stochastic variational inference (alg:svi): rows, batches, start, steps, result."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent import State
from lowerbound.compute.engine import Arrays, Engine
from lowerbound.compute.versions import versions
from lowerbound.errors import ArgumentError, ConvergenceWarning
from lowerbound.joint import Joint, multi_affine
from lowerbound.methods.coordinate.begin import assignments, check_components, given_values
from lowerbound.methods.coordinate.progress import host
from lowerbound.methods.coordinate.start import Chance, chances, start
from lowerbound.methods.stochastic.lap import Total, elbo_terms, lap_total
from lowerbound.methods.stochastic.memoized import Memory, memo_reason, run_visits, total_of_memory
from lowerbound.methods.stochastic.minibatch import (
    Minibatch,
    batch_residuals,
    trace_batch,
    with_masks,
)
from lowerbound.methods.stochastic.opened import Reading, Setting, open_rows, read_rows
from lowerbound.methods.stochastic.steps import (
    Carry,
    Clockwork,
    Run,
    first_carry,
    result_of,
    run_steps,
    schedule_of,
    stop_reason,
)
from lowerbound.methods.values import SVI
from lowerbound.result.fitted import Fit, site_records
from lowerbound.result.held_out import given_rows, scorer
from lowerbound.result.plan import Plan, make_plan
from lowerbound.result.posterior import History, Restart
from lowerbound.run.resume import of_program
from lowerbound.store.checkpoint import Keeper

TRIES, SWEEPS = 8, 20  # coordinate ascents on the first batch of a mixture, and their length
TRY_NUMBERS = 4_000_000  # responsibilities of all of them


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
        if keep is not None:
            keep = of_program(keep, setting.model)
        if setting.where is not None and setting.where.process != 0:
            progress = False
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
    clock = Clockwork.of(batches.total, batches.size, method.steps)
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
    if not run.settled and run.done >= clock.limit and method.steps is None:
        remedy = "Give more with steps=..., or loosen tolerance."
        warnings.warn(ConvergenceWarning(f"{clock.limit} steps", remedy), stacklevel=4)
    last = host(result_of(batch, run, method))
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
    check_proper(batch, host(run.state))
    if run.visits < len(setting.batches.lap_sizes):  # not every row is in the sums
        share = setting.batches.size // setting.batches.part[1]
        last = host(run.state)
        total = lap_total(batch, setting.batches.lap(), share, last, setting.where)
    else:
        total = total_of_memory(batch, run)
    return make_result(setting, method, seed, run, host(run.state), total, memo_reason(run, method))


def held_out_score(setting: Setting, method: SVI, seed: int) -> Callable[[State], float] | None:
    """The average log predictive of the rows held out, as a function of the global factors."""
    model, batch = setting.model, setting.batch
    if setting.batches.held_out:
        rows = setting.batches.held_out_rows()
        held_out = trace_batch(model.function, setting.reading.call, setting.reading.plan, rows)
    elif method.monitor is None or isinstance(method.monitor, str):
        return None
    else:
        held_out = given_rows(model, method.monitor)
    average = scorer(held_out, batch.shared.family, seed)

    def score(state: State) -> float:
        value = average(batch.moved_back(state))
        # Processes that round differently must still stop together.
        return value if setting.where is None else float(setting.where.agree(value)[0])

    return score


# --------------------------------------------------------------------------------------------------
# Start and end


def first_state(setting: Setting, method: SVI, seed: int) -> State:
    """Global factors that a start on the first batch leads to, before any step.

    A mixture has many local optima: there it is the best of several short coordinate ascents.
    """
    model, batch = setting.model, setting.batch
    engine = batch.rows.engine
    seeded = assignments(engine, model)
    if seeded is not None and not isinstance(method.init, Mapping):
        model, batch = setting.start_rows()
        engine = batch.rows.engine
    check_components(engine, model, seeded)
    for name in method.init if isinstance(method.init, Mapping) else ():
        if name in model.local:
            raise ArgumentError(
                f"SVI got init for '{name}', which is local: it is solved anew in every batch.\n"
                "Expected values of global sites."
            )
    given = {n: v - batch.origins.get(n, 0) for n, v in given_values(model, method).items()}
    how = method.init if isinstance(method.init, str) else "auto"
    tries, sweeps = 1, 0
    if seeded is not None and not given and how in ("auto", "k-means++", "rows"):
        tries, sweeps = max(1, min(TRIES, TRY_NUMBERS // responsibilities(engine, seeded))), SWEEPS
    chance = chances(engine, seed, tries, how, seeded)
    inputs = batch.example
    key = ("svi start", how, tuple(sorted(given)), seeded, tries)
    if key not in engine.compiled:

        def begin(inputs: Any, chance: Chance, given: Any) -> State:
            arrays: Arrays = batch.compress(inputs)

            def one(chance: Chance) -> tuple[State, Array]:
                state = start(engine, arrays, chance, how, given, seeded)

                def sweep(_: Array, loop: tuple[State, Array]) -> tuple[State, Array]:
                    return engine.sweep(arrays, loop[0])

                state, bound = jax.lax.fori_loop(0, sweeps, sweep, (state, jnp.zeros(())))
                return batch.shared.take(state), bound

            states, bounds = jax.lax.map(one, chance)
            best = jnp.argmax(jnp.where(jnp.isfinite(bounds), bounds, -jnp.inf))
            chosen: State = jax.tree.map(lambda a: a[best], states)
            return chosen

        engine.compiled[key] = engine.compile(begin, inputs, chance, dict(given))
    state: State = engine.compiled[key](inputs, chance, dict(given))
    return doubled(state)


def responsibilities(engine: Engine, seeded: int) -> int:
    """How many numbers the assignments of a batch are."""
    return math.prod(engine.family.families[seeded].statistic_shapes()["indicator"])


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


def check_proper(batch: Minibatch, state: State) -> None:
    """Every global factor must be a proper density; name the site whose factor is not."""
    shared = batch.shared.family
    for block, proper in zip(shared.blocks, shared.proper(state.naturals), strict=True):
        if not proper:
            sites = ", ".join(f"'{site}'" for site in block.sites)
            raise ArgumentError(
                f"The factor of {sites} is improper after the last step.\nExpected a proper "
                f"posterior. Give {sites} a proper prior, or take larger batches."
            )


def total_of(setting: Setting, run: Run, state: State) -> Total:
    """Sums over all rows; over as many as the run has seen where that is fewer."""
    batches, weighted, where = setting.batches, setting.weighted(), setting.where
    share = batches.size // batches.part[1]
    count = max(run.done, 2)  # one batch alone says nothing of the error
    if count * batches.size >= batches.total:
        return lap_total(weighted, batches.lap(), share, state, where)
    drawn = batches.chunks(run.done, 1, run.done + count)
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
        plan=svi_plan(setting.reading, batch.rows.engine.joint, method),
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
        plate=setting.reading.plan.plate,
    )


# --------------------------------------------------------------------------------------------------
# The plan


def explain_svi(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], method: SVI
) -> Plan:
    """The plan of a stochastic fit, from its first batch."""
    return svi_plan(*derived_batch(function, args, kwargs, method), method)


def derived_batch(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], method: SVI
) -> tuple[Reading, Joint]:
    """The first batch and what is derived of it, with all that keeps batches from adding up."""
    reading = read_rows(function, args, kwargs, method, 0)
    joint = multi_affine(reading.model, method.blocks, apart=reading.model.local)
    residuals = (*joint.structure.residuals, *batch_residuals(reading.model, joint))
    return reading, replace(joint, structure=replace(joint.structure, residuals=residuals))


def svi_plan(reading: Reading, joint: Joint, method: SVI) -> Plan:
    """What `explain` prints of a stochastic fit."""
    batches, size = reading.batches, reading.batches.size
    scale = batches.total / size
    if method.memoized:
        count = len(batches.lap_sizes)
        how = f"visits {count} batches of {size:,} rows in turn and keeps their statistics; step 1"
    else:
        step = "adaptive"
        if not isinstance(method.forgetting, str):
            step = f"(t + {method.delay:g})^-{method.forgetting:g}"
        kind = "without replacement" if method.sampling == "epochs" else "uniformly"
        how = f"draws {size:,} of {batches.total:,} rows {kind}, scaled by {scale:.6g}; step {step}"
    notes = [f"SVI {how}.", f"Sliced by rows: {', '.join(reading.plan.names)}."]
    if batches.held_out:
        notes.append(f"{batches.held_out:,} rows are held out, to stop by their log predictive.")
    return make_plan(reading.model, joint, "SVI", reading.plan.total, notes)
