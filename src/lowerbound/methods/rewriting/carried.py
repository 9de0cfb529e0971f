"""A plan of a rewritten problem, whose answer is carried back to the problem as it was given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lowerbound.model import Model
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.plan import Plan
from lowerbound.run.planned import Info, Planned, Trace
from lowerbound.run.problem import Problem


class Carried(Planned[Any]):
    """The steps of another plan; `back` makes its answer one of this problem."""

    def __init__(
        self,
        problem: Problem,
        inner: Planned[Any],
        plan: Plan,
        back: Callable[[Answer], Answer],
        records: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        self.problem, self.inner, self.plan, self.back = problem, inner, plan, back
        self.refusal, self.unit, self.total = inner.refusal, inner.unit, inner.total
        self.pace, self.lockstep, self.quiet = inner.pace, inner.lockstep, inner.quiet
        self.kept = records

    @property
    def program(self) -> Model:
        """The rewritten program."""
        return self.inner.program

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """What a fit keeps of each site: all of the problem's, unless they were given."""
        return super().records if self.kept is None else dict(self.kept)

    def init(self) -> Any:
        """Where the rewritten problem starts."""
        return self.inner.init()

    def step(self, state: Any, until: int) -> tuple[Any, Info]:
        """A step of the rewritten problem."""
        return self.inner.step(state, until)

    def finish(self, state: Any, trace: Trace, stop: Stop) -> Answer:
        """The answer, carried back."""
        return self.back(self.inner.finish(state, trace, stop))

    def document(self, state: Any) -> dict[str, Any]:
        """A state of the rewritten problem."""
        return self.inner.document(state)

    def restored(self, document: Mapping[str, Any]) -> Any:
        """A state of the rewritten problem."""
        return self.inner.restored(document)
