"""A Gaussian on the unconstrained space, planned for a problem."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lowerbound.ascent import State
from lowerbound.compute.threads import one_thread
from lowerbound.methods.gaussian.blackbox import run_gaussian
from lowerbound.methods.gaussian.centring import named_sites, plan_note, sites_to_try
from lowerbound.methods.gaussian.climbs import GaussianRun
from lowerbound.methods.gaussian.target import target_for
from lowerbound.methods.gaussian.unconstrained_methods import UnconstrainedMethod
from lowerbound.methods.gaussian.wide import Wide, wide_for
from lowerbound.methods.rewriting.summed_out import summed_out
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.plan import Plan, plan_of_gaussian
from lowerbound.result.posterior import History, Restart
from lowerbound.rewrite.coordinates import Coordinates
from lowerbound.rewrite.summing.enumerated import discrete_sites
from lowerbound.run.check_input import check_observed_variance
from lowerbound.run.planned import Info, Planned, Trace
from lowerbound.run.problem import Problem

UPDATES = {
    "stochastic": "estimated (stochastic gradients)",
    "match": "estimated (score matching)",
    "laplace": "approximated (Laplace)",
    "delta": "approximated (delta method)",
}


def planned_gaussian(problem: Problem, method: UnconstrainedMethod) -> Planned[Any]:
    """A Gaussian over all continuous latent sites; discrete ones are summed out."""
    check_observed_variance(problem.model)
    if discrete_sites(problem.model):
        return summed_out(problem, method)
    return GaussianAscent(problem, method)


class GaussianAscent(Planned[GaussianRun | None]):
    """The best Gaussian, as the method says."""

    def __init__(self, problem: Problem, method: UnconstrainedMethod) -> None:
        self.problem, self.method = problem, method
        self.plan = plan_of_method(problem, method)

    def init(self) -> GaussianRun | None:
        """Nothing is known as yet."""
        return None

    def step(self, state: GaussianRun | None, until: int) -> tuple[GaussianRun | None, Info]:
        """All of the ascent."""
        problem = self.problem
        run = run_gaussian(problem.model, self.method, problem.seed, problem.computing.dtype())
        return run, Info(1, run.history, stop=run.stop)

    def finish(self, state: GaussianRun | None, trace: Trace, stop: Stop) -> Answer:
        """The Gaussian, with its ELBO over fresh draws."""
        assert state is not None
        return Answer(
            state.family,
            State(state.parameters, ()),  # type: ignore[arg-type]
            state.elbo,
            History(state.history, state.history_seconds, step="step"),
            tuple(Restart(r.elbo, r.iterations, r.stop_reason) for r in state.restarts),
            str(self.problem.computing.dtype()),
            state.elbo_error,
            notes=state.notes,
        )


def plan_of_method(problem: Problem, method: UnconstrainedMethod) -> Plan:
    """The plan of a Gaussian fit; residuals say why no exact update does."""
    model = problem.model
    size = Coordinates.of(model).size
    wide = _wide(problem, method, size)
    afforded = None if wide is None else wide.rank
    rank, engine = method.chosen_rank(size, afforded), method.chosen_engine(size, afforded)
    shape = f"rank {rank}" if isinstance(rank, int) else str(rank)
    residuals = problem.joint.structure.residuals
    plan = plan_of_gaussian(model, f"Gaussian ({shape}, d = {size})", residuals)
    named_sites(model, method)
    notes = () if wide is None else wide.notes
    plan = replace(plan, notes=(*plan.notes, *plan_note(sites_to_try(model, method)), *notes))
    if engine == "fixed":
        return plan
    rows = tuple(replace(row, update=UPDATES.get(engine, engine)) for row in plan.rows)
    return replace(plan, rows=rows)


def _wide(problem: Problem, method: UnconstrainedMethod, size: int) -> Wide | None:
    """The covariance of many dimensions that a fit would choose."""
    if not method.by_newton(size):
        return None
    with jax.enable_x64(True), np.errstate(all="ignore"), one_thread():
        model = problem.model
        target = target_for(model, problem.computing.dtype(), named_sites(model, method))
        return wide_for(target, method)
