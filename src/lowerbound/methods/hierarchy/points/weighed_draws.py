"""Draws of a density over hyperparameters that is nearly right, weighed by what it should be.

Where points do not foretell each other to a tenth of a nat, their density may still be so near to
that of the surface that weights of its draws are almost even (importance sampling). That is all
that means, sds and the evidence need, for a few hundred values of L, where chains that start anew
need thousands of slopes. A fifth of the draws are of wide laws, also where tails were seen to be
heavier than is foreseen, so that a mass beside that of the density is met (defensive mixtures;
Hesterberg 1995).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lowerbound.family.densities.weighted_draws import WeightedDraws
from lowerbound.family.numerics.pareto import smoothed_weights
from lowerbound.family.numerics.smoothed import Smoothed
from lowerbound.family.q import Q
from lowerbound.methods.hierarchy.by_chains.draws_of_all import completed
from lowerbound.methods.hierarchy.inner.parabolas import AnySurface
from lowerbound.methods.hierarchy.points.integral import EVEN, HEAVY, Integral
from lowerbound.methods.hierarchy.summits.uphill import Evaluated
from lowerbound.methods.hierarchy.surface import Solved, Surface
from lowerbound.result.answer import Answer, Stop
from lowerbound.result.posterior import History, Restart
from lowerbound.result.verdicts import Verdict
from lowerbound.run.planned import Trace

FIRST, MOST = 256, 2048  # draws, after which the weights are looked at, and in all
ENOUGH = 500.0  # effective draws
POOR = 0.25  # efficiency of weights that tell nothing
WIDE, WIDER, FREEDOM = 0.2, 2.0, 4.0  # the share of wide draws, their sds, and their tails
TRIED, STAYED = 512, 0.15  # draws, and sds and logs of sds by which they may move these
MOST_BEYOND = 4  # places of tails that were not foreseen, each with wide draws around it
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


@dataclass(frozen=True, eq=False)
class _Defended:
    """A density, and a share of wide ones with heavy tails: what the first misses, draws see.

    centres: (n, k), of the wide ones.
    """

    smoothed: Smoothed
    centres: np.ndarray

    @classmethod
    def of(cls, integral: Integral) -> _Defended:
        """The density of an integral; wide ones around it and where tails were not foreseen."""
        smoothed = integral.smoothed.trimmed()
        centres = smoothed.mean[None]
        if integral.missed:
            assert integral.beyond is not None
            some = np.linspace(0, len(integral.beyond) - 1, MOST_BEYOND).astype(int)
            centres = np.concatenate([centres, integral.beyond[np.unique(some)]])
        return cls(smoothed, centres)

    def sample(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draws of all of them, those of the wide ones last."""
        few = math.ceil(WIDE * count)
        away = rng.standard_normal((few, self.centres.shape[1])) @ self._root.T
        away /= np.sqrt(rng.chisquare(FREEDOM, (few, 1)) / FREEDOM)
        wide = self.centres[np.arange(few) % len(self.centres)] + away
        return np.concatenate([self.smoothed.sample(rng, count - few), wide])

    def log_prob(self, t: np.ndarray) -> np.ndarray:
        """The log density of all together, at rows of t."""
        k = t.shape[1]
        volume = math.lgamma(0.5 * (FREEDOM + k)) - math.lgamma(0.5 * FREEDOM)
        volume -= 0.5 * k * math.log(FREEDOM * math.pi) + np.log(np.diag(self._root)).sum()
        parts = [math.log1p(-WIDE) + self.smoothed.log_prob(t)]
        for centre in self.centres:
            inside = np.linalg.solve(self._root, (t - centre).T)
            wide = -0.5 * (FREEDOM + k) * np.log1p((inside**2).sum(axis=0) / FREEDOM)
            parts.append(math.log(WIDE / len(self.centres)) + wide + volume)
        found: np.ndarray = np.logaddexp.reduce(parts, axis=0)
        return found

    @cached_property
    def _root(self) -> np.ndarray:
        spread: np.ndarray = np.linalg.cholesky(self.smoothed.covariance)
        return WIDER * spread


def stays(surface: Surface, integral: Integral, seed: int) -> Generator[Solved, None, bool]:
    """Whether means and sds stay where a tail is heavier than was foreseen, by draws there.

    Yields after every evaluation.
    """
    law, evaluated = _Defended.of(integral), Evaluated(surface)
    t, values = law.sample(np.random.default_rng(seed), TRIED), []
    for one in evaluated.several(list(t)):
        yield one
        values.append(one.value)
    ratios = np.array(values) - law.log_prob(t)
    weights = np.exp(ratios - ratios.max())
    weights = weights / weights.sum()
    if not TRIED * POOR * float(weights @ weights) < 1.0:
        return False
    own, sd = integral.smoothed.mean, np.sqrt(np.diag(integral.smoothed.covariance))
    mean = weights @ t
    wider = 0.5 * np.log(weights @ (t - mean) ** 2) - np.log(sd)
    return bool(np.max(abs(mean - own) / sd) < STAYED and np.max(abs(wider)) < STAYED)


def weighed(
    surface: AnySurface, integral: Integral, seed: int
) -> Generator[Solved, None, Weighed | None]:
    """Draws until their weights are worth enough; None where they are uneven.

    Yields after every evaluation.
    """
    law, evaluated = _Defended.of(integral), Evaluated(surface)
    rng = np.random.default_rng(seed)
    t, ratios = np.zeros((0, law.centres.shape[1])), np.zeros(0)
    while len(t) < MOST:
        drawn, values = law.sample(rng, FIRST), []
        for one in evaluated.several(list(drawn)):
            yield one
            values.append(one.value)
        t = np.concatenate([t, drawn])
        ratios = np.concatenate([ratios, np.array(values) - law.log_prob(drawn)])
        if np.mean(np.isfinite(ratios)) < 1.0 - WIDE:
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
