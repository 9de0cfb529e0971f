"""Draws of a density over hyperparameters that is nearly right, weighed by what it should be.

Where points do not foretell each other to a tenth of a nat, their density may still be so near to
that of the surface that weights of its draws are almost even (importance sampling). That is all
that means, sds and the evidence need, for a few hundred values of L, where chains that start anew
need thousands of slopes.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.family.numerics.pareto import smoothed_weights
from lowerbound.family.numerics.smoothed import Smoothed
from lowerbound.family.q import Q
from lowerbound.methods.hierarchy.by_chains.draws_of_all import completed
from lowerbound.methods.hierarchy.inner.parabolas import AnySurface
from lowerbound.methods.hierarchy.points.integral import EVEN, HEAVY
from lowerbound.methods.hierarchy.summits.uphill import Evaluated
from lowerbound.methods.hierarchy.surface import Solved
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.posterior import History, Restart
from lowerbound.result.verdicts import Verdict
from lowerbound.run.planned import Trace

FIRST, MOST = 256, 2048  # draws, after which the weights are looked at, and in all
ENOUGH = 500.0  # effective draws
POOR = 0.25  # efficiency of weights that tell nothing
COMPLETED = 600  # draws of theta, about, for which z is drawn


@dataclass(frozen=True, eq=False)
class Weighed:
    """Draws t (n, k) of a density over theta, and the log weights of each, which sum to one.

    error: that of the log evidence.
    """

    surface: AnySurface
    t: np.ndarray
    log_weights: np.ndarray
    k_hat: float
    log_evidence: float
    error: float

    @property
    def size(self) -> float:
        """How many equal weights these are worth."""
        return 1.0 / float(np.exp(2.0 * self.log_weights).sum())

    @property
    def stop(self) -> Stop:
        """Why there are no more draws."""
        return Stop(True, str(self))

    def __str__(self) -> str:
        return (
            f"{len(self.t):,} draws of the density through points, whose weights are worth "
            f"{self.size:,.0f}, k-hat {self.k_hat:.1f}"
        )

    def answer(self, trace: Trace, stop: Stop, seed: int) -> Answer:
        """Draws of all sites: those of theta as often as they weigh, and z given each."""
        names = ", ".join(self.surface.predictors.theta)
        total = np.cumsum(np.exp(self.log_weights))
        even = (np.arange(COMPLETED) + np.random.default_rng(seed).random()) / COMPLETED
        chosen = np.minimum(np.searchsorted(total, even * total[-1]), len(total) - 1)
        values = completed(self.surface, self.t[chosen], seed)
        count = len(next(iter(values.values())))
        q = Q(WeightedDraws(), {"values": values, "weights": np.full(count, 1.0 / count)})
        history = History(trace.values, trace.seconds, step="round")
        restarts = (Restart(self.log_evidence, len(trace.values), str(stop)),)
        said = f"weights of draws of {names} are worth {self.size:,.0f} of {len(self.t):,}"
        return Answer(
            q,
            self.log_evidence,
            history,
            restarts,
            error=self.error,
            notes=(f"{names} by {self}. The other sites exactly, given each draw.",),
            verdict=Verdict("all", f"{said}, with the k-hat {self.k_hat:.1f}"),
        )


def weighed(
    surface: AnySurface, smoothed: Smoothed, seed: int
) -> Generator[Solved, None, Weighed | None]:
    """Draws until their weights are worth enough; None where they are uneven.

    Yields after every evaluation.
    """
    smoothed = smoothed.trimmed()
    evaluated, rng = Evaluated(surface), np.random.default_rng(seed)
    t, ratios = np.zeros((0, smoothed.placed.proposal.size)), np.zeros(0)
    while len(t) < MOST:
        drawn, values = smoothed.sample(rng, FIRST), []
        for one in evaluated.several(list(drawn)):
            yield one
            values.append(one.value)
        t = np.concatenate([t, drawn])
        ratios = np.concatenate([ratios, np.array(values) - smoothed.log_prob(drawn)])
        if not np.isfinite(ratios).all():
            return None
        log_weights, k_hat = smoothed_weights(ratios)
        top = float(ratios.max())
        raw = np.exp(ratios - top)
        error = float(raw.std(ddof=1) / (raw.mean() * math.sqrt(len(raw))))
        found = Weighed(surface, t, log_weights, k_hat, top + math.log(raw.mean()), error)
        light = k_hat < HEAVY or found.size > EVEN * len(t)
        if not light or found.size < POOR * len(t):
            return None
        if found.size >= ENOUGH:
            return found
    return None
