"""How long something has taken, by the clock and without the time that others had the machine."""

from __future__ import annotations

import time


class Stopwatch:
    """Runs from when it is made; `began` is then, in the seconds of `time.perf_counter`."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self._worked = time.process_time()

    @property
    def seconds(self) -> float:
        """By the clock."""
        return time.perf_counter() - self.began

    @property
    def own_seconds(self) -> float:
        """By the clock or the processors, whichever says less: on a busy machine, the latter."""
        return min(self.seconds, time.process_time() - self._worked)
