"""The only loop: compiled chunks of sweeps, restarts in one batch, a stated reason to stop."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.ascent import State
from lowerbound.bound import elbo
from lowerbound.compiled import partial_results_are_asked_for
from lowerbound.compute.engine import Arrays, Engine
from lowerbound.compute.threads import one_thread
from lowerbound.errors import ConvergenceWarning, DecreasingBoundError, DecreasingBoundWarning
from lowerbound.family.exponential import ExponentialFamily
from lowerbound.family.factors.free import Free
from lowerbound.methods.coordinate.progress import (
    CHUNK,
    CONVERGED,
    FELL,
    NOT_FINITE,
    RUNNING,
    Carry,
    Progress,
    first_carry,
    host,
    next_check,
)
from lowerbound.methods.values import CAVI
from lowerbound.run.bar import Bar
from lowerbound.store.checkpoint import Keeper


@dataclass(frozen=True)
class Outcome:
    """A finished run: the best restart's state, and what happened in each."""

    state: State
    elbo: float
    history: np.ndarray  # (sweeps, restarts); NaN after a restart stopped
    seconds: np.ndarray  # cumulative, one per sweep
    monitor: np.ndarray  # held-out values, one per check; empty without monitor
    best: int
    elbos: np.ndarray
    sweeps: np.ndarray
    reasons: tuple[str, ...]
    converged: bool
    proper: np.ndarray  # whether every factor of a block is a proper density


def rounding(dtype: np.dtype[Any]) -> float:
    """The relative fall of the ELBO that rounding can explain."""
    return 1e-10 if dtype == np.float64 else 1e-4


def advance(
    engine: Engine, arrays: Arrays, states: State, restarts: int
) -> Callable[..., tuple[Carry, Array, Array]]:
    """Compiled: run up to `limit` sweeps of all restarts, freezing those that have stopped.

    Also returns the ELBO of each sweep and whether each block's factors are proper densities.
    """
    key = ("advance", restarts)
    if key in engine.compiled:
        return engine.compiled[key]  # type: ignore[no-any-return]
    slack = rounding(engine.dtype)

    def sweep(arrays: Arrays, state: State) -> tuple[State, Array]:
        return engine.sweep(arrays, state)

    def many(arrays: Arrays, state: State) -> tuple[State, Array]:
        if restarts > 1:
            return jax.vmap(partial(sweep, arrays))(state)
        single = jax.tree.map(lambda a: a[0], state)
        new, bound = sweep(arrays, single)
        return jax.tree.map(lambda a: a[None], new), bound[None]

    def run(
        arrays: Arrays, carry: Carry, limit: Array, tolerance: Array
    ) -> tuple[Carry, Array, Array]:
        def body(loop: tuple[Array, Carry, Array]) -> tuple[Array, Carry, Array]:
            t, old, history = loop
            state, bound = many(arrays, old.state)
            going = old.status == RUNNING
            if restarts > 1:
                state = jax.tree.map(lambda new, kept: _choose(going, new, kept), state, old.state)
            bound = jnp.where(going, bound, old.elbo)
            size = jnp.maximum(abs(bound), 1.0)
            change = bound - old.elbo
            status = jnp.where(change <= tolerance * size, CONVERGED, RUNNING)
            status = jnp.where(tolerance == 0.0, RUNNING, status)
            status = jnp.where(change < -slack * size, FELL, status)
            status = jnp.where(jnp.isfinite(bound), status, NOT_FINITE)
            status = jnp.where(going, status, old.status)
            history = history.at[t].set(jnp.where(going, bound, jnp.nan))
            new = Carry(state, bound, status, old.sweeps + going)
            return t + 1, new, history

        def more(loop: tuple[Array, Carry, Array]) -> Array:
            t, carry, _ = loop
            return (t < limit) & (carry.status == RUNNING).any()

        blank = jnp.full((CHUNK, restarts), jnp.nan)
        _, carry, history = jax.lax.while_loop(more, body, (jnp.zeros((), int), carry, blank))
        return carry, history, _proper(engine, carry.state, restarts)

    compiled: Callable[..., tuple[Carry, Array, Array]] = engine.compile(
        run, arrays, first_carry(states, restarts), np.asarray(1), np.zeros(()), within=State
    )
    engine.compiled[key] = compiled
    return compiled


