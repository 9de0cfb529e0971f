"""Coordinate ascent with moves between sweeps: a plan for a mixture."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import jax
import numpy as np

from lowerbound.ascent import State
from lowerbound.errors import UngrowingError
from lowerbound.methods.coordinate.begin import assignments
from lowerbound.methods.coordinate.chunks import advance, report_fall
from lowerbound.methods.coordinate.progress import (
    CHUNK,
    CONVERGED,
    FELL,
    RUNNING,
    Progress,
)
from lowerbound.methods.coordinate.sweeping import Sweeping
from lowerbound.methods.growth.growing import ONE, Growing
from lowerbound.methods.growth.partition import HELD, Partition
from lowerbound.methods.growth.proposals import COARSE, KINDS, Standpoint
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.posterior import Move
from lowerbound.run.planned import Trace
from lowerbound.run.problem import Problem
from lowerbound.run.walking import Standing, Walking

QUIET = 2  # rounds without a move, after which no more are tried


@dataclass(frozen=True, eq=False)
class Grown:
    """Where sweeps have led, and the moves on the way."""

    progress: Progress
    moves: tuple[Move, ...] = ()

    @property
    def state(self) -> State:
        """The factors."""
        found: State = jax.tree.map(lambda array: array[0], self.progress.carry.state)
        return found

    def going(self, state: State, elbo: float, more: int, *moves: Move) -> Grown:
        """Some sweeps later, with all reason to go on."""
        old = self.progress.carry
        carry = old._replace(
            state=jax.tree.map(lambda array: array[None], state),
            elbo=np.full(1, elbo),
            status=np.full(1, RUNNING),
            sweeps=np.asarray(old.sweeps) + more,
        )
        return Grown(replace(self.progress, carry=carry), (*self.moves, *moves))


Walked = Generator[Standing[Grown], None, Grown]


class Moving(Walking[Grown]):
    """Sweeps until they hardly help, moves until none helps, and sweeps to the tolerance."""

    unit = "sweep"

    def __init__(self, problem: Problem, method: Growing) -> None:
        self.problem, self.method = problem, method
        self.sweeping = Sweeping(problem, method.method)
        self.refusal, self.total = self.sweeping.refusal, self.sweeping.total
        self.plan = replace(self.sweeping.plan, method=method.name, notes=(_note(method),))
        if self.refusal is None and self.assigned is None:
            raise UngrowingError(method.name)

    @cached_property
    def assigned(self) -> int | None:
        """The block of the assignments, one of every row."""
        return assignments(self.sweeping.engine, self.problem.model)

    @cached_property
    def partition(self) -> Partition:
        """The assignments."""
        assert self.assigned is not None
        return Partition(self.sweeping.engine, self.sweeping.arrays, self.assigned)

    # -- the run ---------------------------------------------------------------------------------

    def walk(self) -> Iterator[Standing[Grown]]:
        """Rounds of moves, with sweeps after each of them."""
        random, quiet = np.random.default_rng(self.problem.seed), 0
        here = yield from self._swept(self._first(), COARSE)
        for _ in range(self.method.rounds):
            before = len(here.moves)
            for kind in KINDS:
                uniforms = random.random((2, self.partition.components))
                while (step := kind(self._stand(here), uniforms)) is not None:
                    here = here.going(step.state, step.elbo, 1, step.move)
                    yield Standing(here, step.elbo)
                    here = yield from self._swept(here, COARSE)
            quiet = 0 if len(here.moves) > before else quiet + 1
            if quiet == QUIET or here.progress.done >= self.total:
                break
        yield from self._ended(here, quiet == QUIET)

    def _first(self) -> Grown:
        """Before the first sweep: as coordinate ascent starts, or all rows in one component."""
        here = Grown(self.sweeping.init())
        if self.method.start != ONE:
            return here
        state, _ = self.partition.tried(here.state, self.partition.together(here.state))
        return here.going(state, -np.inf, 0)

    def _stand(self, here: Grown) -> Standpoint:
        progress = here.progress
        return Standpoint(self.partition, here.state, progress.elbo, progress.done)

    def _swept(self, here: Grown, tolerance: float) -> Walked:
        """Sweeps until the ELBO hardly changes; what has broken stays broken."""
        sweeping, method = self.sweeping, self.method.method
        limit = np.asarray(max(tolerance, method.tolerance), float)
        while here.progress.running and (left := method.max_sweeps - here.progress.done) > 0:
            old = here.progress
            sweeps = advance(sweeping.engine, sweeping.arrays, old.carry.state, 1)
            most = np.asarray(min(left, CHUNK))
            carry, bounds, proper = sweeps(sweeping.arrays, old.carry, most, limit)
            values = np.asarray(bounds)[: int(np.asarray(carry.sweeps)[0]) - old.done]
            if (np.asarray(carry.status) == FELL).any():
                report_fall(sweeping.engine, sweeping.arrays, old.carry, values, old.done)
            here = replace(here, progress=replace(old, carry=carry, proper=proper))
            for value in values[:, 0]:
                yield Standing(here, float(value))
        return here

    def _ended(self, here: Grown, settled: bool) -> Iterator[Standing[Grown]]:
        """The last sweeps, and why there are no more."""
        if here.progress.status[0] == CONVERGED:
            here = here.going(here.state, here.progress.elbo, 0)
        here = yield from self._swept(here, 0.0)
        stop = self.sweeping.stopped(here.progress)
        assert stop is not None
        if stop.converged and not settled:
            stop = Stop(False, f"made {self.method.rounds} rounds of moves", "Raise rounds.")
        yield Standing(here, stop=stop)

    def answer(self, place: Grown, trace: Trace, stop: Stop) -> Answer:
        """The factors, with the moves in the history."""
        found = self.sweeping.finish(
            place.progress, replace(trace, values=trace.values[:, None]), stop
        )
        rows = self.partition.seen(place.state).rows
        used, K = int((rows >= HELD).sum()), len(rows)
        text = f"{used} of {K} components hold rows, after {len(place.moves)} moves"
        text += "; as there are no more, some may be missing" if used == K else ""
        history = replace(found.history, moves=place.moves)
        return replace(found, history=history, notes=(*found.notes, text))


def _note(method: Growing) -> str:
    first = "one component" if method.start == ONE else "all components"
    return f"Components are split, merged and deleted between sweeps, from {first}."
