"""Coordinate ascent (alg:cavi) on a problem: start, sweep in chunks, and say what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from lowerbound.ascent import State
from lowerbound.compute.engine import Arrays, Engine, engine_for
from lowerbound.compute.spread import check_rows_apart, spread_rows
from lowerbound.errors import (
    ImproperFactorError,
    InfiniteBoundError,
    NotConjugateError,
    UncertifiedError,
)
from lowerbound.family.q import Q
from lowerbound.joint import inputs_of
from lowerbound.joint.terms.impossible import is_impossible
from lowerbound.methods.coordinate.begin import (
    assignments,
    check_components,
    check_partition,
    given_values,
)
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.methods.coordinate.chunks import advance, report_fall, taken
from lowerbound.methods.coordinate.origin import (
    far_from_zero,
    find_origins,
    moved_back,
    with_origins,
)
from lowerbound.methods.coordinate.possible_data import check_possible
from lowerbound.methods.coordinate.progress import (
    CHUNK,
    CONVERGED,
    FELL,
    NOT_FINITE,
    RUNNING,
    Progress,
    next_check,
)
from lowerbound.methods.coordinate.start import Chance, chances, start, start_kinds
from lowerbound.model import Model
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.plan import make_plan
from lowerbound.result.posterior import History, Restart
from lowerbound.result.unseen.held_out import given_rows, scorer
from lowerbound.run.check_input import check_observed_variance
from lowerbound.run.planned import Info, Planned, Trace
from lowerbound.run.problem import Problem

ALIKE, BELOW = 0.1, 10.0  # nats between fixed points that are one, and to those that may count
MOST, MOST_KEPT = 4, 100_000  # other fixed points that are kept, and numbers of all restarts


class Sweeping(Planned[Progress]):
    """Sweeps over the factors of a model until every restart has a reason to stop."""

    unit = "sweep"

    def __init__(self, problem: Problem, method: CAVI) -> None:
        self.problem, self.method = problem, method
        model = problem.model
        check_partition(method, model)
        given_values(model, method)
        check_observed_variance(model)
        joint = problem.derived(method.blocks)
        self.plan = make_plan(model, joint)
        if joint.structure.residuals:
            self.refusal = NotConjugateError(joint.structure.residuals)
        self.where = problem.computing.placement()
        self.total, self.pace = method.max_sweeps, (8, CHUNK)
        if self.where is not None:
            self.quiet, self.lockstep = self.where.process != 0, self.where.processes > 1

    # -- what the sweeps need ---------------------------------------------------------------------

    @cached_property
    def origins(self) -> dict[str, np.ndarray]:
        """The points from which Gaussian sites are measured, where data are far from zero."""
        model = self.problem.model
        if not far_from_zero(model.arguments.data, self.dtype):
            return {}
        return find_origins(model, self.method.blocks, spread_rows(model, self.where))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of the factors."""
        return self.problem.computing.dtype(self.where)

    @cached_property
    def engine(self) -> Engine:
        """The derived model, compiled on first use."""
        model = self.problem.model
        spread = spread_rows(model, self.where)
        engine = engine_for(
            model, self.dtype, self.method.blocks, origins=self.origins, spread=spread
        )
        if self.where is not None:
            check_rows_apart(model, engine.joint)
        return engine

    @cached_property
    def arrays(self) -> Arrays:
        """The data as the sweeps take them."""
        return self.engine.prepare(with_origins(inputs_of(self.problem.model), self.origins))

    @cached_property
    def start(self) -> Start:
        """How the restarts begin."""
        model, origins = self.problem.model, self.origins
        seeded = assignments(self.engine, model)
        check_components(self.engine, model, seeded)
        given = given_values(model, self.method)
        return Start.of(self.method, {n: v - origins.get(n, 0) for n, v in given.items()}, seeded)

    @cached_property
    def score(self) -> Callable[[State], float] | None:
        """The held-out log predictive of a state, which decides convergence where it is given."""
        if self.method.monitor is None:
            return None
        rows = given_rows(self.problem.model, self.method.monitor)
        held_out, where = scorer(rows, self.engine.family, self.problem.seed), self.where

        def score(state: State) -> float:
            value = held_out(moved_back(self.engine.family, state, self.origins))
            # Processes that round differently must still stop together.
            return value if where is None else float(where.agree(value)[0])

        return score

    # -- the run ----------------------------------------------------------------------------------

    def init(self) -> Progress:
        """The starting states of all restarts."""
        states = self.start.states(self.engine, self.arrays, self.problem.seed)
        return Progress.first(states, self.method.restarts)

    def step(self, state: Progress, until: int) -> tuple[Progress, Info]:
        """A chunk of sweeps; where it ends changes no number."""
        method, limit = self.method, self.method.max_sweeps
        end = min(until, limit, state.check if self.score else limit)
        restarts = method.restarts
        sweeps = advance(self.engine, self.arrays, state.carry.state, restarts)
        tolerance = 0.0 if self.score else method.tolerance
        carry, bounds, proper = sweeps(
            self.arrays, state.carry, np.asarray(end - state.done), np.asarray(tolerance, float)
        )
        values = np.asarray(bounds)
        values = values[: int((~np.isnan(values)).any(axis=1).sum())]
        if (np.asarray(carry.status) == FELL).any():
            report_fall(self.engine, self.arrays, state.carry, values, state.done)
        new = replace(state, carry=carry, proper=proper)
        if self.score and new.done == min(new.check, limit) and new.running:
            new = self._scored(new)
        text = f"ELBO {new.elbo:.6g}"
        return new, Info(new.done, values, text, self.stopped(new))

    def _scored(self, old: Progress) -> Progress:
        """With the score of the best restart, which stops all when it has settled."""
        carry, tolerance = old.carry, self.method.tolerance
        leader = int(np.argmax(np.asarray(carry.elbo)))
        assert self.score is not None
        scores = np.append(old.scores, self.score(taken(carry.state, leader)))
        if len(scores) > 1 and tolerance > 0:
            moved = abs(scores[-1] - scores[-2])
            if moved <= tolerance * max(abs(scores[-1]), 1e-12):
                status = np.asarray(carry.status)
                carry = carry._replace(status=np.where(status == RUNNING, CONVERGED, status))
        return replace(old, carry=carry, scores=scores, check=next_check(old.done))

    def stopped(self, state: Progress) -> Stop | None:
        """Why the run is over: what holds of the best restart, once none is running."""
        method = self.method
        if state.running and state.done < method.max_sweeps:
            return None
        if state.status[state.best] == RUNNING:
            return at_the_limit(method)
        return self._reason(state, state.best)

    def _reason(self, state: Progress, number: int, stop: Stop | None = None) -> Stop:
        """Why one restart stopped; `stop` ended those that were running."""
        code, sweep = state.status[number], int(np.asarray(state.carry.sweeps)[number])
        if code == CONVERGED:
            what, change = "ELBO", float(np.asarray(state.carry.change)[number])
            if len(state.scores):
                what = "held-out log predictive"
                last, before = state.scores[-1], state.scores[-2]
                change = abs(last - before) / max(abs(last), 1e-12)
            return Stop(
                True,
                f"relative change {max(change, 0.0):.1e} of the {what} in sweep {sweep} is within "
                f"the tolerance {self.method.tolerance:g}",
            )
        found = broken(code, sweep) or stop
        assert found is not None
        return found

    def finish(self, state: Progress, trace: Trace, stop: Stop) -> Answer:
        """The factors of the best restart, which must be proper densities."""
        engine, best = self.engine, state.best
        found, elbos = taken(state.carry.state, best), np.asarray(state.carry.elbo)
        try:
            engine.certified()
        except UncertifiedError as error:
            check_possible(self.problem.model, error.sites)
            raise
        if is_impossible(float(elbos[best])):
            check_possible(self.problem.model)
        sweeps = np.asarray(state.carry.sweeps)
        proper = np.asarray(state.proper)[best]
        check_factors(engine, found, proper)
        check_bound(float(elbos[best]), len(elbos), int(sweeps[best]))
        found = self._own(found)
        kinds = self.start.kinds(engine)
        own = replace(trace, values=trace.values[:, best])
        history = history_of(self.problem.model, own, 0, sweeps[best])
        return Answer(
            Q(engine.family, found.naturals),
            float(elbos[best]),
            replace(history, held_out=state.scores, starts=np.asarray(trace.values)),
            tuple(
                Restart(float(elbo), int(sweeps[n]), str(self._reason(state, n, stop)), kinds[n])
                for n, elbo in enumerate(elbos)
            ),
            str(engine.dtype),
            blocks=self.method.blocks,
            exact=stop.converged and engine.joint.structure.is_posterior,
            others=tuple(self._others(state)),
        )

    def _own(self, found: State) -> State:
        """A state in the sites' own coordinates, in double precision."""
        if self.origins or self.dtype == np.float32:
            return moved_back(self.engine.family, found, self.origins)
        return found

    def _others(self, state: Progress) -> Iterator[tuple[float, Any]]:
        """The factors of other fixed points of small models, and how far these are below."""
        elbos = np.asarray(state.carry.elbo)
        gaps, known = elbos[state.best] - elbos, [0.0]
        numbers = sum(a.size for a in jax.tree.leaves(state.carry.state.naturals))
        if numbers > MOST_KEPT:
            return
        for n in np.argsort(gaps):
            new = min(abs(gaps[n] - gap) for gap in known) > ALIKE
            if state.status[n] == CONVERGED and new and gaps[n] < BELOW and len(known) <= MOST:
                known.append(float(gaps[n]))
                yield known[-1], self._own(taken(state.carry.state, int(n))).naturals

    def document(self, state: Progress) -> dict[str, Any]:
        """A state as arrays and plain values."""
        return state.document()

    def restored(self, document: Mapping[str, Any]) -> Progress:
        """The state that a checkpoint holds."""
        return Progress.restored(document, like=self.init())


