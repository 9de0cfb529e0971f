"""How long work may go on: an automatic fit stops, and says so, rather than run for ever."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from lowerbound.cost.stopwatch import Stopwatch

AFFORDABLE: Final = 150.0  # seconds of an automatic fit on the rungs that estimate


@dataclass(frozen=True)
class Allowance:
    """Seconds that some work may take of its own: what neighbours take is not counted."""

    seconds: float = math.inf
    watch: Stopwatch = field(default_factory=Stopwatch, compare=False)
    uncounted: float = 0.0  # of the watch, at first
    before: float = 0.0  # of the seconds, that other work had taken when this began

    @property
    def spent(self) -> float:
        """The share of what there was for this work: 1 and more when it is to stop."""
        taken = self.watch.own_seconds - self.uncounted - self.before
        return taken / (self.seconds - self.before)

    @property
    def left(self) -> float:
        """The seconds that are left, none below zero."""
        return max(self.seconds + self.uncounted - self.watch.own_seconds, 0.0)

    @property
    def over(self) -> bool:
        """Whether the work is to stop."""
        return self.spent >= 1.0

    @property
    def reason(self) -> str:
        """Why the work stopped."""
        return f"the {self.seconds:.3g} s that an automatic fit may take"

    def remedy(self, code: str) -> str:
        """What to do to let the work go on: name the method, as a user writes it."""
        return f"Name the method, method={code}, and it takes as long as it needs."


_now: ContextVar[Allowance] = ContextVar("allowance", default=Allowance())  # noqa: B039


def allowance() -> Allowance:
    """What the work at hand may take; without a limit unless one was set."""
    return _now.get()


@contextmanager
def at_most(
    seconds: float, watch: Stopwatch | None = None, uncounted: float = 0.0
) -> Iterator[None]:
    """Let the work inside stop after so many seconds, or sooner where it had fewer left.

    They count from now, or by the watch of the work but for its first, `uncounted` seconds.
    """
    watch = watch or Stopwatch()
    before = min(max(watch.own_seconds - uncounted, 0.0), 0.99 * seconds)
    outer, own = allowance(), Allowance(seconds, watch, uncounted, before)
    token = _now.set(outer if outer.left < own.left else own)
    try:
        yield
    finally:
        _now.reset(token)
