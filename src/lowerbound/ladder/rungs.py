"""The automatic ladder: a table of rungs, the first of which that holds is taken.

    minibatches (streams) -> parameters maximised -> exact -> conjugate sites integrated out
        -> chains over local scales -> hyperparameters integrated -> conditioned on a few scalars
        -> coordinate ascent (quadrature) -> augmented
        -> Gaussian of a few sites, the rest exact -> Gaussian -> score functions

A posterior of one factor is exact. Sites with exact factors given the rest, of parameters in it,
are integrated out, and rungs below take what is left. Given scales, correlations and shapes, what
is a function of linear predictors is a sparse Gaussian, and these are integrated, or sampled where
every effect has a scale of its own; other scalars that set the scale or the shape of the rest go on
a grid, where the rest is one Gaussian given them. Coordinate ascent takes what has a factor for
every site; a Gaussian on the unconstrained space takes everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import jax

from lowerbound.errors import NotConjugateError
from lowerbound.ladder import (
    discretely,
    exactly,
    gaussian_rungs,
    hierarchical,
    many_scales,
    marginally,
    parametric,
    scalars,
)
from lowerbound.ladder.case import GRID, Case, Rung
from lowerbound.methods.stochastic.batched import SVI
from lowerbound.methods.values import as_method, is_auto
from lowerbound.result.plan import Plan
from lowerbound.run.method import Method
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem

__all__ = ["GRID", "RUNGS", "Chosen", "Line", "chosen"]


def _streams(case: Case) -> Any:
    if case.problem.streams:
        yield case.tried("minibatches", "the data are columns of a stream", SVI())


# A new rung is its function, and a line here. Each tells what it tried, and proposes or refuses.
RUNGS: tuple[Rung, ...] = (
    _streams,
    parametric.coordinates,
    parametric.gradients,
    exactly.exact,
    marginally.collapsed,
    many_scales.sampled,
    hierarchical.integrated,
    scalars.conditioned,
    exactly.coordinates,
    marginally.collapsed_effects,
    exactly.augmented_exactly,
    gaussian_rungs.partly,
    gaussian_rungs.gaussian,
    discretely.summed,
    discretely.scored,
)


@dataclass(frozen=True)
class Line:
    """What was tried on a rung: whether it is taken, and why."""

    name: str
    taken: bool
    reason: str

    def __str__(self) -> str:
        return f"{'->' if self.taken else '  '} {self.name}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Chosen:
    """The method for a problem, and the rungs of the ladder up to it."""

    problem: Problem
    method: Method
    rungs: tuple[Line, ...] = ()

    @cached_property
    def planned(self) -> Planned[Any]:
        """The method's plan, to be carried out."""
        with jax.enable_x64(True):
            return self.method.plan(self.problem)

    @property
    def plan(self) -> Plan:
        """The plan, with how the method was chosen."""
        return replace(self.planned.plan, ladder=self.lines)

    @property
    def lines(self) -> tuple[str, ...]:
        """The rungs as a plan prints them."""
        return tuple(map(str, self.rungs))

    @property
    def taken(self) -> str:
        """The name of the rung that is taken; empty where no ladder was climbed."""
        return self.rungs[-1].name if self.rungs else ""


def chosen(
    problem: Problem, method: Any, failed: Mapping[str, str] = MappingProxyType({})
) -> Chosen:
    """The method for a problem; where it is "auto", the first rung that holds.

    Rungs that have `failed`, by name and with the reason, are passed over. Nothing is fitted.
    """
    if not is_auto(method):
        return Chosen(problem, as_method(method))
    case, lines = Case(problem, failed), []
    with jax.enable_x64(True):
        for rung in RUNGS:
            for tried in rung(case):
                given_up = tried.method is not None and tried.name in failed
                reason = f"given up: {failed[tried.name]}" if given_up else tried.reason
                taken = tried.method is not None and not given_up
                lines.append(Line(tried.name, taken, reason))
                if taken:
                    assert tried.method is not None
                    return Chosen(problem, tried.method, tuple(lines))
    raise NotConjugateError(problem.joint.structure.residuals)
