"""The only loop: compiled chunks of sweeps, restarts in one batch, a stated reason to stop."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lowerbound.bound import elbo
from lowerbound.errors import ConvergenceWarning, DecreasingBoundError, DecreasingBoundWarning
from lowerbound.fit.engine import Arrays, Engine
from lowerbound.update import State

Numbers = Array | np.ndarray
CHUNK = 64
RUNNING, CONVERGED, FELL, NOT_FINITE = range(4)


class Carry(NamedTuple):
    """Everything that a chunk of sweeps carries; leading axis = restarts."""

    state: State
    elbo: Numbers
    status: Numbers
    sweeps: Numbers


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
        families = zip(engine.family.families, carry.state.naturals, strict=True)
        proper = [jax.vmap(f.in_domain)(n).reshape(restarts, -1).all(1) for f, n in families]
        return carry, history, jnp.stack(proper, axis=1)

    compiled: Callable[..., tuple[Carry, Array, Array]] = engine.compile(
        run, arrays, first_carry(states, restarts), np.asarray(1), np.zeros(())
    )
    engine.compiled[key] = compiled
    return compiled


def first_carry(states: State, restarts: int) -> Carry:
    """What the first chunk starts from; `states` may be shapes only."""
    zeros = np.zeros((restarts,), int)
    return Carry(states, np.full((restarts,), -np.inf), zeros, zeros)


def _choose(going: Array, new: Array, kept: Array) -> Array:
    return jnp.where(going.reshape(going.shape + (1,) * (new.ndim - 1)), new, kept)


def run(
    engine: Engine,
    arrays: Arrays,
    states: State,
    restarts: int,
    tolerance: float,
    max_sweeps: int,
    progress: bool | None,
    score: Callable[[State], float] | None = None,
) -> Outcome:
    """Sweep until every restart has a reason to stop.

    `score` is the held-out log predictive of a state; when given, it decides convergence instead
    of the ELBO.
    """
    began = time.perf_counter()
    step = advance(engine, arrays, states, restarts)
    carry = first_carry(states, restarts)
    histories: list[np.ndarray] = []
    seconds: list[float] = []
    scores: list[float] = []
    done, chunk = 0, 1 if score else 8
    with _Bar(progress, max_sweeps) as bar:
        while done < max_sweeps:
            limit = min(chunk, max_sweeps - done, CHUNK)
            before, start = carry, time.perf_counter()
            carry, bounds, proper = step(
                arrays, carry, np.asarray(limit), np.asarray(0.0 if score else tolerance)
            )
            history = np.asarray(bounds)
            count = int((~np.isnan(history)).any(axis=1).sum())
            now = time.perf_counter()
            histories.append(history[:count])
            seconds += list(np.linspace(start, now, count + 1)[1:] - began)
            done += count
            status = np.asarray(carry.status)
            if (status == FELL).any():
                _report_fall(engine, arrays, before, history, done - count)
            bar.update(count, float(np.max(np.asarray(carry.elbo))))
            if score is not None and not (status != RUNNING).all():
                leader = int(np.argmax(np.asarray(carry.elbo)))
                scores.append(score(_take(carry.state, leader)))
                if len(scores) > 1 and tolerance > 0:
                    moved = abs(scores[-1] - scores[-2])
                    if moved <= tolerance * max(abs(scores[-1]), 1e-12):
                        status = np.where(status == RUNNING, CONVERGED, status)
                        carry = carry._replace(status=jnp.asarray(status))
            if (status != RUNNING).all():
                break
            if now - start < 0.25:
                chunk = min(2 * chunk, CHUNK)
    return _outcome(carry, np.asarray(proper), histories, seconds, scores, tolerance, max_sweeps)


def _take(tree: Any, number: int) -> Any:
    return jax.tree.map(lambda a: np.asarray(a)[number], tree)


def _outcome(
    carry: Carry,
    proper: np.ndarray,
    histories: list[np.ndarray],
    seconds: list[float],
    scores: list[float],
    tolerance: float,
    max_sweeps: int,
) -> Outcome:
    elbos, status = np.asarray(carry.elbo), np.asarray(carry.status)
    best = int(np.argmax(np.where(np.isfinite(elbos), elbos, -np.inf)))
    history = np.concatenate(histories)
    sweeps = np.asarray(carry.sweeps)
    what = "held-out log predictive" if scores else "ELBO"
    reasons = []
    for number, code in enumerate(status):
        own = history[: sweeps[number], number]
        if code == CONVERGED:
            if scores:
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
        else:
            reasons.append(f"stopped: reached max_sweeps={max_sweeps}")
    converged = bool(status[best] == CONVERGED)
    if not converged and tolerance > 0 and status[best] == RUNNING:
        warnings.warn(
            ConvergenceWarning(f"{max_sweeps} sweeps", "Raise max_sweeps, or loosen tolerance."),
            stacklevel=4,
        )
    return Outcome(
        state=_take(carry.state, best),
        elbo=float(elbos[best]),
        history=history,
        seconds=np.asarray(seconds),
        monitor=np.asarray(scores),
        best=best,
        elbos=elbos,
        sweeps=sweeps,
        reasons=tuple(reasons),
        converged=converged,
        proper=proper[best],
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


class _Bar:
    """A progress bar on a terminal; silence elsewhere."""

    def __init__(self, progress: bool | None, total: int) -> None:
        self.show = sys.stderr.isatty() if progress is None else progress
        self.total = total
        self.bar: Any = None

    def __enter__(self) -> _Bar:
        if self.show:
            from tqdm.auto import tqdm

            self.bar = tqdm(total=self.total, desc="CAVI", unit="sweep", leave=False)
        return self

    def update(self, count: int, bound: float) -> None:
        if self.bar is not None:
            self.bar.set_postfix_str(f"ELBO {bound:.6g}")
            self.bar.update(count)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
