"""A method bound to a problem: the plan that `explain` prints, and the steps that `fit` takes.

Contract: making one traces and derives, and raises whatever is wrong with the call; nothing is
fitted. `init`, `step` and `finish` are pure in the state; the loop (`run.loop`) owns the bar, the
clock, the history, checkpoints and interruption.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from lowerbound.errors import LowerboundError
from lowerbound.model import Model
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.latent_records import site_records
from lowerbound.result.plan import Plan
from lowerbound.run.problem import Problem

S = TypeVar("S")


@dataclass(frozen=True)
class Info:
    """What a step tells the loop.

    done: units of work since the start. values: the bound after each unit of the history that the
    step has added, (count,) or (count, restarts). text: for the bar. stop: why it is over.
    """

    done: int
    values: np.ndarray
    text: str = ""
    stop: Stop | None = None


@dataclass(frozen=True)
class Trace:
    """The values that all steps told, and the seconds at each."""

    values: np.ndarray = field(default_factory=lambda: np.zeros(0))
    seconds: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def with_values(self, values: np.ndarray, began: float, ended: float) -> Trace:
        """With the values of one more step, evenly spread over its time."""
        if not len(values):
            return self
        seconds = np.linspace(began, ended, len(values) + 1)[1:]
        before = self.values if len(self.values) else np.zeros((0, *values.shape[1:]))
        return Trace(np.concatenate([before, values]), np.concatenate([self.seconds, seconds]))


class Stepped(ABC, Generic[S]):
    """What the loop can run: a start, and steps from there.

    unit, total: what the bar counts, and up to which number. pace: how many units the first step
    may take, and how many any. lockstep: whether other processes must take the same steps.
    """

    unit: str = "step"
    total: int = 1
    pace: tuple[int, int] = (1, 1)
    lockstep: bool = False
    quiet: bool = False  # no bar here: another process has one

    @property
    @abstractmethod
    def title(self) -> str:
        """What the bar calls it."""

    @abstractmethod
    def init(self) -> S:
        """Where the run starts."""

    @abstractmethod
    def step(self, state: S, until: int) -> tuple[S, Info]:
        """Work on, up to the unit `until` or less."""

    def document(self, state: S) -> dict[str, Any]:
        """A state as arrays and plain values, for a checkpoint; of methods that have these."""
        raise NotImplementedError(f"{self.title} keeps no checkpoints, and must not declare them.")

    def restored(self, document: Mapping[str, Any]) -> S:
        """The state that `document` describes."""
        raise NotImplementedError(f"{self.title} keeps no checkpoints, and must not declare them.")


class Planned(Stepped[S]):
    """A method's plan for a problem, ready to be carried out.

    refusal: raised when the plan is carried out, for what `explain` shows rather than raises.
    """

    problem: Problem
    plan: Plan
    refusal: LowerboundError | None = None

    @property
    def title(self) -> str:
        """The name of the method."""
        return self.plan.method

    @property
    def program(self) -> Model:
        """The traced program that is fitted, as checkpoints know it again."""
        return self.problem.program

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """What a fit keeps of each latent site of q."""
        return site_records(self.problem.program)

    @abstractmethod
    def finish(self, state: S, trace: Trace, stop: Stop) -> Answer:
        """The answer; checks that it is one."""