@dataclass(frozen=True, eq=False)
class Start:
    """How restarts begin: in which way, from which values, and with which seeded block."""

    restarts: int
    how: str
    given: dict[str, Any]
    seeded: int | None

    @classmethod
    def of(cls, method: CAVI, given: dict[str, Any], seeded: int | None) -> Start:
        """As a method has it, from `given` values of sites."""
        how = method.init if isinstance(method.init, str) else "auto"
        return cls(method.restarts, how, given, seeded)

    def kinds(self, engine: Engine) -> list[str]:
        """How each restart begins, in words."""
        return list(start_kinds(engine, self.how, self.given, self.restarts, self.seeded))

    def states(self, engine: Engine, arrays: Arrays, seed: int) -> State:
        """Starting states of all restarts, compiled together."""
        restarts, how, seeded = self.restarts, self.how, self.seeded
        key = ("start", restarts, how, tuple(sorted(self.given)), seeded)
        chance = chances(engine, seed, restarts, how, seeded, self.kinds(engine))
        if key not in engine.compiled:

            def every(arrays: Arrays, chance: Chance, given: Mapping[str, Any]) -> State:
                if restarts == 1:
                    single = jax.tree.map(lambda a: a[0], chance)
                    one = start(engine, arrays, single, how, given, seeded)
                    first: State = jax.tree.map(lambda a: a[None], one)
                    return first
                each: State = jax.vmap(lambda c: start(engine, arrays, c, how, given, seeded))(
                    chance
                )
                return each

            engine.compiled[key] = engine.once(every, arrays, chance, self.given)
            # The sweeps compile at the same time, from the shapes of the states alone.
            advance(engine, arrays, engine.compiled[key].shapes, restarts)
        states: State = engine.compiled[key](arrays, chance, self.given)
        return states