def _proper(engine: Engine, state: State, restarts: int) -> Array:
    """Whether all factors of a block are proper densities, by restart and block."""
    alike: dict[ExponentialFamily, list[int]] = {}
    for number, family in enumerate(engine.family.families):
        alike.setdefault(family, []).append(number)
    found: dict[int, Array] = {}
    for family, numbers in alike.items():  # equal families at once: they compile once
        naturals = [state.naturals[number] for number in numbers]
        joined = jax.tree.map(lambda *each: jnp.concatenate(each), *naturals)
        if isinstance(family, Free):  # a batch compiles sooner than a map
            inside = family.copies(len(numbers) * restarts).in_domain(joined)
        else:
            inside = jax.vmap(family.in_domain)(joined)
        flat = inside.reshape(len(numbers), restarts, -1).all(2)
        found |= dict(zip(numbers, flat, strict=True))
    return jnp.stack([found[number] for number in range(len(found))], axis=1)


def _choose(going: Array, new: Array, kept: Array) -> Array:
    return jnp.where(going.reshape(going.shape + (1,) * (new.ndim - 1)), new, kept)


def run(
    engine: Engine,
    arrays: Arrays,
    states: State,
    method: CAVI,
    show: bool | None,
    score: Callable[[State], float] | None = None,
    keep: Keeper | None = None,
    resumed: Mapping[str, Any] | None = None,
) -> Outcome:
    """Sweep until every restart has a reason to stop, from `states` or as it was `resumed`.

    `score` is the held-out log predictive of a state; when given, it decides convergence instead
    of the ELBO. Where chunks end changes no number: the score is looked at after fixed sweeps.
    """
    progress = Progress.first(states, method.restarts)
    if resumed is not None:
        progress = Progress.restored(resumed, like=progress)
    clock = time.perf_counter() - (progress.seconds[-1] if progress.done else 0.0)
    pace, interrupted = 8, False
    with one_thread(), Bar(show, method.max_sweeps, "CAVI", "sweep") as bar:
        bar.update(progress.done, f"ELBO {progress.elbo:.6g}")
        try:
            while not progress.over(method.max_sweeps):
                due = progress.check if score else method.max_sweeps
                stop = keep.next(progress.done) if keep else method.max_sweeps
                end = min(progress.done + pace, due, stop, method.max_sweeps)
                began = time.perf_counter()
                progress = _chunk(engine, arrays, progress, method, end, score, clock)
                bar.update(progress.done, f"ELBO {progress.elbo:.6g}")
                if keep and (progress.done == stop or progress.over(method.max_sweeps)):
                    keep.write(progress.done, progress.document())
                # So that the bar moves. Processes, whose clocks differ, must run the same chunks.
                if engine.several_processes or time.perf_counter() - began < 0.25:
                    pace = min(2 * pace, CHUNK)
        except KeyboardInterrupt:
            if not progress.done or not partial_results_are_asked_for():
                raise
            interrupted = True
    return _outcome(progress, method.tolerance, method.max_sweeps, interrupted)


def _chunk(
    engine: Engine,
    arrays: Arrays,
    old: Progress,
    method: CAVI,
    end: int,
    score: Callable[[State], float] | None,
    clock: float,
) -> Progress:
    """Sweep up to the sweep `end`, and look at the score when it is due."""
    step = advance(engine, arrays, old.carry.state, method.restarts)
    tolerance = 0.0 if score else method.tolerance
    began = time.perf_counter()
    carry, bounds, proper = step(
        arrays, old.carry, np.asarray(end - old.done), np.asarray(tolerance, float)
    )
    history = np.asarray(bounds)
    history = history[: int((~np.isnan(history)).any(axis=1).sum())]
    seconds = np.linspace(began, time.perf_counter(), len(history) + 1)[1:] - clock
    if (np.asarray(carry.status) == FELL).any():
        _report_fall(engine, arrays, old.carry, history, old.done)
    new = Progress(
        carry,
        proper,
        np.concatenate([old.history, history]),
        np.concatenate([old.seconds, seconds]),
        old.scores,
        old.check,
    )
    due = new.done == min(new.check, method.max_sweeps)
    running = (np.asarray(carry.status) == RUNNING).any()
    return _scored(new, method.tolerance, score) if score and due and running else new


