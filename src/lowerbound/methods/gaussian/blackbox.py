"""`fit` by a Gaussian on the unconstrained space: start, ascend, and measure the answer."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.ascent.gaussian_step import distance
from lowerbound.bound.draws import normal_draws
from lowerbound.bound.fixed_draws import averaged, points
from lowerbound.bound.restricted import Restricted, narrowed, reason, restricted
from lowerbound.compute.threads import one_thread
from lowerbound.cost import allowance
from lowerbound.errors import ConvergenceWarning
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.methods.gaussian.centring import choose
from lowerbound.methods.gaussian.climbs import GaussianRun, Solution, Watch, draw_seed
from lowerbound.methods.gaussian.engines import LIMIT, MOST_STAGES, solve_fixed, solve_match
from lowerbound.methods.gaussian.laplace import solve_delta, solve_laplace
from lowerbound.methods.gaussian.noisy import solve_stochastic
from lowerbound.methods.gaussian.sparse_newton import solve_newton
from lowerbound.methods.gaussian.starts import WITHIN, at_fault
from lowerbound.methods.gaussian.target import Target
from lowerbound.methods.gaussian.unconstrained_methods import UnconstrainedMethod
from lowerbound.methods.gaussian.wide import choose_wide
from lowerbound.model import Model
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.run.bar import Bar

MEASURE = 1024  # fresh draws that measure the answer, at least
FEW = 64  # where the fit has taken all that it may
FEWEST, MEASURING = 16, 0.2  # at any price; else within this share of what a fit may take


def run_gaussian(
    model: Model, method: UnconstrainedMethod, seed: int = 0, progress: bool | None = None
) -> GaussianRun:
    """Fit a Gaussian to a traced model, as the method says."""
    with jax.enable_x64(True), np.errstate(all="ignore"), one_thread():
        engines: dict[str, Any] = {"fixed": solve_fixed, "match": solve_match}
        engines |= {"laplace": solve_laplace, "delta": solve_delta}
        with Bar(progress, 2 * LIMIT, "Gaussian", "step") as bar:
            watch = Watch(bar)
            wide, walks = None, None
            if method.by_newton(Coordinates.of(model).size):
                choice, wide, walks = choose_wide(model, method, precision(method), seed)
            else:
                choice = choose(model, method, precision(method), seed, lambda: Watch(bar))
            target, family = choice.target, choice.family
            afforded = None if wide is None else wide.rank
            rank = method.chosen_rank(target.size, afforded)
            engine = method.chosen_engine(target.size, afforded)
            if wide is not None:
                solution = solve_newton(target, method, rank, seed, watch, wide.sparsity, walks)
            elif engine == "stochastic":
                solution = solve_stochastic(target, method, rank, seed, watch)
            else:
                solution = engines[engine](target, method, rank, seed, watch, choice.climbs)
            solution, bound, shift = _inside(target, family, solution, engine, seed)
        if not solution.converged:
            late = solution.reason == allowance().reason
            remedy = allowance().remedy(repr(method)) if late else solution.remedy
            warnings.warn(ConvergenceWarning(solution.reason, remedy), stacklevel=3)
        return GaussianRun(
            family=family,
            parameters=solution.parameters,
            elbo=bound.elbo,
            elbo_error=bound.error,
            shift=shift,
            draws=solution.draws,
            history=np.array(watch.elbo),
            history_seconds=np.array(watch.seconds),
            seconds=time.perf_counter() - watch.begun,
            converged=solution.converged,
            stop_reason=solution.reason,
            restarts=solution.restarts,
            rank=rank,
            engine=engine,
            notes=(*choice.notes, *(() if wide is None else wide.notes), *bound.notes),
        )


def _inside(
    target: Target, family: UnconstrainedGaussian, solution: Solution, engine: str, seed: int
) -> tuple[Solution, Restricted, float]:
    """The solution as it is measured; narrower, where it reaches too far beyond the density.

    Noisy steps and scores do not see a wall that is behind them. A mode that is asked for with its
    curvature is not another Gaussian.
    """
    if engine in ("laplace", "delta"):
        return solution, *_measured(target, family, solution, seed)

    def at(width: float) -> Solution:
        if width == 1.0:
            return solution
        scales = {n: a if n == "loc" else width * a for n, a in solution.parameters.items()}
        return replace(solution, parameters=scales, converged=False, reason=reason(width))

    width, (bound, shift) = narrowed(lambda w: _measured(target, family, at(w), seed))
    return at(width), bound, shift


def _measured(
    target: Target, family: UnconstrainedGaussian, solution: Solution, seed: int
) -> tuple[Restricted, float]:
    """The ELBO over fresh draws, and how far these would move q; that is NaN where unknown."""
    if solution.measured is not None:
        return solution.measured
    parameters = solution.parameters
    size = FEW if allowance().over else max(solution.draws, MEASURE)
    pace = target.seconds(1)
    if size * pace > MEASURING * allowance().seconds:
        size = max(2 * int(MEASURING * allowance().seconds / pace / 2), FEWEST)

    def why(draw: int) -> list[str]:
        return at_fault(target, vectors[draw], WITHIN)

    if "factor" in parameters or size <= 2 * target.size:
        key = jax.random.key(draw_seed(seed, MOST_STAGES))
        vectors = np.asarray(family.sample_unconstrained(parameters, key, size))
        ratio = target(vectors)[0] - np.asarray(family.log_prob(parameters, jnp.asarray(vectors)))
        return restricted(ratio, why), np.nan
    fresh = normal_draws(size, target.size, draw_seed(seed, MOST_STAGES))
    diagonal = "scale" in parameters
    root = np.diag(parameters["scale"]) if diagonal else parameters["scale_tril"]
    vectors = points(fresh, parameters["loc"], root)
    values, gradients = target(vectors)
    entropy = 0.5 * target.size * np.log(2 * np.pi) + np.log(np.abs(np.diagonal(root))).sum()
    bound = restricted(values + 0.5 * np.sum(fresh**2, axis=1) + entropy, why)
    found = averaged(fresh, values, gradients, root)
    known = bool(np.isfinite(found.elbo))
    return bound, float(distance(found, diagonal)) if known else np.nan


def precision(method: UnconstrainedMethod) -> np.dtype[Any]:
    """float64 on CPU and float32 on an accelerator, unless the method says otherwise."""
    if method.precision is not None:
        return np.dtype(method.precision)
    return np.dtype("float64" if jax.default_backend() == "cpu" else "float32")
