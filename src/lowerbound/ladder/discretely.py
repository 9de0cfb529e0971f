"""Rungs of discrete sites without a factor: summed out of a Gaussian, or by score functions."""

from __future__ import annotations

from collections.abc import Iterator

from lowerbound.errors import UnsupportedModelError
from lowerbound.ladder.case import GRID, Case, Tried, listed
from lowerbound.methods.gaussian.unconstrained_methods import Gaussian
from lowerbound.methods.grid.given_scalars import Given
from lowerbound.methods.grid.scalar_sites import (
    affordable,
    scalars_to_condition,
    scale_setters,
    size_of,
)
from lowerbound.methods.rewriting.summed_out import summed_problem
from lowerbound.methods.score.finite_fit import check_score
from lowerbound.methods.score.score_value import ScoreFunctions


def summed(case: Case) -> Iterator[Tried]:
    """A Gaussian of the continuous sites, with the discrete ones summed out exactly."""
    try:
        summation, problem = summed_problem(case.problem)
    except UnsupportedModelError as error:
        check_score(case.problem, error)
        why = str(error).splitlines()[0].split("   (")[0].rstrip(".")
        yield case.tried(f"Gaussian, with {listed(case.discrete)} summed out", why)
        return
    names, program = listed(summation.names), problem.model
    every = scalars_to_condition(program)
    sites = tuple(n for n in scale_setters(program) if n in every)
    grid = GRID not in case.failed and affordable(program, sites)
    size = size_of(program, sites if grid else ())
    on_grid = f", {listed(sites)} on a grid" if grid else ""
    yield case.tried(
        f"Gaussian, with {names} summed out",
        f"about {size} numbers on the unconstrained space{on_grid}; {names} exactly, given them",
        Given(sites, Gaussian()) if grid else Gaussian(),
    )


def scored(case: Case) -> Iterator[Tried]:
    """A factor for every entry of discrete sites."""
    names = listed(case.discrete)
    reason = f"every entry of {names} by itself, a Gaussian of the rest; expectations by draws"
    yield case.tried("score functions", reason, ScoreFunctions())
