"""Variational EM by gradients, planned for a problem: climb, maximise over fixed draws, measure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpyro.primitives import Messenger

from lowerbound.ascent.rows.by_rows import by_rows
from lowerbound.ascent.rows.climb import STEPS, Point
from lowerbound.ascent.rows.first_point import FULL_ROW, FULL_SHARED, first_point, full_rank
from lowerbound.ascent.rows.objective import Objective, objective_of
from lowerbound.ascent.rows.polish import draws_for, polished
from lowerbound.ascent.rows.row_batches import batch_size
from lowerbound.bound.restricted import Restricted, narrowed
from lowerbound.bound.restricted import reason as narrow_reason
from lowerbound.errors import ArgumentError, ZeroDensityError
from lowerbound.family.completed.summed import Summed
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.family.q import Q
from lowerbound.family.variational import Variational
from lowerbound.methods.coordinate.begin import given_values
from lowerbound.methods.coordinate.variational_em import check_given, notes_of
from lowerbound.methods.parameters.em_value import EM
from lowerbound.methods.parameters.gradient_loop import Budget, Ground, climbed, scaled
from lowerbound.methods.rewriting.summed_out import plan_summed
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.plan import Plan, plan_of_gaussian
from lowerbound.result.posterior import History, Restart
from lowerbound.rewrite.parameters import at_values
from lowerbound.rewrite.summing.enumerated import discrete_sites, enumerated
from lowerbound.run.check_input import check_observed_variance
from lowerbound.run.planned import Trace
from lowerbound.run.problem import Problem
from lowerbound.run.walking import Standing, Walking

REMEDY = "Take more: lb.EM(steps=...), or start from here: lb.EM(init=fit.parameters)."


@dataclass(frozen=True, eq=False)
class Place:
    """Parameters and q after some steps, and their bound where it has been measured."""

    point: Point
    steps: int
    bound: Restricted | None = None


class GradientSteps(Walking[Place]):
    """Windows of steps of the parameters and of q together."""

    unit = "window"

    def __init__(self, problem: Problem, method: EM) -> None:
        self.problem, self.method = problem, method
        if not problem.has_parameters:
            raise ArgumentError(
                "EM got a model without numpyro.param: there is nothing to maximise.\nExpected at "
                'least one. Use method="auto", or lb.Gaussian().'
            )
        self.parameters = problem.parameters.started(method.given)
        model = at_values(problem.parametrised, self.parameters.initial)
        self.summation = enumerated(model) if discrete_sites(model) else None
        continuous = model if self.summation is None else self.summation.summed()
        check_given(method, method.given, (*self.parameters.sites, *continuous.latent))
        latent = {n: v for n, v in method.given.items() if n in continuous.latent}
        self.given = given_values(continuous, replace(method, init=latent))
        check_observed_variance(model)
        self.whole = objective_of(continuous, self.parameters, self.summation is None)
        self.plan = self._plan()
        size = batch_size(self.whole, self.whole.work(), method.batch_size)
        self.total = Budget.of(self.whole, size, method).limit // STEPS + 1

    @cached_property
    def ground(self) -> Ground:
        """What is climbed."""
        return Ground.of(self.whole, self.method, self.problem.seed)

    # -- the run ----------------------------------------------------------------------------------

    def walk(self) -> Iterator[Standing[Place]]:
        """Noisy steps; then, where that is affordable, the maximum over fixed draws."""
        seed, ground = self.problem.seed, self.ground
        begun = first_point(self.whole, self.method.rank, self.given, seed)
        for stage in climbed(ground, begun, self.method.tolerance):
            yield Standing(Place(stage.point, stage.steps), stage.elbo)
        width, point, bound = self._measured(stage.point)
        stop = self._rested(stage.rested, stage.steps)
        if width != 1.0:
            stop = Stop(False, narrow_reason(width), REMEDY)
        fixed = 0
        if ground.part is ground.whole and self.method.steps is None:
            fixed = draws_for(self.whole, point, self.whole.work())
        if fixed:
            work = self.whole.work()
            better, value, found = polished(self.whole, point, ground.data, fixed, work, seed + 2)
            again: Restricted | None = None
            with contextlib.suppress(ZeroDensityError):
                again = ground.measured(better)
            if again is not None and again.elbo > bound.elbo - again.error - bound.error:
                point, bound = better, again
                text = f"the ELBO of {fixed} fixed draws, {value:.6g}, "
                text += "is at its maximum" if found else "still rises"
                stop = Stop(found, text, "" if found else REMEDY)
        yield Standing(Place(point, stage.steps, bound), stop=stop)

    def _measured(self, point: Point) -> tuple[float, Point, Restricted]:
        """The bound on fresh draws, of a q that is narrowed where it reaches too far."""
        width, bound = narrowed(lambda width: self.ground.measured(scaled(point, width)))
        return width, scaled(point, width), bound

    def _rested(self, rested: bool, steps: int) -> Stop:
        """Why the steps are over."""
        if not rested:
            return Stop(False, f"reached {steps} steps", REMEDY)
        gain = f"{self.method.tolerance:g} of itself, or than its noise,"
        return Stop(True, f"the ELBO gains less than {gain} in {STEPS} of the shortest steps")

    def answer(self, place: Place, trace: Trace, stop: Stop) -> Answer:
        """Parameters, and q given them, with a bound on fresh draws."""
        point, bound, together = place.point, place.bound, self.ground.together
        if bound is None:  # interrupted
            _, point, bound = self._measured(point)
        values = {n: np.asarray(a) for n, a in self.whole.values(point.free).items()}
        return Answer(
            Q(self._family(values), by_rows(self.whole, point.own, point.shared)),
            bound.elbo,
            History(trace.values, trace.seconds, step="window"),
            (Restart(bound.elbo, place.steps, str(stop)),),
            error=bound.error,
            parameters=self.parameters.trees(values),
            notes=(
                *(() if together is None else (f"All rows were taken at once: {together}.",)),
                *bound.notes,
            ),
        )

    def _family(self, values: dict[str, np.ndarray]) -> Variational:
        """The family of q, at the parameters of the program that were found."""
        model, summation = at_values(self.whole.model, values), self.summation
        coordinates = replace(self.whole.coordinates, model=model)
        inner = UnconstrainedGaussian(coordinates, model.arguments.data)
        if summation is None:
            return inner
        known = replace(summation, model=at_values(summation.model, values))
        return Summed(inner, known)

    # -- the plan ---------------------------------------------------------------------------------

    def _plan(self) -> Plan:
        objective, rank = self.whole, self.method.rank
        width, size = objective.own.shape[-1], len(objective.shared)
        own = "full" if full_rank(rank, width, FULL_ROW) else "diagonal"
        shared = "full" if full_rank(rank, size, FULL_SHARED) else "diagonal"
        plan = plan_of_gaussian(objective.model, f"Gaussian ({shared}, d = {size})", ())
        rows = []
        for row in plan.rows:
            if row.scope == "local" and width:
                row = replace(row, family=f"Gaussian ({own}, {width} a row)")
            rows.append(replace(row, update="estimated (stochastic gradients)"))
        plan = replace(plan, method="Variational EM", rows=tuple(rows))
        if self.summation is not None:
            plan = plan_summed(self.problem, self.summation, plan)
        notes = [*notes_of(self.parameters), *random_notes(objective)]
        if width:
            total = objective.rows
            batch = batch_size(objective, objective.work(), self.method.batch_size)
            step = "all rows" if batch == total else f"{batch} of them"
            notes.append(
                f"Each of {total} rows has a Gaussian of its own, optimised without an encoder: "
                f"plainly slower than a trained encoder. A step takes {step}."
            )
        return replace(plan, notes=(*plan.notes, *notes))


class _Asked(Messenger):  # type: ignore[misc]
    """Notes whether a program asks for a random key."""

    asked = False

    def process_message(self, msg: dict[str, Any]) -> None:
        """Note it."""
        self.asked = self.asked or msg["type"] == "prng_key"


def random_notes(objective: Objective) -> list[str]:
    """What the plan says of random numbers that the program draws itself."""
    own, shared = np.zeros(objective.own.shape), np.zeros(objective.shared.shape)
    watch = _Asked()
    with watch:
        jax.eval_shape(objective.log_joint, objective.start(), own, shared, objective.data(), None)
    if not watch.asked:
        return []
    return ["The program asks for a random key (dropout, say): it gets the same one every time."]
