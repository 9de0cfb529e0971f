"""Finite discrete sites summed out, exactly, before a method that takes continuous ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lowerbound.errors import CutCountsError, UnsupportedModelError
from lowerbound.errors.wording import quoted
from lowerbound.family.completed.summed import Summed
from lowerbound.family.variational import Parameters
from lowerbound.methods.rewriting.carried import Carried
from lowerbound.methods.rewriting.completed_plan import completed_plan
from lowerbound.model import Model
from lowerbound.result.answer import Answer
from lowerbound.result.plan import Plan, Row
from lowerbound.rewrite.summing.endless_counts import counts_of
from lowerbound.rewrite.summing.enumerated import discrete_sites, enumerated_from_zero
from lowerbound.rewrite.summing.finite import is_listable
from lowerbound.rewrite.summing.summation import Summation
from lowerbound.run.method import Method
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem

EDGE = 1e-6  # the mass of the last value of a count that is neglected


def summed_out(problem: Problem, method: Method) -> Planned[Any]:
    """Fit q(theta) to the program with z summed out by a method; then z given theta is exact.

    Raises UnsupportedModelError where z cannot be summed out, and in the end CutCountsError where
    counts need more values than were summed over.
    """
    try:
        summation, summed = summed_problem(problem)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{error}{_way_out(problem.model)}") from None
    inner = method.plan(summed)

    def back(answer: Answer) -> Answer:
        q = answer.q
        family = Summed(q.family, summation)
        _check_edges(family, q.parameters, counts_of(problem.model, summation.model))
        return replace(answer, q=replace(q, family=family))

    return Carried(problem, inner, plan_summed(problem, summation, inner.plan), back)


def summed_problem(problem: Problem) -> tuple[Summation, Problem]:
    """How the discrete sites are summed out, and the problem of the program without them."""

    def find() -> tuple[Summation, Problem]:
        summation = enumerated_from_zero(problem.model)
        if len(summation.names) == len(problem.model.latent):
            raise UnsupportedModelError(
                f"All latent sites are discrete: {quoted(summation.names)}.\n"
                "Expected a continuous site that is left when these are summed out. Fit them by "
                "lb.Enumeration()."
            )
        return summation, problem.of(summation.function, *summation.call)

    return problem.once("summed", find)


def _check_edges(family: Summed, parameters: Parameters, counts: Mapping[str, int]) -> None:
    """Raise CutCountsError where the last value of a count has mass: there may be more beyond."""
    for name, count in counts.items():
        with jax.enable_x64(True):
            last = float(np.max(np.asarray(family.marginal(parameters, name).probs)[..., -1]))
        if not last <= EDGE:
            raise CutCountsError(name, count, last)


def _way_out(model: Model) -> str:
    """What takes discrete sites that cannot be summed out, where it can."""
    discrete = discrete_sites(model)
    for name, site in model.latent.items():
        if not (is_listable(site) if name in discrete else site.support is not None):
            return ""
    return " Or use method=lb.ScoreFunctions(), which takes discrete sites entry by entry."


def plan_summed(problem: Problem, summation: Summation, given: Plan) -> Plan:
    """The plan of a program; `given` is that of the program with z summed out."""
    model = summation.model
    groups = {site.name: group for group in summation.groups for site in group.sites}

    def row(name: str, scope: str) -> Row:
        site, block = model.latent[name], "+".join(site.name for site in groups[name].sites)
        return Row(name, site.shape, scope, "Categorical, given the rest", "exact (summed out)",
                   block, f"1[{name} = k]", site.where)  # fmt: skip

    names = ", ".join(f"'{name}'" for name in summation.names)
    states = ", ".join(dict.fromkeys(group.text for group in summation.groups))
    return completed_plan(problem, model, given, row, f"{names} summed out of log p, {states}.")
