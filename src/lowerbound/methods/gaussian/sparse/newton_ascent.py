"""A Gaussian of more than 200 numbers, planned for a problem: its coordinates, its steps."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from lowerbound.bound.draws import draw_seed
from lowerbound.bound.many_draws import many_draws
from lowerbound.cost import allowance
from lowerbound.errors import NoFiniteStartError, ZeroDensityError
from lowerbound.methods.gaussian.ascents import GaussianAscent, Phase, finite
from lowerbound.methods.gaussian.centring import (
    MARGIN,
    Choice,
    Trial,
    outcome,
    sites_to_try,
    with_centring,
)
from lowerbound.methods.gaussian.climbing.climbs import Start
from lowerbound.methods.gaussian.climbing.over_draws import AGREED, COARSE, LIMIT, SHARE
from lowerbound.methods.gaussian.reached import Measured, Parameters, Reached
from lowerbound.methods.gaussian.sparse.sparse_newton import (
    CONVERGED,
    STAGES,
    Course,
    Place,
    Surface,
    ascend,
    best_of,
    check_proper,
    measured,
    parameters,
    race,
)
from lowerbound.methods.gaussian.sparse.wide import Wide, wide_for, wide_problem
from lowerbound.methods.gaussian.target import Target, target_for
from lowerbound.methods.gaussian.unconstrained_methods import Gaussian
from lowerbound.result.answer import Stop
from lowerbound.rewrite.noncentred import centring_name
from lowerbound.run.problem import Problem
from lowerbound.run.walking import Standing, told

DEAR_LIMIT = 8  # iterations for one set of draws, where second derivatives are dear
DRAWS = 128  # fresh draws that compare two places
NO_CURVATURE = (
    "The log density itself may be finite at some of them, and so may its slope: "
    'lb.Gaussian(rank="diagonal") takes steps by these alone.',
)
SURE = 2.0  # standard errors by which the others must be better


def planned_wide(problem: Problem, method: Gaussian) -> NewtonAscent | None:
    """Newton's steps for many numbers; None where they are not affordable."""
    target, wide = wide_problem(problem, method)
    return None if wide is None else NewtonAscent(problem, method, target, wide)


@dataclass(frozen=True, eq=False)
class Bordered(Reached):
    """A Gaussian by a sparse precision, or by the covariance that is made of it."""

    surface: Surface
    place: Place
    rank: str

    @property
    def parameters(self) -> Parameters:
        """Those of the rank."""
        return parameters(self.surface.sparsity, self.place, self.rank)

    def measured(self, seed: int) -> Measured:
        """As it is: the steps have seen every wall that there is."""
        if self.known is not None:
            return self.known
        return Measured(self.parameters, measured(self.surface, self.place, self.draws, seed))


