"""What a fit by a Gaussian on the unconstrained space comes to, and how it got there."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from lowerbound.bound.restricted import Restricted
from lowerbound.family.densities.unconstrained import UnconstrainedGaussian
from lowerbound.run.bar import Bar


@dataclass(frozen=True)
class GaussianRestart:
    """One start: its ELBO over few points, its iterations and why it stopped."""

    elbo: float
    iterations: int
    stop_reason: str


@dataclass(frozen=True, eq=False)
class GaussianRun:
    """What a run came to. `elbo_error` is the standard error of `elbo`, both from fresh draws.

    `shift` is how far fresh draws would move a mean or a scale, in standard deviations, at most.
    """

    family: UnconstrainedGaussian
    parameters: dict[str, np.ndarray]
    elbo: float
    elbo_error: float
    shift: float
    draws: int
    history: np.ndarray
    history_seconds: np.ndarray
    seconds: float
    converged: bool
    stop_reason: str
    restarts: tuple[GaussianRestart, ...]
    rank: str | int
    engine: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Solution:
    """What an engine found."""

    parameters: dict[str, np.ndarray]
    draws: int
    converged: bool
    reason: str
    restarts: tuple[GaussianRestart, ...]
    remedy: str = "Loosen tolerance, or start elsewhere with lb.Gaussian(init=...)."
    measured: tuple[Restricted, float] | None = None  # the ELBO and the shift of a run


class Watch:
    """The ELBO after every iteration, and the seconds since the start."""

    def __init__(self, bar: Bar) -> None:
        self.bar, self.begun = bar, time.perf_counter()
        self.elbo: list[float] = []
        self.seconds: list[float] = []

    def note(self, elbo: float) -> None:
        """One more iteration."""
        self.elbo.append(elbo)
        self.seconds.append(time.perf_counter() - self.begun)
        self.bar.update(len(self.elbo), f"ELBO {elbo:.6g}")


def draw_seed(seed: int, stage: int) -> int:
    """The seed of the draws of one stage."""
    return int(np.random.SeedSequence([abs(int(seed)), stage]).generate_state(1)[0])
