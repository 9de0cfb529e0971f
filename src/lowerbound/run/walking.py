"""Plans whose steps are told by a generator: for algorithms of several phases, without checkpoints.

A generator is `init`, `step` and `finish` in the order in which one reads them: it yields where it
stands after every unit of work, and the loop decides whether to go on. What is interrupted between
two units is answered from the last standing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from lowerbound.result.answer import Answer, Stop
from lowerbound.run.planned import Info, Planned, Trace

A = TypeVar("A")
B = TypeVar("B")
At = TypeVar("At", covariant=True)
P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class Standing(Generic[At]):
    """Where a walk is: its place, the bound there (NaN where it is not known), why it is over."""

    place: At
    elbo: float = np.nan
    stop: Stop | None = None


@dataclass(eq=False)
class Walk(Generic[P]):
    """A walk under way."""

    ahead: Iterator[Standing[P]]
    done: int = 0
    latest: Standing[P] | None = None

    def on(self, until: int) -> Info:
        """Walk on, up to the unit `until` or to the end."""
        values = []
        while self.done < until:
            self.latest = next(self.ahead)
            self.done += 1
            if not np.isnan(self.latest.elbo):
                values.append(self.latest.elbo)
            if self.latest.stop is not None:
                break
        assert self.latest is not None
        text = f"ELBO {values[-1]:.6g}" if values else ""
        return Info(self.done, np.asarray(values, float), text, self.latest.stop)


class Walking(Planned[Walk[P]]):
    """A plan that a generator carries out; its last standing has a stop."""

    @abstractmethod
    def walk(self) -> Iterator[Standing[P]]:
        """Where the run stands after every unit of work."""

    @abstractmethod
    def answer(self, place: P, trace: Trace, stop: Stop) -> Answer:
        """The answer at a place."""

    def init(self) -> Walk[P]:
        """Before the first unit."""
        return Walk(self.walk())

    def step(self, state: Walk[P], until: int) -> tuple[Walk[P], Info]:
        """Some units of work."""
        return state, state.on(until)

    def finish(self, state: Walk[P], trace: Trace, stop: Stop) -> Answer:
        """The answer where the walk stands."""
        assert state.latest is not None
        return self.answer(state.latest.place, trace, stop)


# --------------------------------------------------------------------------------------------------
# Phases: generators that a walk goes through; they yield after every unit, and return an outcome


class Phase(Generic[A, R]):
    """A phase that a loop goes through: after its last unit, `outcome` is what it returned."""

    outcome: R

    def __init__(self, units: Generator[A, None, R]) -> None:
        self.units = units

    def __iter__(self) -> Iterator[A]:
        self.outcome = yield from self.units


def told(units: Generator[A, None, R], standing: Callable[[A], B]) -> Generator[B, None, R]:
    """A phase that yields what it has, told otherwise: as standings."""
    phase = Phase(units)
    yield from map(standing, phase)
    return phase.outcome


def ended(units: Generator[Any, None, R]) -> R:
    """What a phase returns, gone through at one go."""
    phase = Phase(units)
    for _ in phase:
        pass
    return phase.outcome
