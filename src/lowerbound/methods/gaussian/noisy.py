"""Noisy gradients: few draws a step, for posteriors of many dimensions."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import jaxpr_as_fun

from lowerbound.ascent.adam import Adam, start
from lowerbound.ascent.few_draws import Free, parts, window
from lowerbound.bound.draws import draw_seed
from lowerbound.bound.many_draws import many_draws
from lowerbound.compiled import jit, quickly
from lowerbound.cost import allowance, mapped
from lowerbound.methods.gaussian.ascents import GaussianAscent, Phase, finite
from lowerbound.methods.gaussian.climbing.climbs import Start, starts_of
from lowerbound.methods.gaussian.reached import Parameters, Reached, measuring
from lowerbound.methods.gaussian.target import POINT, Target, in_precision, value_and_gradient
from lowerbound.result.answer import Stop
from lowerbound.run.walking import Standing

LEAST_RATE = 1e-3  # the rate falls tenfold, or so, each time that the ELBO rests
WINDOWS = 100
LEAST_MOVES, MOST_STEPS = 5, 1000  # quasi-Newton steps of the mean
FLAT, LEVEL = 1e-3, 1e-10  # the slope, and the relative gain of a step, at which they end
STATIONARY = 0.1  # the largest slope, in standard deviations, of a mean that is an answer
_WIDTH = 0.1


@dataclass(frozen=True)
class Effort:
    """Steps of a window, draws of each, rates that are tried at first, draws for the mean."""

    steps: int = 100
    draws: int = 8
    rates: tuple[float, ...] = (0.3, 0.1, 0.03, 0.01)
    fixed: int = 16

    @property
    def finding(self) -> int:
        """The points that finding the rate takes."""
        return 2 * len(self.rates) * self.steps * self.draws


# Windows do not stop: where a point is dear they are short, and the answer has not converged.
EFFORTS = (Effort(), Effort(25, 4, (0.1, 0.03), 4), Effort(10, 2, (0.1,), 2))
FINDING, MEAN = 0.4, 0.25  # shares of the time that is left, for the rate and for the mean


def affordable_effort(target: Target, draws: int | None) -> Effort:
    """The most that the time of the fit allows; TooSlowError where that is nothing."""
    left = allowance().left
    for effort in EFFORTS:
        own = effort if draws is None else replace(effort, draws=draws + draws % 2)
        if target.seconds(own.finding) <= FINDING * left:
            return own
    target.check_affords(own.finding)
    return own


@dataclass(frozen=True, eq=False)
class Ranked(Reached):
    """A Gaussian by the scales of its entries, and a factor of some columns."""

    free: Free

    @property
    def parameters(self) -> Parameters:
        """Scales, and the columns where there are any."""
        free = _cast(self.free, np.dtype(float))
        return {k: np.asarray(v, float) for k, v in parts(free).items()}


class NoisyAscent(GaussianAscent):
    """Steps of Adam for the scales; before and after, the mean over fixed draws.

    The rate is found by trial, and halved whenever the ELBO rests. Noisy steps leave the mean far
    away along directions in which log p changes slowly, quasi-Newton steps do not.
    """

    update = "estimated (stochastic gradients)"

    def ascent(self) -> Phase:
        """The mean, the rate, windows of steps, and the mean again."""
        choice = yield from self.coordinates()
        target, seed = choice.target, self.problem.seed
        columns = self._columns(target.size)
        rows = starts_of(target, self.method, seed)
        effort = affordable_effort(target, self.method.draws)
        free = _free(rows[int(np.argmax(target(rows)[0]))], columns, seed)
        free, _ = centred(target, free, draw_seed(seed, 1), effort.fixed)
        yield Standing(Ranked(choice, effort.draws, (), free))
        windows = _Windows(target, columns, effort, seed)
        adam, rate, best, starts = windows.begun(free)
        yield Standing(Ranked(choice, effort.draws, starts, adam.average), finite(best))
        resting, rested, late = 0, False, False
        for number in range(2, WINDOWS):
            adam, elbo = windows.run(adam, number, rate)
            yield Standing(Ranked(choice, effort.draws, starts, adam.average), finite(elbo))
            # The mean once more, and what the answer is measured by, are yet to come.
            ending = target.seconds(LEAST_MOVES * effort.fixed) + measuring(target)
            late = windows.seconds + ending >= allowance().left
            if late:
                break
            gain = elbo - best
            best = max(best, elbo)
            resting = resting + 1 if gain < self.method.tolerance * target.size**0.5 else 0
            if resting < 2:
                continue
            if rate <= LEAST_RATE:
                rested = True
                break
            rate, resting, best = 0.5 * rate, 0, elbo
        average = _cast(adam.average, np.dtype(float))
        free, slope = centred(target, average, draw_seed(seed, 2), effort.fixed)
        place = Ranked(choice, effort.draws, starts, free)
        return place, self._stop(rested, late, slope, WINDOWS * effort.steps)

    def _columns(self, size: int) -> int:
        if self.diagonal:
            return 0
        return size if self.rank == "full" else min(int(self.rank), size)

    def _stop(self, rested: bool, late: bool, slope: float, steps: int) -> Stop:
        if rested and slope <= STATIONARY:
            return Stop(True, "the ELBO rests at the smallest step")
        if not rested:
            return self.stopped(allowance().reason if late else f"{steps} steps")
        reason = f"the mean would still move by {slope:.2g} standard deviations"
        return self.stopped(reason if np.isfinite(slope) else f"{MOST_STEPS} steps of the mean")


class _Windows:
    """Windows of steps of one fit."""

    def __init__(self, target: Target, columns: int, effort: Effort, seed: int) -> None:
        self.target, self.effort, self.took = target, effort, 0.0
        self.program = _program(target, columns, effort)
        with in_precision(target.dtype):
            key = jax.random.key(draw_seed(seed, 0) % 2**31)
            self.keys = jax.random.split(key, WINDOWS)

    def run(self, adam: Adam[Free], number: int, rate: float) -> tuple[Adam[Free], float]:
        """One window, and the ELBO in it."""
        began = time.perf_counter()
        with in_precision(self.target.dtype):
            found, elbo = self.program(adam, self.keys[number], rate, self.target.arguments)
        elbo, self.took = float(elbo), time.perf_counter() - began
        return found, elbo

    @property
    def seconds(self) -> float:
        """What the next window takes: as long as the last one, or as its points."""
        points = self.effort.steps * self.effort.draws
        return max(self.took, self.target.seconds(points))

    def begun(self, free: Free) -> tuple[Adam[Free], float, float, tuple[Start, ...]]:
        """The best of some rates after two windows: where it is, the rate, the ELBO; and all."""
        with in_precision(self.target.dtype):
            begun = start(_cast(free, self.target.dtype))
        rates, steps = self.effort.rates, 2 * self.effort.steps
        later: list[tuple[Adam[Free], float]] = []
        for rate in rates:
            if later and 2 * self.seconds > FINDING * allowance().left:
                break  # where a window takes longer than its points promised
            later.append(self.run(self.run(begun, 0, rate)[0], 1, rate))
        elbos = np.nan_to_num([elbo for _, elbo in later], nan=-np.inf, neginf=-np.inf)
        best = int(np.argmax(elbos))
        starts = tuple(
            Start(float(elbo), steps, f"stopped: the rate {rate:g} is not the best")
            for elbo, rate in zip(elbos, rates, strict=False)
        )
        return later[best][0], rates[best], float(elbos[best]), starts


def centred(target: Target, free: Free, seed: int, draws: int) -> tuple[Free, float]:
    """The best mean for given scales over fixed draws, and the largest slope left there.

    Slopes are by the scale of an entry: where entries are independent, steps to the optimum.
    """
    from scipy.optimize import minimize

    scale, loc = np.exp(np.asarray(free["log_scale"])), np.asarray(free["loc"])
    size, columns = len(scale), free["factor"].shape[1] if "factor" in free else 0
    noise = many_draws(draws, size + columns, seed)
    moved = noise[:, :size]
    if columns:
        moved = moved + noise[:, size:] @ np.asarray(free["factor"]).T
    program = _mean_program(target)

    def slopes(steps: np.ndarray) -> tuple[float, np.ndarray]:
        vectors = (loc + scale * (steps + moved)).astype(target.dtype)
        with in_precision(target.dtype):
            value, gradient = program(vectors, target.arguments)
        value, slope = float(value), np.asarray(gradient, float) * scale
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            return 1e300, np.zeros(size)
        return -value, -slope

    affordable = MEAN * allowance().left / max(target.seconds(draws), 1e-9)
    most = int(np.clip(affordable, LEAST_MOVES, 2 * MOST_STEPS))
    limits = {"maxiter": MOST_STEPS, "maxfun": most, "maxcor": 30}
    options = {**limits, "gtol": FLAT, "ftol": LEVEL}
    found = minimize(slopes, np.zeros(size), jac=True, method="L-BFGS-B", options=options)
    if not np.isfinite(found.x).all() or found.fun >= 1e300:
        return free, np.inf
    left = np.inf if found.nit >= MOST_STEPS else float(np.abs(found.jac).max())
    return {**free, "loc": jnp.asarray(loc + scale * found.x)}, left


def _mean_program(target: Target) -> Any:
    """The average of log p over some points with that of its gradient, compiled."""
    if "mean" not in target.compiled:

        def run(vectors: Array, data: dict[str, Array]) -> tuple[Array, Array]:
            one = value_and_gradient(target.closed, data)
            values, gradients = mapped(one, vectors, what=POINT)
            return jnp.mean(values), jnp.mean(gradients, axis=0)

        target.compiled["mean"] = jit(run) if target.size > 100 else quickly(run)
    return target.compiled["mean"]


def _cast(free: Free, dtype: np.dtype[Any]) -> Free:
    return {name: np.asarray(part, dtype) for name, part in free.items()}  # type: ignore[misc]


def _free(row: np.ndarray, columns: int, seed: int) -> Free:
    free = {"loc": jnp.asarray(row), "log_scale": jnp.full(row.shape, np.log(_WIDTH))}
    if columns:
        rng = np.random.default_rng(seed)
        free["factor"] = jnp.asarray(0.1 * rng.standard_normal((len(row), columns)) / columns**0.5)
    return free


def _program(target: Target, columns: int, effort: Effort) -> Any:
    """One window of steps, compiled."""
    key = ("window", columns, effort.draws, effort.steps)
    if key not in target.compiled:

        def run(
            adam: Adam[Free], key: Array, rate: Array, data: dict[str, Array]
        ) -> tuple[Adam[Free], Array]:
            leaves = jax.tree.leaves(data)

            def function(vector: Array) -> Array:
                return jnp.asarray(jaxpr_as_fun(target.closed)(vector, *leaves)[0])

            return window(function, adam, key, rate, effort.steps, effort.draws)

        target.compiled[key] = jit(run) if target.size > 100 else quickly(run)
    return target.compiled[key]
