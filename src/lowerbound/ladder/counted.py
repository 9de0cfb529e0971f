"""A problem with the counts that the work of any method depends on, and what judges its fit."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np

from lowerbound.compiled import equations
from lowerbound.compute.computing import current
from lowerbound.cost import Work, limits, numbers_computed
from lowerbound.errors import UnsupportedModelError
from lowerbound.joint.traced_program import trace_program
from lowerbound.methods.gaussian.target import Counts, counts_of
from lowerbound.methods.rewriting.summed_out import summed_problem
from lowerbound.rewrite.summing.endless_counts import bounded, first_counts, unbounded
from lowerbound.rewrite.summing.enumerated import FEWEST
from lowerbound.run.problem import Problem

# What judges a fit: operations beside those of log p and its gradient, and how often these count.
JUDGED, DIFFERENTIATED = 300, 2
GRANTED = 0.4  # seconds of an ordinary core for the draws of q, as of the verdict of a short fit
DRAWN, MORE = (64, 512), (2, 3584)  # these draws; times as many more points, and the most of them
TOO_LONG = 20.0  # seconds of the fewest draws, from which on a fit is not compared
UNHURRIED = 2.5  # numbers for one of log p, in a program that is compiled for few points
SUMMED_OUT, SUMMED = 250, 4  # operations by which discrete sites are summed out; numbers for one
DERIVED, SHORT = 5, 50  # operations for one of a long program, and those of a short one
# Operations for a site of a loop in Python, beside those of its copies: of an observed one, of a
# latent one, from so many on.
READ, PLACED, FEW = 6, 100, 20
HELD: Final = 0.4  # numbers of a point that are alive, for each that is computed


class Counted:
    """A program with its data, and what it computes."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        model = self.model = problem.model
        jaxpr = trace_program(model).jaxpr.jaxpr
        self.operations, self.numbers = equations(jaxpr), numbers_computed(jaxpr)
        self.data = sum(int(np.size(a)) for a in model.arguments.data.values())
        counts = first_counts(model, unbounded(model), FEWEST)
        listed = bounded(model, counts).latent if counts else model.latent
        discrete = [s for s in listed.values() if s.support_values is not None]
        self.states = math.prod(len(np.asarray(s.support_values)) for s in discrete)
        real = [s for s in listed.values() if s.support_values is None]
        self.size = sum(math.prod(s.shape) for s in real)
        self.rows = max((math.prod(s.shape) for s in model.observed.values()), default=0)

    @property
    def derived(self) -> float:
        """Operations for those that are read, matched and certified one by one."""
        many = READ * max(len(self.model.observed) - FEW, 0)
        many += PLACED * max(len(self.model.latent) - FEW, 0)
        return DERIVED * max(self.operations - SHORT, 0) + many

    @cached_property
    def continuous(self) -> Problem | None:
        """The problem of a Gaussian, discrete sites summed out; None where they stay."""
        if self.states == 1:
            return self.problem
        try:
            return summed_problem(self.problem)[1]
        except UnsupportedModelError:
            return None

    @cached_property
    def density(self) -> Counts:
        """What log p on the unconstrained space costs; as it is where discrete sites stay."""
        if self.continuous is None:
            return Counts(self.operations, self.numbers, self.size, self.data)
        return counts_of(self.continuous.model)

    @property
    def batch_bytes(self) -> float:
        """The bytes of a batch of points with their gradients, which is at most what is free."""
        return min(8.0 * HELD * self.density.batch * self.density.numbers, limits().budget)

    def judged(self, work: Work) -> Work:
        """The work of a fit, and that of log p at draws of q, which says how near q is."""
        if not self.size or not current().verdicts:
            return work  # there is no density of discrete sites alone
        found = self._judging
        if DRAWN[0] * found.ordinary > TOO_LONG:
            return work
        affordable, (times, most) = GRANTED / found.ordinary, MORE
        points = float(np.clip(affordable, *DRAWN)) + min(times * affordable, most)
        return replace(
            work,
            operations=work.operations + JUDGED + DIFFERENTIATED * found.operations,
            numbers=work.numbers + points * UNHURRIED * found.numbers,
        )

    @property
    def _judging(self) -> Counts:
        """What log p costs without discrete sites; roughly, where there are some to sum out."""
        if self.states == 1:
            return self.density
        operations = SUMMED_OUT + self.operations
        return Counts(operations, SUMMED * self.states * self.numbers, self.size, self.data)
