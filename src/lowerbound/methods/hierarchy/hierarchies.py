"""A hierarchy planned for a problem: its predictors, the climb, the points, and q."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from scipy.special import ndtri

from lowerbound.cost import Stopwatch, allowance
from lowerbound.errors import (
    BoundReachedError,
    IllConditionedError,
    LowerboundError,
    NoFiniteStartError,
    NoPredictorsError,
    PoorIntegralError,
    UnknownSiteError,
)
from lowerbound.family.numerics.smoothed import low_discrepancy
from lowerbound.family.q import Q
from lowerbound.methods.hierarchy.bounds_kept import sites_at_bounds
from lowerbound.methods.hierarchy.by_chains.chained_theta import (
    Chained,
    can_be_chained,
    chained,
)
from lowerbound.methods.hierarchy.finding_theta import MOST as MOST_OVER_POINTS
from lowerbound.methods.hierarchy.finding_theta import predictors_of
from lowerbound.methods.hierarchy.inner.given_hyperparameters import GivenHyperparameters
from lowerbound.methods.hierarchy.inner.parabolas import AnySurface, surface_of
from lowerbound.methods.hierarchy.integrated_value import Integrated
from lowerbound.methods.hierarchy.missed.remainders import with_remainders
from lowerbound.methods.hierarchy.places_of_theta import at_scores
from lowerbound.methods.hierarchy.points.integral import Integral
from lowerbound.methods.hierarchy.points.integration import MOST, PLENTY, integrate
from lowerbound.methods.hierarchy.points.kept_points import integrated
from lowerbound.methods.hierarchy.points.weighed_draws import Weighed, stays, weighed
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.hierarchy.summits.uphill import Evaluated, climb
from lowerbound.methods.hierarchy.surface import Solved
from lowerbound.methods.hierarchy.without_funnels import told_by_data, with_map
from lowerbound.methods.hierarchy.without_hyperparameters import WithoutHyperparameters
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.plan import Plan, Row, outline
from lowerbound.result.posterior import History, Restart
from lowerbound.run.check_input import check_observed_variance
from lowerbound.run.planned import Planned, Trace
from lowerbound.run.problem import Problem
from lowerbound.run.walking import Standing, Walking, ended, told

MOVING = 32  # points at least, where the meaning of z moves with theta, as if it is not centred
HOPELESS, WORST = 1.0, 0.2  # of an sd: the error of an estimate at the start, and in the end
ROUGH = 0.05  # of an sd: an estimate no worse is as good as integrated numerically
UNEVEN = 1.0  # nats: laws between points that are missed by more are compared with the posterior
CLOSER = 96  # of several hyperparameters, where a solve costs next to nothing
CHEAP = 3_000  # predictors and numbers of z
SEVERAL = 6  # hyperparameters that multiply z, for points
SPREAD = 4  # starts besides the first, from which other summits are looked for
FEW = 20  # numbers of all sites
FARTHEST = 6.0  # sds of a hyperparameter, up to which tails are looked at
FEW_POINTS = 9  # solves for each hyperparameter after its climb, with which few get by
LOOKS = 2  # at what the data say of hyperparameters around others


def predictors_for(
    problem: Problem, sites: Sequence[str] = (), most: int = MOST_OVER_POINTS
) -> Predictors:
    """The predictors of a problem's program, with theta of so many numbers, found once."""
    names = tuple(sites)
    key = ("predictors", names, most)
    return problem.once(key, lambda: predictors_of(problem.model, names, most))


def surface_for(problem: Problem, predictors: Predictors) -> AnySurface:
    """L(t) of a problem, its pattern found once; raises TooDenseError."""
    key = ("given hyperparameters", predictors.theta)
    return problem.once(key, lambda: surface_of(predictors))


def planned_hierarchy(problem: Problem, method: Integrated) -> Planned[Any]:
    """The plan; raises where the program is no hierarchy."""
    model = problem.model
    for name in method.sites or ():
        if name not in model.latent:
            raise UnknownSiteError("Integrated got", name, tuple(model.latent))
    check_observed_variance(model)
    with jax.enable_x64(True):
        found = predictors_for(problem, tuple(method.sites or ()))
        if found.theta:
            return Hierarchy(problem, method)
        if not found.all_real:
            raise NoPredictorsError("no site sets a scale or a shape")
        return WithoutHyperparameters(problem, surface_for(problem, found))


