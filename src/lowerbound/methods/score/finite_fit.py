"""Score functions planned for a problem: q(z) q(u), where z cannot be summed out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from lowerbound.bound.restricted import Restricted, narrowed, reason
from lowerbound.errors import ArgumentError, UnsupportedModelError
from lowerbound.family.densities.score_product import ScoreProduct
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.family.q import Q
from lowerbound.methods.coordinate.begin import given_values
from lowerbound.methods.gaussian.climbing.climbs import Start
from lowerbound.methods.gaussian.reached import table
from lowerbound.methods.score.finite_program import ScoreProgram, score_program
from lowerbound.methods.score.score_functions import (
    ELSEWHERE,
    WINDOWS,
    ascended,
    at_edge,
    draws_of,
    measured,
    plain,
    scaled,
    started,
    widened,
)
from lowerbound.methods.score.score_value import ScoreFunctions
from lowerbound.methods.score.windows import Ascending, Parameters
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.plan import Plan, Row, plan_of_gaussian
from lowerbound.result.posterior import History
from lowerbound.rewrite.summing.endless_counts import MOST
from lowerbound.rewrite.summing.enumerated import discrete_sites
from lowerbound.run.check_input import check_observed_variance
from lowerbound.run.planned import Planned, Trace
from lowerbound.run.problem import Problem
from lowerbound.run.walking import Standing, Walking, told


def planned_score(problem: Problem, method: ScoreFunctions) -> Planned[Any]:
    """A factor for every entry of the discrete sites, and a Gaussian for the others."""
    check_observed_variance(problem.model)
    if not discrete_sites(problem.model):
        raise ArgumentError(
            "ScoreFunctions got a model without discrete latent sites.\n"
            "Expected a discrete site, such as dist.Bernoulli. Use lb.Gaussian()."
        )
    given_values(problem.model, method)
    return ScoreAscent(problem, method)


def check_score(problem: Problem, error: UnsupportedModelError) -> None:
    """Raise the error of the summation, where score functions cannot take its place."""
    try:
        _program(problem)
    except UnsupportedModelError:
        raise error from None


class Scored(NamedTuple):
    """Where the run stands: q, of the program with so many values of its counts, and its starts.

    bound: of q as it is, where that has been measured.
    """

    program: ScoreProgram
    q: Parameters
    starts: tuple[Start, ...] = ()
    bound: Restricted | None = None


class ScoreAscent(Walking[Scored]):
    """Windows of noisy steps; counts get as many values as q needs."""

    unit, total = "window", WINDOWS

    def __init__(self, problem: Problem, method: ScoreFunctions) -> None:
        self.problem, self.method = problem, method
        self.first = _program(problem)
        self.rank = method.chosen_rank(self.first.coordinates.size)
        self.plan = self._plan()

    def walk(self) -> Iterator[Standing[Scored]]:
        """From the best start; over again where a count asks for more values."""
        method, seed = self.method, self.problem.seed
        wider: ScoreProgram | None = self.first
        while wider is not None:
            program = wider
            first = started(program, method, seed)
            state, elbo, starts = yield from told(first, partial(_standing, program, ()))
            yield _standing(program, starts, (state, elbo))
            wider = widened(program, state.average)
            if wider is None:
                windows = ascended(program, method, state, seed)
                state, stop = yield from told(windows, partial(_standing, program, starts))
                wider = widened(program, state.average)
        place, width = self._measured(Scored(program, state.average, starts))
        edges = at_edge(program, place.q.logits)
        if edges:
            stop = Stop(False, f"counts of {', '.join(edges)} reach {MOST}", ELSEWHERE)
        elif width < 1.0:
            stop = Stop(False, reason(width), ELSEWHERE)
        yield Standing(place, stop=stop)

    def answer(self, place: Scored, trace: Trace, stop: Stop) -> Answer:
        """The factors and the Gaussian, with their ELBO over fresh draws."""
        program, q, starts, bound = self._measured(place)[0]
        assert bound is not None
        inner = UnconstrainedGaussian(program.coordinates, {}, {})
        parameters = plain(program, q, self.rank == "full")
        return Answer(
            Q(ScoreProduct(tuple(self.problem.model.latent), inner), parameters),
            bound.elbo,
            History(trace.values, trace.seconds, step="window"),
            table(starts, bound.elbo, len(trace.values), stop),
            error=bound.error,
            notes=bound.notes,
        )

    def _measured(self, place: Scored) -> tuple[Scored, float]:
        """With its bound; narrower where it reaches too far beyond the density, and how much."""
        if place.bound is not None:
            return place, 1.0
        program, q, seed = place.program, place.q, self.problem.seed
        width, bound = narrowed(lambda width: measured(program, scaled(q, width), seed))
        return place._replace(q=scaled(q, width), bound=bound), width

    def _plan(self) -> Plan:
        model, coordinates = self.problem.model, self.first.coordinates
        local, _ = draws_of(self.first, self.method)
        how = "local expectations" if local else "score function"
        shape = f"rank {self.rank}" if isinstance(self.rank, int) else self.rank
        residuals = self.problem.joint.structure.residuals
        plan = plan_of_gaussian(model, f"Gaussian ({shape}, d = {coordinates.size})", residuals)
        rows = []
        for row in plan.rows:
            if row.site in coordinates.shapes:
                block = "+".join(coordinates.shapes)
                rows.append(replace(row, update="estimated (stochastic gradients)", block=block))
                continue
            finite = model.latent[row.site].support_values is not None
            family = "Categorical" if finite else "Categorical, on 0, 1, ..."
            rows.append(
                Row(row.site, row.shape, row.scope, family, f"estimated ({how})", row.site,
                    f"1[{row.site} = k]", row.where)
            )  # fmt: skip
        return replace(plan, method="Score functions", rows=tuple(rows))


def _program(problem: Problem) -> ScoreProgram:
    return problem.once("score", lambda: score_program(problem.model))


def _standing(
    program: ScoreProgram, starts: tuple[Start, ...], now: tuple[Ascending, float]
) -> Standing[Scored]:
    state, elbo = now
    return Standing(Scored(program, state.average, starts), elbo)
