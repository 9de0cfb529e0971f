"""`fit` by a Gaussian on the unconstrained space: for programs that no exact update covers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax

from lowerbound.errors import ArgumentError
from lowerbound.fit.blackbox import precision, run_gaussian
from lowerbound.fit.check_input import check_observed_variance
from lowerbound.fit.checkpoint import Keeper
from lowerbound.fit.engine import derived
from lowerbound.fit.gaussian_method import Gaussian
from lowerbound.fit.plan import Plan, plan_of_gaussian
from lowerbound.fit.posterior import History, Restart
from lowerbound.fit.result import Fit, site_records
from lowerbound.fit.versions import versions
from lowerbound.model import Model, trace_model
from lowerbound.model.coordinates import Coordinates
from lowerbound.update import State


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
    """A Gaussian over all latent sites of a model."""
    if keep is not None:
        raise ArgumentError(
            "fit got checkpoint= with a Gaussian, which keeps no state between its steps.\n"
            "Expected checkpoint= with method=lb.CAVI() or lb.SVI(). Drop it."
        )
    with jax.enable_x64(True):
        model = trace_model(function, args, kwargs)
        check_observed_variance(model)
        run = run_gaussian(model, method, seed, progress)
        plan = explain_gaussian(model, method)
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


def explain_gaussian(model: Model, method: Gaussian) -> Plan:
    """The plan of a Gaussian fit; the residuals say why no exact update does."""
    size = Coordinates.of(model).size
    rank, engine = method.chosen_rank(size), method.chosen_engine(size)
    shape = f"rank {rank}" if isinstance(rank, int) else str(rank)
    plan = plan_of_gaussian(
        model, f"Gaussian ({shape}, d = {size})", derived(model).structure.residuals
    )
    return plan if engine == "fixed" else _with_engine(plan, engine)


def _with_engine(plan: Plan, engine: str) -> Plan:
    how = {"stochastic": "estimated (stochastic gradients)", "match": "estimated (score matching)"}
    rows = tuple(replace(row, update=how.get(engine, engine)) for row in plan.rows)
    return replace(plan, rows=rows)