@dataclass(frozen=True, eq=False)
class Found:
    """Where an integration stands. bound: of the integral as it was before it was corrected."""

    surface: AnySurface
    integral: Integral
    bound: float | None = None


Reached = Found | Weighed | Chained


@dataclass(eq=False)
class _Pace:
    """How long the solves of a climb take, over `size` hyperparameters."""

    size: int
    watch: Stopwatch = field(default_factory=lambda: Stopwatch())
    first: float = 0.0  # seconds of the first, which compiles

    def foreseen(self, evaluations: int) -> float:
        """Seconds of what is to come, where even little of it outlasts the fit; else 0.

        The first climb has looked at the curvature by then: all that come are like these.
        """
        if evaluations <= 1:
            self.first = self.watch.own_seconds
        if evaluations <= self.size + 1:
            return 0.0
        each = (self.watch.own_seconds - self.first) / (evaluations - 1)
        longer = FEW_POINTS * self.size * each
        return longer if longer > allowance().left else 0.0


class Hierarchy(Walking[Reached]):
    """A climb over the hyperparameters, then points around the summit, more and more of them."""

    unit, total = "round", 10

    def __init__(self, problem: Problem, method: Integrated) -> None:
        self.problem, self.method = problem, method
        with jax.enable_x64(True):
            self.predictors = predictors_for(problem, tuple(method.sites or ()))
            self.plan = self._plan()

    @cached_property
    def surface(self) -> AnySurface:
        """L(t), with the pattern of the precision of z."""
        return surface_for(self.problem, self.predictors)

    @property
    def fewest(self) -> int:
        """Points that are needed so that z, which is known at these, is known between them."""
        one = self.predictors
        if one.is_fixed:
            return 0
        return CLOSER if one.dimension > 1 and self.is_cheap else MOVING

    @property
    def is_cheap(self) -> bool:
        """Whether a solve costs next to nothing."""
        return self.predictors.count + self.predictors.size <= CHEAP

    @property
    def is_few(self) -> bool:
        """Whether all numbers are few: draws of other laws then see what lies beside q."""
        return self.predictors.dimension + self.predictors.size <= FEW

    def walk(self) -> Iterator[Standing[Reached]]:
        """Rounds of points, until they say the same; draws or chains where they do not."""
        if self.chained_at_once:
            yield from self._by_chains()
            return
        found = yield from self._over_points()
        if found.stop is not None:
            return
        drawn = yield from self._by_draws(found)
        if not drawn:
            yield from self._by_chains()

    @cached_property
    def chained_at_once(self) -> bool:
        """Whether theta is too many numbers for points, or several that multiply z.

        Entries of matrices bend with the scales beside them, as scales alone do not, nor the
        correlations of effects, in whichever way these are written.
        """
        one = self.predictors
        if one.dimension > MOST_OVER_POINTS:
            return True
        several = one.dimension > SEVERAL and not one.is_fixed and self.is_cheap
        entries = any(map(one.is_real, one.theta))
        return several and entries and self._may_be_chained

    @property
    def _may_be_chained(self) -> bool:
        told = self.predictors.relative is not None  # chains go over theta itself
        return self.method.points is None and not told and can_be_chained(self.surface)

    def _by_draws(self, found: Standing[Found]) -> Generator[Standing[Reached], None, bool]:
        """Draws of the density through points, where their weights are good; whether they are."""
        draws = weighed(self.surface, found.place.integral, self.problem.seed)
        drawn = yield from told(draws, lambda _: replace(found, elbo=np.nan))
        if drawn is None:
            return False
        yield Standing(drawn, drawn.log_evidence, drawn.stop)
        return True

    def _by_chains(self) -> Iterator[Standing[Reached]]:
        """Chains over theta, until they agree."""
        one, seed = self.predictors, self.problem.seed
        try:
            for here in chained(self.surface, one, self._starts(), seed, self.method.code):
                flaw = here.place.mixed.flaw
                if here.stop is not None and flaw and not allowance().over:
                    raise PoorIntegralError(one.theta, f"{here.place.mixed}, and {flaw}")
                yield here
        except (IllConditionedError, NoFiniteStartError) as error:
            raise self._poor(error) from error

    def _over_points(self) -> Generator[Standing[Reached], None, Standing[Found]]:
        """Rounds of points; the last standing has no stop where chains are to go on."""
        last: Integral | None = None
        points, fewest = self.method.points, self.fewest
        surface, (start, *others) = self._suited()
        if not surface.pattern.is_exact:
            try:
                self._check(surface(start, (), False), HOPELESS)
            except IllConditionedError as error:
                raise self._poor(error) from error
        rounds = integrate(
            surface,
            start,
            points=points,
            fewest=fewest,
            most=PLENTY if self.is_cheap else MOST,
            others=others,
            farthest=FARTHEST if self.is_cheap else 0.0,
        )
        pace = _Pace(len(start))
        while True:
            try:
                progress = next(rounds)
            except StopIteration as end:
                integral: Integral = end.value
                break
            except (IllConditionedError, NoFiniteStartError) as error:
                raise self._poor(error) from error
            if progress.integral is not None and progress.integral is not last:
                last = progress.integral
                if reached := sites_at_bounds(self.predictors, last):
                    raise BoundReachedError(reached)
                yield Standing(Found(surface, last), last.log_evidence)
            if last is None and points is None and (longer := pace.foreseen(progress.evaluations)):
                left = allowance().left
                reason = f"it would take {longer:,.0f} s, where {left:,.0f} s are left"
                raise PoorIntegralError(self.predictors.theta, reason)
            if allowance().over:
                if last is None:
                    raise PoorIntegralError(self.predictors.theta, f"it took {allowance().reason}")
                integral = last
                break
        self._check(max(integral.solved, key=lambda one: one.value, default=None), WORST)
        lost = integral.is_lost
        if not lost and integral.missed and self.is_few:
            looks = stays(surface, integral, self.problem.seed)
            stayed = yield from told(looks, lambda _: Standing(Found(surface, integral)))
            lost = not stayed
        if not integral.enough and (self.is_cheap or lost) and self._may_be_chained:
            return Standing(Found(self.surface, integral), integral.log_evidence)
        if lost and not self.method.points:
            raise PoorIntegralError(self.predictors.theta, str(integral))
        bound, stop = integral.log_evidence, self._stop(integral)
        if self.is_cheap and isinstance(surface, GivenHyperparameters):
            integral = with_remainders(surface, integral)
        done = Standing(Found(surface, integral, bound), bound, stop)
        yield done
        return done

    def _poor(self, error: LowerboundError) -> PoorIntegralError:
        return PoorIntegralError(self.predictors.theta, str(error).splitlines()[0].rstrip("."))

    def _check(self, solved: Solved | None, most: float) -> None:
        """Raise where sds are estimated, and no better than to nothing at all."""
        if solved is None or self.surface.pattern.is_exact:
            return
        off = 0.5 * self.surface.variance_error(solved)
        if not off < most:
            what = f"the sds of {', '.join(self.predictors.z)} given these are estimated to "
            why = "for too many effects meet each other, and lean on each other too much"
            raise PoorIntegralError(self.predictors.theta, f"{what}{100 * off:.0f}% only, {why}")

    def answer(self, place: Reached, trace: Trace, stop: Stop) -> Answer:
        """The mixture over the points, or draws."""
        if not isinstance(place, Found):
            return place.answer(trace, stop, self.problem.seed)
        integral, one = place.integral, place.surface.predictors
        elbo = integral.log_evidence if place.bound is None else place.bound
        history = History(trace.values, trace.seconds, step="round")
        restarts = (Restart(elbo, len(trace.values), str(stop)),)
        surface = place.surface
        family, parameters, missed = integrated(
            one.coordinates, one.theta, integral, surface.pattern, surface.precision, one
        )
        exact = stop.converged and one.is_quadratic and missed < UNEVEN
        notes: tuple[str, ...] = ()
        if integral.log_evidence != elbo:
            notes = (
                f"Given {', '.join(one.theta)} the others are not quite Gaussian: means, sds and "
                "the density of these are corrected for it. The log evidence is about "
                f"{integral.log_evidence:.2f}.",
            )
        if not surface.pattern.is_exact:
            best = max(integral.solved, key=lambda solved: solved.value)
            off = 0.5 * surface.variance_error(best)
            exact = exact and off < ROUGH
            notes = (f"The sds of {', '.join(one.z)} are estimates, to about {100 * off:.2g}%.",)
        q, known = Q(family, parameters), integral.error
        return Answer(q, elbo, history, restarts, error=known, exact=exact, notes=notes)

    def _stop(self, integral: Integral) -> Stop:
        if integral.enough:
            return Stop(True, str(integral))
        remedy = (
            f"Means and sds rest on too few values of {', '.join(self.predictors.theta)}: more "
            f"come with lb.Integrated(points={2 * integral.points})."
        )
        reason = allowance().reason if allowance().over else str(integral)
        return Stop(False, reason, remedy)

    def _suited(self) -> tuple[AnySurface, list[np.ndarray]]:
        """The surface in coordinates without funnels, and where to start.

        What the data say of numbers is seen at the summit in coordinates that do not regard it, and
        again, nearer to the mass, in those that do.
        """
        surface, starts, relative = self.surface, self._starts(), self.predictors.relative
        if relative is None:
            return surface, starts
        starts = [relative.inward(start) for start in starts]
        for _ in range(LOOKS):
            try:
                summit = ended(climb(Evaluated(surface), starts[0]))
            except (IllConditionedError, NoFiniteStartError) as error:
                raise self._poor(error) from error
            told = told_by_data(summit, relative)
            starts = [told.inward(relative.outward(one)) for one in (summit.top.t, *starts[1:])]
            surface, relative = replace(surface, predictors=with_map(self.predictors, told)), told
        return surface, starts

    def _starts(self) -> list[np.ndarray]:
        """Theta at the medians of its priors, and spread over these where solves are cheap."""
        places = ndtri(low_discrepancy(8, self.predictors.dimension, 4)[:SPREAD])
        scores = np.vstack([np.zeros(self.predictors.dimension), places])
        starts = at_scores(self.problem, self.predictors, scores)
        starts = starts[: 1 + (SPREAD if self.is_cheap else 0)]
        starts[0] = np.where(np.isfinite(starts[0]), starts[0], 0.0)
        return [start for start in starts if np.isfinite(start).all()]

    def _plan(self) -> Plan:
        one, model = self.predictors, self.problem.model
        names = ", ".join(one.theta)
        known = "exact" if self.surface.pattern.is_exact else "exact mean, estimated sds"
        how = known if one.is_quadratic else "best Gaussian (quadrature)"
        rows = []
        for name, site in model.latent.items():
            if name in one.theta:
                how_known = "draws of chains" if self.chained_at_once else "free-form, over points"
                law, update, what = how_known, "integrated", f"functions of {name}"
            else:
                law, update, what = "Gaussian, sparse precision", f"{how}, given {names}", "all"
                if name in one.straight:
                    law = "Gaussian within its bounds"
                elif not one.is_real(name):
                    law = "Gaussian on the unconstrained space"
            rows.append(Row(name, site.shape, "global", law, update, names, what, site.where))
        plan = outline(model, f"Integrated over {names}", rows)
        if self.is_cheap and not self.chained_at_once and self._may_be_chained:
            note = f"Where points of {names} do not foretell each other, draws or chains go on."
            plan = replace(plan, notes=(*plan.notes, note))
        if self.surface.pattern.is_exact:
            return plan
        note = f"Of {one.size:,} numbers given {names}: {self.surface.pattern}, whose error is in "
        note += "fit.elbo_error."
        return replace(plan, notes=(*plan.notes, note))
