"""A Gaussian on the unconstrained space, planned for a problem: what all its algorithms share.

An algorithm is a subclass with an `ascent`: a generator that goes through the choice of
coordinates, the climbs from all starts, and its own steps, and tells where it stands after each.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from lowerbound.ascent.gaussian_step import Ascent
from lowerbound.bound.restricted import reason
from lowerbound.cost import allowance
from lowerbound.family.q import Q
from lowerbound.methods.coordinate.begin import given_values
from lowerbound.methods.gaussian import warping
from lowerbound.methods.gaussian.centring import (
    MOST_TRIED,
    Choice,
    choose,
    named_sites,
    plan_note,
    sites_to_try,
)
from lowerbound.methods.gaussian.climbing.climbs import (
    Start,
    begin_climbs,
    best_of,
    is_hurried,
    start_of,
)
from lowerbound.methods.gaussian.climbing.over_draws import LIMIT
from lowerbound.methods.gaussian.reached import Reached, Rooted, optima, table
from lowerbound.methods.gaussian.target import target_for
from lowerbound.methods.gaussian.unconstrained_methods import GaussianMethod, dimension
from lowerbound.methods.gaussian.warping import sites_to_warp, straight_tables, warp
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.plan import Plan, plan_of_gaussian
from lowerbound.result.posterior import History
from lowerbound.rewrite.noncentred import centring_name
from lowerbound.run.planned import Trace
from lowerbound.run.problem import Problem
from lowerbound.run.walking import Standing, Walking, told

Phase = Generator[Standing[Reached], None, tuple[Reached, Stop]]


class GaussianAscent(Walking[Reached]):
    """The best Gaussian of some rank, as an algorithm finds it.

    update: what the plan calls the algorithm. compares: whether it looks for the coordinates of
    the largest ELBO.
    """

    unit, total = "step", 2 * LIMIT
    update: ClassVar[str] = "estimated (quasi-Monte Carlo)"

    def __init__(
        self, problem: Problem, method: GaussianMethod, rank: str | int, compares: bool = True
    ) -> None:
        self.problem, self.method, self.rank, self.compares = problem, method, rank, compares
        self.size, self.dtype = dimension(problem), problem.computing.dtype()
        given_values(problem.model, method)
        named_sites(problem.model, method)
        self.plan = self._plan()

    @abstractmethod
    def ascent(self) -> Phase:
        """Where it goes, what it reaches, and why it stops there."""

    def walk(self) -> Iterator[Standing[Reached]]:
        """The ascent; then its answer is measured."""
        reached, stop = yield from self.ascent()
        found = reached.measured(self.problem.seed)
        if found.width < 1.0:
            stop = self.stopped(reason(found.width))
        elif stop.converged and is_hurried(reached.starts):
            hurry = f"{allowance().reason}: most starts came elsewhere, others were not looked at"
            stop = Stop(False, hurry, allowance().remedy(self.method.code))
        yield Standing(replace(reached, known=found), stop=stop)

    def answer(self, place: Reached, trace: Trace, stop: Stop) -> Answer:
        """The Gaussian, with its ELBO over fresh draws."""
        parameters, bound, _, drawn = place.measured(self.problem.seed)
        return Answer(
            Q(place.choice.family, parameters),
            bound.elbo,
            History(trace.values, trace.seconds, step="step"),
            table(place.starts, bound.elbo, len(trace.values), stop),
            str(self.dtype),
            bound.error,
            notes=(*place.choice.notes, *bound.notes),
            drawn=drawn,
            optima=optima(place.starts),
        )

    # What algorithms share

    @property
    def diagonal(self) -> bool:
        """Whether the entries are independent."""
        return self.rank == "diagonal"

    @cached_property
    def tried(self) -> tuple[str, ...]:
        """The sites whose coordinates are compared."""
        model = self.problem.model
        if not self.compares or self.size > MOST_TRIED:
            return ()
        return sites_to_try(model, self.method, self.rank == "full")

    @cached_property
    def warped(self) -> tuple[str, ...]:
        """The sites that may be warped."""
        named = self.method.noncentred != "auto"
        if not self.compares or self.size > MOST_TRIED or named:
            return ()
        return sites_to_warp(self.problem.model)

    def coordinates(self) -> Generator[Standing[Reached], None, Choice]:
        """The coordinates that the method names, or those of the largest ELBO."""
        model, method, names = self.problem.model, self.method, self.tried
        numbers = {centring_name(name): np.zeros(()) for name in names}
        numbers |= straight_tables(model, self.warped)
        names = names or named_sites(model, method)
        target = target_for(model, self.dtype, names, numbers, self.warped)
        choice, independent, seed = Choice(target), self.rank != "full", self.problem.seed
        if self.tried:
            search = choose(target, method, names, independent, seed)
            choice = yield from told(search, lambda best: Standing(self.rooted(best, best.begun)))
        if self.warped:
            bending = warp(choice, method, seed, independent)
            choice = yield from told(bending, lambda best: self.standing(*best))
        return choice

    def begun(
        self, choice: Choice
    ) -> Generator[Standing[Reached], None, tuple[Ascent, tuple[Start, ...]]]:
        """The best start, and the record of all of them."""
        if choice.begun is not None:
            return choice.begun, choice.starts
        phase = begin_climbs(choice.target, self.method, self.problem.seed, self.diagonal)
        climbs = yield from told(phase, partial(self.standing, choice))
        return best_of(climbs).state, tuple(map(start_of, climbs))

    def rooted(
        self, choice: Choice, state: Ascent | None, draws: int = 0, starts: tuple[Start, ...] = ()
    ) -> Rooted:
        """A state of an ascent as what it has reached."""
        assert state is not None
        return Rooted(choice, draws, starts or choice.starts, state.loc, state.root, self.diagonal)

    def standing(
        self, choice: Choice, state: Ascent, draws: int = 0, starts: tuple[Start, ...] = ()
    ) -> Standing[Reached]:
        """A state of an ascent as a standing."""
        place = self.rooted(choice, state, draws, starts)
        return Standing(place, finite(state.elbo))

    def stopped(self, why: str) -> Stop:
        """The end of an ascent that has not come to rest."""
        if why == allowance().reason:
            return Stop(False, why, allowance().remedy(self.method.code))
        elsewhere = f"lb.{self.method.name}(init=...)"
        return Stop(False, why, f"Loosen tolerance, or start elsewhere with {elsewhere}.")

    def _plan(self) -> Plan:
        model, rank = self.problem.model, self.rank
        shape = f"rank {rank}" if isinstance(rank, int) else rank
        residuals = self.problem.joint.structure.residuals
        plan = plan_of_gaussian(model, f"Gaussian ({shape}, d = {self.size})", residuals)
        rows = tuple(replace(row, update=self.update) for row in plan.rows)
        tried = ((plan_note, self.tried), (warping.plan_note, self.warped))
        notes = (note(sites) for note, sites in tried if sites)
        return replace(plan, rows=rows, notes=(*plan.notes, *notes))


def finite(elbo: float) -> float:
    """The ELBO, where it is finite: NaN elsewhere, which no history holds."""
    return elbo if abs(elbo) < float("inf") else float("nan")
