"""`fit` by a Gaussian on the unconstrained space: for programs that no exact update covers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lowerbound.ascent import State
from lowerbound.compute.engine import derived
from lowerbound.compute.threads import one_thread
from lowerbound.compute.versions import versions
from lowerbound.errors import ArgumentError
from lowerbound.methods.gaussian.blackbox import precision, run_gaussian
from lowerbound.methods.gaussian.centring import named_sites, plan_note, sites_to_try
from lowerbound.methods.gaussian.climbs import GaussianRun
from lowerbound.methods.gaussian.engines import begin_climbs
from lowerbound.methods.gaussian.summed_out import fit_summed, plan_summed
from lowerbound.methods.gaussian.target import target_for
from lowerbound.methods.gaussian.wide import Wide, wide_for
from lowerbound.methods.gaussian_value import Gaussian
from lowerbound.methods.grid.conditional import Solver, transforms_of
from lowerbound.methods.grid.conditioning import run_conditioned
from lowerbound.methods.grid.gaussian_inner import gaussian_solver
from lowerbound.methods.grid.structured import grid_fit
from lowerbound.methods.partial.given_sites import fit_given_sites
from lowerbound.methods.score.finite_fit import by_score, explain_score, fit_score
from lowerbound.model import Model, trace_model
from lowerbound.result.fitted import Fit, site_records
from lowerbound.result.plan import Plan, plan_of_gaussian, plan_on_grid
from lowerbound.result.posterior import History, Restart
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.rewrite.summing.enumerated import discrete_sites, enumerated
from lowerbound.run.check_input import check_observed_variance
from lowerbound.store.checkpoint import Keeper


def fit_gaussian(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: Gaussian,
    seed: int,
    progress: bool | None,
    keep: Keeper | None = None,
    resumed: Mapping[str, Any] | None = None,
) -> Fit:
    """A Gaussian over all continuous latent sites of a model; discrete ones are summed out."""
    if keep is not None:
        raise ArgumentError(
            "fit got checkpoint= with a Gaussian, which keeps no state between its steps.\n"
            "Expected checkpoint= with method=lb.CAVI() or lb.SVI(). Drop it."
        )
    if method.sites:
        return fit_given_sites(function, args, kwargs, method, seed, progress)
    with jax.enable_x64(True):
        model = trace_model(function, args, kwargs)
        if by_score(model, method):
            return fit_score(model, args, kwargs, method, seed, progress)
        if discrete_sites(model):
            check_observed_variance(model)

            def run_on(program: Callable[..., Any], *call: Any) -> Fit:
                return fit_gaussian(program, call[0], call[1], method, seed, progress)

            return fit_summed(model, args, kwargs, run_on)
    if method.condition:
        return _fit_given(function, args, kwargs, method, seed, progress)
    with jax.enable_x64(True):
        check_observed_variance(model)
        run = run_gaussian(model, method, seed, progress)
        plan = explain_gaussian(model, method, run)
        plan = replace(plan, notes=(*plan.notes, *run.notes))
    return Fit(
        elbo=run.elbo,
        elbo_error=run.elbo_error,
        history=History(run.history, run.history_seconds, step="step"),
        restarts=tuple(Restart(r.elbo, r.iterations, r.stop_reason) for r in run.restarts),
        converged=run.converged,
        stop_reason=run.stop_reason,
        plan=plan,
        method=repr(method),
        seed=seed,
        versions=versions(),
        precision=str(precision(method)),
        state=State(run.parameters, ()),  # type: ignore[arg-type]
        family=run.family,
        function=model.function,
        args=args,
        kwargs=dict(kwargs),
        sites=site_records(model),
    )


def _fit_given(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: Gaussian,
    seed: int,
    progress: bool | None,
) -> Fit:
    """Scalars on a grid, and a Gaussian of the rest at every node, all from one start."""
    with jax.enable_x64(True), np.errstate(all="ignore"), one_thread():
        model = trace_model(function, args, kwargs)
        check_observed_variance(model)
        transforms_of(model, method.condition)
        target = target_for(model)
        target.prepare()
        climbs = begin_climbs(target, method, seed, False, again=False)
        loc = np.asarray(max(climbs, key=lambda one: one.elbo).state.loc)
        values = target.coordinates.constrain(jax.numpy.asarray(loc), target.data)
        parts = [n for n in target.coordinates.shapes if n not in method.condition]
        start = np.concatenate([loc[target.coordinates.part(name)] for name in parts])
        centre = np.concatenate([loc[target.coordinates.part(n)] for n in method.condition])

        def solver(given: Model, sites: Sequence[str]) -> Solver:
            return gaussian_solver(given, sites, method.draws, start, centre)

        first = {name: np.asarray(values[name]) for name in method.condition}
        run = run_conditioned(model, args, kwargs, method.condition, solver, seed, progress, first)
        plan = explain_gaussian(model, method)
    return grid_fit(model, args, kwargs, run, plan, repr(method), seed)


def explain_gaussian(model: Model, method: Gaussian, run: GaussianRun | None = None) -> Plan:
    """The plan of a Gaussian fit, or what a `run` did; residuals say why no exact update does."""
    if by_score(model, method):
        return explain_score(model, method)
    if discrete_sites(model):
        summation = enumerated(model)
        return plan_summed(summation, explain_gaussian(summation.summed(), method))
    if method.condition:
        rest = [n for n in model.latent if n not in method.condition]
        size = sum(math.prod(model.latent[n].shape) for n in rest)
        whole = plan_of_gaussian(model, f"Gaussian (full, d = {size})", ())
        given = replace(whole, rows=tuple(row for row in whole.rows if row.site in rest))
        plan = plan_on_grid(model, given, method.condition)
        names = ", ".join(method.condition)
        residuals = derived(model).structure.residuals
        return replace(plan, method=f"Gaussian given {names}", residuals=residuals)
    size = Coordinates.of(model).size
    wide = _wide(model, method, size) if run is None else None
    afforded = None if wide is None else wide.rank
    rank, engine = method.chosen_rank(size, afforded), method.chosen_engine(size, afforded)
    if run is not None:
        rank, engine = run.rank, run.engine
    shape = f"rank {rank}" if isinstance(rank, int) else str(rank)
    plan = plan_of_gaussian(
        model, f"Gaussian ({shape}, d = {size})", derived(model).structure.residuals
    )
    named_sites(model, method)
    notes = () if wide is None else wide.notes
    plan = replace(plan, notes=(*plan.notes, *plan_note(sites_to_try(model, method)), *notes))
    return plan if engine == "fixed" else _with_engine(plan, engine)


def _wide(model: Model, method: Gaussian, size: int) -> Wide | None:
    """The covariance of many dimensions that a fit would choose."""
    if not method.by_newton(size):
        return None
    with jax.enable_x64(True), np.errstate(all="ignore"), one_thread():
        target = target_for(model, precision(method), named_sites(model, method))
        return wide_for(target, method)


def _with_engine(plan: Plan, engine: str) -> Plan:
    how = {
        "stochastic": "estimated (stochastic gradients)",
        "match": "estimated (score matching)",
        "laplace": "approximated (Laplace)",
        "delta": "approximated (delta method)",
    }
    rows = tuple(replace(row, update=how.get(engine, engine)) for row in plan.rows)
    return replace(plan, rows=rows)