def _scored(old: Progress, tolerance: float, score: Callable[[State], float]) -> Progress:
    """With the score of the best restart, which stops all when it has settled."""
    carry = old.carry
    leader = int(np.argmax(np.asarray(carry.elbo)))
    scores = np.append(old.scores, score(_take(carry.state, leader)))
    if len(scores) > 1 and tolerance > 0:
        moved = abs(scores[-1] - scores[-2])
        if moved <= tolerance * max(abs(scores[-1]), 1e-12):
            status = np.asarray(carry.status)
            carry = carry._replace(status=np.where(status == RUNNING, CONVERGED, status))
    return replace(old, carry=carry, scores=scores, check=next_check(old.done))


def _take(tree: Any, number: int) -> Any:
    return jax.tree.map(lambda a: a[number], host(tree))


def _outcome(progress: Progress, tolerance: float, max_sweeps: int, interrupted: bool) -> Outcome:
    carry, history, scores = progress.carry, progress.history, progress.scores
    elbos, status = np.asarray(carry.elbo), np.asarray(carry.status)
    best = int(np.argmax(np.where(np.isfinite(elbos), elbos, -np.inf)))
    sweeps = np.asarray(carry.sweeps)
    what = "held-out log predictive" if len(scores) else "ELBO"
    reasons = []
    for number, code in enumerate(status):
        own = history[: sweeps[number], number]
        if code == CONVERGED:
            if len(scores):
                change = abs(scores[-1] - scores[-2]) / max(abs(scores[-1]), 1e-12)
            else:
                change = (own[-1] - own[-2]) / max(abs(own[-1]), 1.0) if len(own) > 1 else 0.0
            reasons.append(
                f"converged: relative change {max(change, 0.0):.1e} of the {what} in sweep "
                f"{len(own)} is within the tolerance {tolerance:g}"
            )
        elif code == FELL:
            reasons.append(f"stopped: the ELBO fell in sweep {len(own)}")
        elif code == NOT_FINITE:
            reasons.append(f"stopped: the ELBO is not finite in sweep {len(own)}")
        elif interrupted:
            reasons.append(f"stopped: interrupted after sweep {len(own)}")
        else:
            reasons.append(f"stopped: reached max_sweeps={max_sweeps}")
    converged = bool(status[best] == CONVERGED)
    if not (converged or interrupted) and tolerance > 0 and status[best] == RUNNING:
        warnings.warn(
            ConvergenceWarning(f"{max_sweeps} sweeps", "Raise max_sweeps, or loosen tolerance."),
            stacklevel=4,
        )
    return Outcome(
        state=_take(carry.state, best),
        elbo=float(elbos[best]),
        history=history,
        seconds=progress.seconds,
        monitor=scores,
        best=best,
        elbos=elbos,
        sweeps=sweeps,
        reasons=tuple(reasons),
        converged=converged,
        proper=np.asarray(progress.proper)[best],
    )


def _report_fall(
    engine: Engine,
    arrays: Arrays,
    before: Carry,
    history: np.ndarray,
    done: int,
) -> None:
    """Say which block lowered the ELBO: an error in strict mode (tests), else a warning."""
    slack = rounding(engine.dtype)
    arrays, before = host((arrays, before))
    for restart in range(history.shape[1]):
        values = np.concatenate([[float(before.elbo[restart])], history[:, restart]])
        values = values[~np.isnan(values)]
        falls = np.flatnonzero(np.diff(values) < -slack * np.maximum(abs(values[1:]), 1.0))
        if not len(falls):
            continue
        sweep = int(falls[0])
        state = _take(before.state, restart)
        for _ in range(sweep):
            state, _ = engine.sweep(arrays, state)
        culprit = _culprit(engine, arrays, state)
        details = (float(values[sweep]), float(values[sweep + 1]), done + sweep + 1, culprit)
        if os.environ.get("LOWERBOUND_STRICT"):
            raise DecreasingBoundError(*details)
        warnings.warn(DecreasingBoundWarning(*details), stacklevel=5)


def _culprit(engine: Engine, arrays: Arrays, state: State) -> tuple[str, ...]:
    """The block whose update lowers the ELBO most."""

    def bound(state: State) -> float:
        summands = engine.joint.summands
        return float(elbo(engine.family, summands, arrays, state.naturals, state.means))

    worst, name = 0.0, engine.joint.blocks[engine.sweep.order[0]].sites
    old = bound(state)
    for number in engine.sweep.order:
        state, _ = engine.sweep.update(arrays, state, number)
        new = bound(state)
        if new - old < worst:
            worst, name = new - old, engine.joint.blocks[number].sites
        old = new
    return name