class NewtonAscent(GaussianAscent):
    """Newton's steps over few draws from the best start, then over more until fresh ones agree."""

    method: Gaussian

    def __init__(self, problem: Problem, method: Gaussian, target: Target, wide: Wide) -> None:
        self.target, self.wide = target, wide
        super().__init__(problem, method, wide.rank)
        self.plan = replace(self.plan, notes=(*self.plan.notes, *wide.notes))

    @cached_property
    def tried(self) -> tuple[str, ...]:
        """The sites whose coordinates are compared: z, or u with z = loc + scale * u."""
        return sites_to_try(self.problem.model, self.method, True)

    def ascent(self) -> Phase:
        """The coordinates, with the best start in them; then more draws."""
        choice, wide, courses = yield from self._chosen()
        target, method, seed = choice.target, self.method, self.problem.seed
        surface, place = Surface(target, wide.sparsity), best_of(courses).place
        if place.ahead is None:
            raise NoFiniteStartError(len(courses), NO_CURVATURE, "curvature of the log density")
        starts = tuple(Start(one.place.elbo, one.steps, _stated(one.reason)) for one in courses)

        def standing(draws: int, place: Place) -> Standing[Bordered]:
            here = Bordered(choice, draws, starts, surface, place, wide.rank)
            return Standing(here, finite(place.elbo))

        yield standing(0, place)
        sizes: tuple[int, ...] = STAGES[:2] if surface.dear else STAGES
        if method.draws is not None:
            sizes = (max(2, method.draws + method.draws % 2),)
        for stage, size in enumerate(sizes):
            draws = many_draws(size, target.size, draw_seed(seed, stage))
            coarse = AGREED if surface.dear else COARSE
            goal = max(method.tolerance, coarse if stage == 0 and len(sizes) > 1 else 0.0)
            limit = DEAR_LIMIT if surface.dear else LIMIT
            phase = ascend(surface, draws, place, goal, limit, SHARE if stage else 0.0)
            course = yield from told(phase, partial(standing, size))
            place = course.place
            if (stage and course.first <= AGREED) or (surface.dear and course.reason != CONVERGED):
                break
            if allowance().over:
                break
        check_proper(target, wide.sparsity, place)
        reached = standing(size, place).place
        if place.error > AGREED:
            return reached, self.stopped(course.reason)
        within = max(method.tolerance, place.error)
        return reached, Stop(True, f"mean and scale within {within:.2g} standard deviations")

    def _chosen(self) -> Generator[Standing[Reached], None, tuple[Choice, Wide, list[Course]]]:
        """The coordinates that the method names, or those of the larger ELBO of two: z or u.

        With them come the covariance, and the courses of the best starts over few draws.
        """
        model, method, names = self.problem.model, self.method, self.tried
        plain = Choice(self.target)
        courses = yield from self._raced(plain, self.wide)
        if not names or Surface(self.target, self.wide.sparsity).dear:
            return plain, self.wide, courses
        numbers = {centring_name(n): np.zeros(()) for n in names}
        target = target_for(model, self.dtype, names, numbers)
        noncentred = dict.fromkeys(names, 0.0)
        own = Choice(with_centring(target, noncentred), noncentred)
        own.target.prepare()
        elbo, error = self._compared(plain, self.wide, courses)
        other = wide_for(own.target, method)
        if other is None:
            return plain, self.wide, courses
        others = yield from self._raced(own, other, best_of(courses).place)
        rival, noise = self._compared(own, other, others)
        trials = (Trial(dict.fromkeys(names, 1.0), elbo), Trial(noncentred, rival))
        if not rival > elbo + MARGIN + SURE * float(np.hypot(error, noise)):
            notes = (outcome(trials, trials[0]),)
            return replace(plain, trials=trials, notes=notes), self.wide, courses
        notes = (outcome(trials, trials[1]),)
        return replace(own, trials=trials, notes=notes), other, others

    def _raced(
        self, choice: Choice, wide: Wide, known: Place | None = None
    ) -> Generator[Standing[Reached], None, list[Course]]:
        """The courses over few draws; what is told is the best, or what is `known` of `plain`."""
        surface = Surface(choice.target, wide.sparsity)

        def standing(place: Place) -> Standing[Reached]:
            if known is None:
                return Standing(Bordered(choice, 0, (), surface, place, wide.rank))
            plain = Surface(self.target, self.wide.sparsity)
            return Standing(Bordered(Choice(self.target), 0, (), plain, known, self.wide.rank))

        phase = race(surface, self.method, self.problem.seed)
        return (yield from told(phase, standing))

    def _compared(self, choice: Choice, wide: Wide, courses: list[Course]) -> tuple[float, float]:
        """The ELBO where the best course ended, with its standard error."""
        surface, place = Surface(choice.target, wide.sparsity), best_of(courses).place
        try:
            bound = measured(surface, place, DRAWS, self.problem.seed)
        except ZeroDensityError:
            return -np.inf, 0.0
        return bound.elbo, bound.error


def _stated(reason: str) -> str:
    """Why a course ended, as a table of restarts has it."""
    if reason == CONVERGED:
        return "converged: over the draws of the starts"
    return f"stopped: {reason}"
