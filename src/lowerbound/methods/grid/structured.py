"""`fit` with a few scalars on a grid and the rest given them: q(theta) q(z | theta)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lowerbound.ascent import State
from lowerbound.compute.engine import derived
from lowerbound.compute.threads import one_thread
from lowerbound.compute.versions import versions
from lowerbound.errors import ArgumentError, LostPosteriorError, LowerboundError
from lowerbound.methods.gaussian.engines import begin_climbs
from lowerbound.methods.gaussian.target import target_for
from lowerbound.methods.gaussian_value import Gaussian
from lowerbound.methods.grid.conditional import conditioned
from lowerbound.methods.grid.conditioning import ConditionedRun, run_conditioned
from lowerbound.methods.values import CAVI
from lowerbound.model import Model, trace_model
from lowerbound.result.fitted import Fit, site_records
from lowerbound.result.plan import Plan, make_plan, plan_on_grid
from lowerbound.result.posterior import History, Restart
from lowerbound.rewrite.summing.enumerated import discrete_sites
from lowerbound.run.check_input import check_observed_variance
from lowerbound.store.checkpoint import Keeper


def fit_conditioned(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: CAVI,
    seed: int,
    progress: bool | None,
    keep: Keeper | None = None,
    resumed: Mapping[str, Any] | None = None,
) -> Fit:
    """Structured inference given the sites `method.condition`, on a grid over them."""
    if keep is not None:
        raise ArgumentError(
            "fit got checkpoint= with scalars on a grid, which keeps no state between its rounds.\n"
            'Expected checkpoint= with method=lb.CAVI() or lb.SVI(). Drop it, or drop "condition".'
        )
    with jax.enable_x64(True):
        model = trace_model(function, args, kwargs)
        check_observed_variance(model)
        given = method.init if isinstance(method.init, Mapping) else {}
        start = dict(given) if set(method.condition) <= set(given) else None

        def run_from(start: Mapping[str, Any] | None) -> ConditionedRun:
            return run_conditioned(
                model, args, kwargs, method.condition, seed=seed, progress=progress, start=start
            )

        try:
            run = run_from(start)
        except LostPosteriorError:
            # Scans along one scalar at a time miss a ridge across them; gradients do not.
            mode = None if start else _mode(model, method.condition, seed)
            if mode is None:
                raise
            run = run_from(mode)
        plan = explain_conditioned(model, args, kwargs, method)
    return grid_fit(model, args, kwargs, run, plan, repr(method), seed)


def _mode(model: Model, sites: Sequence[str], seed: int) -> dict[str, Any] | None:
    """The values of some sites near a mode of all of them, by gradients; None if none is found."""
    if discrete_sites(model):
        return None
    try:
        with np.errstate(all="ignore"), one_thread():
            target = target_for(model)
            climbs = begin_climbs(target, Gaussian(), seed, False, again=False)
            loc = np.asarray(max(climbs, key=lambda one: one.elbo).state.loc)
            values = target.coordinates.constrain(jax.numpy.asarray(loc), target.data)
    except LowerboundError:
        return None
    return {site: np.asarray(values[site]) for site in sites}


def grid_fit(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    run: ConditionedRun,
    plan: Plan,
    method: str,
    seed: int,
) -> Fit:
    """The record of a run with scalars on a grid."""
    return Fit(
        elbo=run.elbo,
        history=History(run.history, run.seconds, step="round"),
        restarts=(Restart(run.elbo, len(run.history), run.stop_reason),),
        converged=run.converged,
        stop_reason=run.stop_reason,
        plan=plan,
        method=method,
        seed=seed,
        versions=versions(),
        precision=str(np.dtype(float)),
        state=State(run.parameters, ()),  # type: ignore[arg-type]
        family=run.family,
        function=model.function,
        args=args,
        kwargs=dict(kwargs),
        sites=site_records(model),
    )


def explain_conditioned(
    model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any], method: CAVI
) -> Plan:
    """The plan of a conditioned fit."""
    given = None
    if len(method.condition) < len(model.latent):
        program = conditioned(model, method.condition, args, kwargs)
        given = make_plan(program, derived(program, method.blocks))
    return plan_on_grid(model, given, method.condition)
