"""The stochastic engine: few draws a step, for posteriors of many dimensions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import jaxpr_as_fun

from lowerbound.fit.blackbox_engines import starts_of
from lowerbound.fit.blackbox_record import GaussianRestart, Solution, Watch, draw_seed
from lowerbound.fit.blackbox_target import Target
from lowerbound.fit.gaussian_method import Gaussian
from lowerbound.joint.compilation import quickly
from lowerbound.update.adam import Adam, parts, start, window

DRAWS, STEPS = 8, 100  # draws of a step, steps of a window
RATES = (0.3, 0.1, 0.03, 0.01)  # tried in turn on the first window
LEAST_RATE = 1e-3  # the rate falls tenfold, or so, each time that the ELBO rests
WINDOWS = 300
_WIDTH = 0.1


def solve_stochastic(
    target: Target, method: Gaussian, rank: str | int, seed: int, watch: Watch
) -> Solution:
    """Noisy gradients by Adam; the rate is found by trial, and halved whenever the ELBO rests."""
    draws = DRAWS if method.draws is None else method.draws + method.draws % 2
    columns = (
        0 if rank == "diagonal" else min(int(rank) if rank != "full" else target.size, target.size)
    )
    run = _program(target, columns, draws)
    rows = starts_of(target, method, seed)
    values, _ = target(rows)
    begun = start(_free(rows[int(np.argmax(values))], columns, seed))
    key = jax.random.key(draw_seed(seed, 0))
    trials = [run(begun, jax.random.fold_in(key, 0), rate, target.data) for rate in RATES]
    later = [
        run(t[0], jax.random.fold_in(key, 1), r, target.data)
        for t, r in zip(trials, RATES, strict=True)
    ]
    elbos = np.nan_to_num([float(t[1]) for t in later], nan=-np.inf, neginf=-np.inf)
    chosen = int(np.argmax(elbos))
    adam, rate, best = later[chosen][0], RATES[chosen], float(elbos[chosen])
    watch.note(best)
    resting, converged = 0, False
    for number in range(2, WINDOWS):
        adam, elbo = run(adam, jax.random.fold_in(key, number), rate, target.data)
        watch.note(float(elbo))
        gain = float(elbo) - best
        best = max(best, float(elbo))
        resting = resting + 1 if gain < method.tolerance * target.size**0.5 else 0
        if resting < 2:
            continue
        if rate <= LEAST_RATE:
            converged = True
            break
        rate, resting = 0.5 * rate, 0
        best = float(elbo)
    reason = "the ELBO rests at the smallest step" if converged else f"{WINDOWS * STEPS} steps"
    parameters = {k: np.asarray(v, float) for k, v in parts(adam.average).items()}
    restarts = tuple(
        GaussianRestart(float(elbo), 2 * STEPS, f"rate {rate:g}")
        for elbo, rate in zip(elbos, RATES, strict=True)
    )
    return Solution(parameters, draws, converged, reason, restarts)


def _free(row: np.ndarray, columns: int, seed: int) -> dict[str, Array]:
    free = {"loc": jnp.asarray(row), "log_scale": jnp.full(row.shape, np.log(_WIDTH))}
    if columns:
        rng = np.random.default_rng(seed)
        free["factor"] = jnp.asarray(0.1 * rng.standard_normal((len(row), columns)) / columns**0.5)
    return free


def _program(target: Target, columns: int, draws: int) -> Any:
    """One window of steps, compiled."""
    key = ("window", columns, draws)
    if key not in target.compiled:

        def run(adam: Adam, key: Array, rate: Array, data: dict[str, Array]) -> tuple[Adam, Array]:
            leaves = jax.tree.leaves(data)

            def function(vector: Array) -> Array:
                value = jaxpr_as_fun(target.closed)(vector.astype(target.dtype), *leaves)[0]
                return jnp.asarray(value, float)

            return window(function, adam, key, rate, STEPS, draws)

        target.compiled[key] = jax.jit(run) if target.size > 100 else quickly(run)
    return target.compiled[key]