def at_the_limit(method: CAVI) -> Stop:
    """All sweeps have been taken."""
    remedy = "Raise max_sweeps, or loosen tolerance." if method.tolerance > 0 else ""
    return Stop(False, f"reached max_sweeps={method.max_sweeps}", remedy)


def broken(code: int, sweep: int) -> Stop | None:
    """Why a restart of some status cannot go on; None where it can."""
    if code == FELL:
        return Stop(False, f"the ELBO fell in sweep {sweep}")
    if code == NOT_FINITE:
        return Stop(False, f"the ELBO is not finite in sweep {sweep}")
    return None


def history_of(model: Model, trace: Trace, first: int, count: int) -> History:
    """The history of some sweeps of a trace, with the rows that they have worked through."""
    own = slice(first, first + count)
    plate = model.data_plate
    worked = (plate.size if plate is not None else 0) * np.arange(1, count + 1)
    return History(trace.values[own], trace.seconds[own], rows=worked)


def is_flat(natural: Any) -> bool:
    """Whether a Gaussian that was widened step by step has run off along some direction.

    Its precision, with units taken out, is then singular to rounding.
    """
    precision = -2.0 * np.asarray(natural, float)
    scale = 1.0 / np.sqrt(np.diagonal(precision, axis1=-2, axis2=-1))
    correlations = precision * scale[..., :, None] * scale[..., None, :]
    return bool((np.linalg.eigvalsh(correlations)[..., 0] < 1e-12).any())


def check_factors(engine: Engine, state: State, proper: np.ndarray) -> None:
    """Every factor must be a proper density; name the site whose factor is not."""
    curved = {number for summand in engine.joint.summands for number in summand.curved}
    for block, fine in zip(engine.joint.blocks, proper, strict=True):
        natural = state.naturals[block.number]
        if not all(np.isfinite(array).all() for array in jax.tree.leaves(natural)):
            break  # no statement about the posterior: the search has failed
        if not fine or (block.number in curved and "xx" in natural and is_flat(natural["xx"])):
            leaves = jax.tree.leaves(natural)
            rounded = any(np.asarray(array).dtype == np.float32 for array in leaves)
            raise ImproperFactorError(block.sites, rounded)


def check_bound(elbo: float, starts: int, sweep: int) -> None:
    """A bound that is not finite is no answer."""
    if np.isfinite(elbo) and not is_impossible(elbo):
        return
    raise InfiniteBoundError("-inf" if is_impossible(elbo) else str(elbo), starts, sweep)
