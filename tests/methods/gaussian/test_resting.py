"""Ascents over fixed draws end where nothing more is gained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lowerbound.ascent.gaussian_step import CONVERGED, SETTLED, begin
from lowerbound.bound.draws import normal_draws
from lowerbound.methods.gaussian.climbing.over_draws import LIMIT, RESTING, ascend
from lowerbound.run.walking import ended

FINE = 1000.0  # radians


@dataclass(eq=False)
class Rippled:
    """A Gaussian with ripples that have corners, and are finer than draws are dense."""

    height: float
    calls: list[int] = field(default_factory=list)

    def __call__(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.calls.append(len(vectors))
        wave = np.sin(FINE * vectors)
        values = -0.5 * (vectors**2).sum(axis=1) - self.height * np.abs(wave).sum(axis=1)
        steep = FINE * self.height * np.sign(wave) * np.cos(FINE * vectors)
        return values, -vectors - steep

    def seconds(self, points: float) -> float:
        """Nothing."""
        return 0.0


def climbed(target: Any, tolerance: float) -> Any:
    draws = normal_draws(256, 3, 0)
    state = begin(np.full(3, 0.5), 0.7 * np.eye(3))
    return ended(ascend(target, draws, state, tolerance, False))[0]


def test_slopes_that_never_come_near_zero_do_not_take_all_iterations():
    target = Rippled(1e-4)
    state = climbed(target, 1e-3)
    assert state.status == SETTLED
    assert len(target.calls) < 5 * RESTING < LIMIT


def test_a_smooth_density_is_left_when_the_slopes_say_so():
    target = Rippled(0.0)
    state = climbed(target, 1e-3)
    assert state.status == CONVERGED
    assert len(target.calls) < RESTING
