"""`fit` and `explain` of variational EM by gradients, and what such a fit says of new rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from numpyro.primitives import Messenger

from lowerbound.ascent import State
from lowerbound.ascent.rows.by_rows import by_rows
from lowerbound.ascent.rows.first_point import FULL_ROW, FULL_SHARED, full_rank
from lowerbound.ascent.rows.objective import Objective, objective_of
from lowerbound.ascent.rows.row_batches import batch_size
from lowerbound.compute.versions import versions
from lowerbound.errors import ArgumentError, ConvergenceWarning
from lowerbound.family.densities.summed import Summed
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.family.variational import Variational
from lowerbound.methods.coordinate.variational_em import notes_of, parametrised_model
from lowerbound.methods.gaussian.summed_out import plan_summed
from lowerbound.methods.parameters.em_value import EM
from lowerbound.methods.parameters.gradient_loop import MOST_STEPS, EMRun, run_gradients
from lowerbound.model import Model, trace_model
from lowerbound.result.fitted import Fit, site_records
from lowerbound.result.plan import Plan, plan_of_gaussian
from lowerbound.result.posterior import History, Restart
from lowerbound.rewrite.parameters import Parameters, find_parameters, parameter_inputs
from lowerbound.rewrite.summing.enumerated import discrete_sites, enumerated
from lowerbound.rewrite.summing.summation import Summation
from lowerbound.rewrite.trees import with_values
from lowerbound.run.bar import Bar
from lowerbound.run.check_input import check_observed_variance
from lowerbound.store.checkpoint import Keeper


@dataclass(frozen=True, eq=False)
class Problem:
    """A program with its parameters as data; `summation` is that of its discrete sites."""

    parameters: Parameters
    model: Model
    summation: Summation | None

    def continuous(self) -> Model:
        """The program without discrete sites."""
        return self.model if self.summation is None else self.summation.summed()

    def objective(self) -> Objective:
        """What is maximised."""
        return objective_of(self.continuous(), self.parameters, self.summation is None)


def problem_of(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: EM,
    seed: int = 0,
) -> Problem:
    """Read the program, and sum out what is discrete."""
    parameters = find_parameters(function, args, kwargs, seed)
    if not parameters:
        raise ArgumentError(
            "EM got a model without numpyro.param: there is nothing to maximise.\nExpected at "
            'least one. Use method="auto", or lb.Gaussian().'
        )
    parameters = parameters.started(method.given)
    model = parametrised_model(function, parameters, args, kwargs)
    unknown = [n for n in method.given if n not in {*parameters.sites, *model.latent}]
    if unknown:
        raise ArgumentError(
            f"EM got init with '{unknown[0]}', which is no parameter and no latent site.\n"
            f"Expected names among {', '.join([*parameters.sites, *model.latent])}."
        )
    return Problem(parameters, model, enumerated(model) if discrete_sites(model) else None)


def fit_gradients(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: EM,
    seed: int,
    progress: bool | None,
    keep: Keeper | None = None,
    resumed: Mapping[str, Any] | None = None,
) -> Fit:
    """Parameters by gradients of the ELBO, with a Gaussian q by rows."""
    if keep is not None:
        raise ArgumentError(
            "fit got checkpoint= with a model that has parameters.\nExpected checkpoint= with a "
            "model of latent sites alone. Drop it, or give the parameters priors."
        )
    with jax.enable_x64(True), np.errstate(all="ignore"):
        problem = problem_of(function, args, kwargs, method, seed)
        check_observed_variance(problem.model)
        given = {n: v for n, v in method.given.items() if n in problem.model.latent}
        with Bar(progress, method.steps or MOST_STEPS, "Variational EM", "step") as bar:

            def watch(done: int, total: int, elbo: float) -> None:
                bar.update(done, f"ELBO {elbo:.6g}")

            run = run_gradients(problem.objective(), replace(method, init=given), seed, watch)
        plan = _plan(problem, method, run.objective, run)
        plan = replace(plan, notes=(*plan.notes, *run.notes))
        held = problem.parameters.trees(run.parameters)
        family, parameters = posterior_of(problem, run)
        model = trace_model(with_values(function, held), args, kwargs)
    if not run.converged:
        warnings.warn(
            ConvergenceWarning(
                run.stop_reason,
                "Take more: lb.EM(steps=...), or start from here: lb.EM(init=fit.parameters).",
            ),
            stacklevel=3,
        )
    return Fit(
        elbo=run.elbo,
        elbo_error=run.elbo_error,
        history=History(run.history, run.seconds, step="window"),
        restarts=(Restart(run.elbo, run.steps, run.stop_reason),),
        converged=run.converged,
        stop_reason=run.stop_reason,
        plan=plan,
        method=repr(method),
        seed=seed,
        versions=versions(),
        precision="float64",
        state=State(parameters, ()),  # type: ignore[arg-type]
        family=family,
        function=function,
        args=args,
        kwargs=dict(kwargs),
        sites=site_records(model),
        parameters=held,
    )


def posterior_of(problem: Problem, run: EMRun) -> tuple[Variational, dict[str, np.ndarray]]:
    """The family of q, at the parameters of the program that were found, and those of q."""
    inputs = {n: np.asarray(a) for n, a in parameter_inputs(run.parameters).items()}
    objective, summation = run.objective, problem.summation
    final = replace(objective.model, arguments=objective.model.arguments.replace(inputs))
    coordinates = replace(objective.coordinates, model=final)
    inner = UnconstrainedGaussian(coordinates, final.arguments.data)
    parameters = by_rows(objective, run.point.own, run.point.shared)
    if summation is None:
        return inner, parameters
    own = summation.model
    known = replace(own, arguments=own.arguments.replace(inputs))
    return Summed(inner, replace(summation, model=known), inner.compiled), parameters


# --------------------------------------------------------------------------------------------------
# The plan


def explain_gradients(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], method: EM
) -> Plan:
    """The plan of such a fit."""
    problem = problem_of(function, args, kwargs, method)
    return _plan(problem, method, problem.objective())


def _plan(problem: Problem, method: EM, objective: Objective, run: EMRun | None = None) -> Plan:
    model = objective.model
    width, size = objective.own.shape[-1], len(objective.shared)
    own = "full" if full_rank(method.rank, width, FULL_ROW) else "diagonal"
    shared = "full" if full_rank(method.rank, size, FULL_SHARED) else "diagonal"
    plan = plan_of_gaussian(model, f"Gaussian ({shared}, d = {size})", ())
    rows = []
    for row in plan.rows:
        if row.scope == "local" and width:
            row = replace(row, family=f"Gaussian ({own}, {width} a row)")
        rows.append(replace(row, update="estimated (stochastic gradients)"))
    plan = replace(plan, method="Variational EM", rows=tuple(rows))
    if problem.summation is not None:
        plan = plan_summed(problem.summation, plan)
    notes = [*notes_of(problem.parameters), *random_notes(objective)]
    if width:
        total = objective.rows
        batch = (
            run.batch
            if run is not None
            else batch_size(objective, objective.work(), method.batch_size)
        )
        step = "all rows" if batch == total else f"{batch} of them"
        notes.append(
            f"Each of {total} rows has a Gaussian of its own, optimised without an encoder: "
            f"plainly slower than a trained encoder. A step takes {step}."
        )
        if run is not None and run.together is not None:
            notes.append(f"All rows were taken at once: {run.together}.")
    return replace(plan, notes=(*plan.notes, *notes))


class _Asked(Messenger):  # type: ignore[misc]
    """Notes whether a program asks for a random key."""

    asked = False

    def process_message(self, msg: dict[str, Any]) -> None:
        """Note it."""
        self.asked = self.asked or msg["type"] == "prng_key"


def random_notes(objective: Objective) -> list[str]:
    """What the plan says of random numbers that the program draws itself."""
    watch = _Asked()
    with watch:
        objective.work()
    if not watch.asked:
        return []
    return ["The program asks for a random key (dropout, say): it gets the same one every time."]
