"""How long something has taken, by the clock and without the time that others had the machine."""

from __future__ import annotations

import time
from typing import Final

import jax

BUSIEST: Final = 4.0  # times the clock may run ahead of the work, before it counts


class Stopwatch:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._worked = time.process_time()

    @property
    def seconds(self) -> float:
        """By the clock."""
        return time.perf_counter() - self._began

    @property
    def own_seconds(self) -> float:
        """By the clock or the processors, whichever says less: on a busy machine, the latter.

        What waits for an accelerator, or for a neighbour for too long, goes by the clock.
        """
        seconds = self.seconds
        if jax.default_backend() != "cpu":
            return seconds
        return max(min(seconds, time.process_time() - self._worked), seconds / BUSIEST)
