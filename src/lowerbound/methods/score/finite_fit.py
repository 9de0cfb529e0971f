"""`fit` and `explain` of q(z) q(u), where discrete sites cannot be summed out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax

from lowerbound.ascent import State
from lowerbound.compute.engine import derived
from lowerbound.compute.versions import versions
from lowerbound.errors import ArgumentError, UnsupportedModelError
from lowerbound.methods.gaussian.unconstrained_methods import Gaussian
from lowerbound.methods.score.finite_program import score_program
from lowerbound.methods.score.score_functions import draws_of, run_score
from lowerbound.model import Model
from lowerbound.result.fitted import Fit, site_records
from lowerbound.result.plan import Plan, Row, plan_of_gaussian
from lowerbound.result.posterior import History
from lowerbound.rewrite.summing.enumerated import discrete_sites, enumerated
from lowerbound.run.check_input import check_observed_variance


def by_score(model: Model, method: Gaussian) -> bool:
    """Whether a method fits a model by score functions.

    Raises, with the reason why discrete sites cannot be summed out, where these cannot be used
    either.
    """
    if method.engine == "score":
        if not discrete_sites(model):
            raise ArgumentError(
                'Gaussian got engine="score" for a model without discrete latent sites.\n'
                'Expected a discrete site, such as dist.Bernoulli. Use engine="auto".'
            )
        return True
    if method.engine != "auto" or method.condition or not discrete_sites(model):
        return False
    try:
        enumerated(model)
    except UnsupportedModelError as error:
        check_score(model, error)
        return True
    return False


def check_score(model: Model, error: UnsupportedModelError) -> None:
    """Raise the error of the summation, where score functions cannot take its place."""
    try:
        score_program(model)
    except UnsupportedModelError:
        raise error from None


def fit_score(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: Gaussian,
    seed: int,
    progress: bool | None,
) -> Fit:
    """A factor for every entry of the discrete sites, and a Gaussian for the others."""
    with jax.enable_x64(True):
        check_observed_variance(model)
        plan = explain_score(model, method)
        run = run_score(model, method, seed, progress)
    return Fit(
        elbo=run.elbo,
        elbo_error=run.elbo_error,
        history=History(run.history, run.history_seconds, step="window"),
        restarts=run.restarts,
        converged=run.converged,
        stop_reason=run.stop_reason,
        plan=replace(plan, notes=(*plan.notes, *run.notes)),
        method=repr(method),
        seed=seed,
        versions=versions(),
        precision="float64",
        state=State(run.parameters, ()),  # type: ignore[arg-type]
        family=run.family,
        function=model.function,
        args=args,
        kwargs=dict(kwargs),
        sites=site_records(model),
    )


def explain_score(model: Model, method: Gaussian) -> Plan:
    """The plan of such a fit."""
    program = score_program(model)
    local, _ = draws_of(program, method)
    how = "local expectations" if local else "score function"
    size = program.coordinates.size
    rank = method.chosen_rank(size)
    shape = f"rank {rank}" if isinstance(rank, int) else str(rank)
    plan = plan_of_gaussian(
        model, f"Gaussian ({shape}, d = {size})", derived(model).structure.residuals
    )
    rows = []
    for row in plan.rows:
        if row.site in program.coordinates.shapes:
            block = "+".join(program.coordinates.shapes)
            rows.append(replace(row, update="estimated (stochastic gradients)", block=block))
            continue
        finite = model.latent[row.site].support_values is not None
        family = "Categorical" if finite else "Categorical, on 0, 1, ..."
        rows.append(
            Row(row.site, row.shape, row.scope, family, f"estimated ({how})", row.site,
                f"1[{row.site} = k]", row.where)
        )  # fmt: skip
    return replace(plan, method="Score functions", rows=tuple(rows))
