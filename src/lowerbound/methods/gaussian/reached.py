"""What an ascent has reached: a Gaussian in some coordinates, measured over fresh draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lowerbound.bound.draws import draw_seed, normal_draws
from lowerbound.bound.fixed_draws import points
from lowerbound.bound.restricted import Restricted, narrowed, restricted
from lowerbound.cost import allowance
from lowerbound.methods.gaussian.centring import Choice
from lowerbound.methods.gaussian.climbing.climbs import Start
from lowerbound.methods.gaussian.climbing.over_draws import MOST_STAGES
from lowerbound.methods.gaussian.climbing.starts import WITHIN, at_fault
from lowerbound.methods.gaussian.target import Target
from lowerbound.result.answer import Stop
from lowerbound.result.posterior import Restart
from lowerbound.result.verdicts import Drawn

MEASURE = 1024  # fresh draws that measure the answer, at least
MOST_KEPT = 2_000_000  # numbers in the draws that are kept
FEW = 64  # where the fit has taken all that it may
FEWEST, MEASURING = 16, 0.2  # at any price; else within this share of what a fit may take

Parameters = dict[str, np.ndarray]


class Measured(NamedTuple):
    """A Gaussian as it is answered: its parameters, its bound, and its width where narrowed.

    drawn: the draws that it was measured over, where they are few enough to be kept.
    """

    parameters: Parameters
    bound: Restricted
    width: float = 1.0
    drawn: Drawn | None = None


@dataclass(frozen=True, eq=False)
class Reached(ABC):
    """Where an ascent stands. `draws` are those of its last step, `starts` the record of all.

    known: what was measured, where that has been done.
    """

    choice: Choice
    draws: int
    starts: tuple[Start, ...]
    known: Measured | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def parameters(self) -> Parameters:
        """The parameters of q, in the family of the choice."""

    def measured(self, seed: int) -> Measured:
        """Q as it is, or narrower where it reaches too far beyond the density.

        Noisy steps and scores do not see a wall that is behind them.
        """
        if self.known is not None:
            return self.known

        def at(width: float) -> Parameters:
            found = self.parameters
            return {n: a if n == "loc" else width * a for n, a in found.items()}

        width, (bound, drawn) = narrowed(lambda width: self.bound(at(width), seed))
        kept = drawn if drawn.vectors.size <= MOST_KEPT else None
        return Measured(at(width), bound, width, kept)

    def bound(self, parameters: Parameters, seed: int) -> tuple[Restricted, Drawn]:
        """The ELBO over fresh draws, and these."""
        target, family = self.choice.target, self.choice.family
        size = FEW if allowance().over else max(self.draws, MEASURE)
        pace = target.seconds(1)
        if size * pace > MEASURING * allowance().seconds:
            size = max(2 * int(MEASURING * allowance().seconds / pace / 2), FEWEST)

        def why(draw: int) -> list[str]:
            return at_fault(target, vectors[draw], WITHIN)

        if "factor" in parameters or size <= 2 * target.size:
            key = jax.random.key(draw_seed(seed, MOST_STAGES))
            vectors = np.asarray(family.sample_unconstrained(parameters, key, size))
            densities = np.asarray(family.log_prob_unconstrained(parameters, jnp.asarray(vectors)))
            drawn = Drawn(vectors, *target(vectors), densities)
            return restricted(drawn.log_ratios, why), drawn
        fresh = normal_draws(size, target.size, draw_seed(seed, MOST_STAGES))
        diagonal = "scale" in parameters
        root = np.diag(parameters["scale"]) if diagonal else parameters["scale_tril"]
        vectors = points(fresh, parameters["loc"], root)
        entropy = 0.5 * target.size * np.log(2 * np.pi) + np.log(np.abs(np.diagonal(root))).sum()
        drawn = Drawn(vectors, *target(vectors), -0.5 * np.sum(fresh**2, axis=1) - entropy)
        return restricted(drawn.log_ratios, why), drawn


def measuring(target: Target) -> float:
    """The seconds in which the answer of an ascent will be measured."""
    return min(target.seconds(MEASURE), MEASURING * allowance().seconds)


@dataclass(frozen=True, eq=False)
class Rooted(Reached):
    """A Gaussian by the lower triangular factor of its covariance."""

    loc: Any
    root: Any
    diagonal: bool

    @property
    def parameters(self) -> Parameters:
        """Independent entries, or all of them together."""
        loc, root = np.asarray(self.loc), np.asarray(self.root)
        if self.diagonal:
            return {"loc": loc, "scale": np.diagonal(root).copy()}
        return {"loc": loc, "scale_tril": root}


def optima(starts: Sequence[Start]) -> tuple[tuple[float, np.ndarray], ...]:
    """Where other starts have converged, and by how many nats they are below the best."""
    if not starts:
        return ()
    best = max(starts, key=lambda one: one.elbo)
    return tuple(
        (best.elbo - one.elbo, one.loc)
        for one in starts
        if one is not best and one.loc is not None and one.reason.startswith("converged")
    )


def table(starts: Sequence[Start], elbo: float, steps: int, stop: Stop) -> tuple[Restart, ...]:
    """The restarts of a fit: the one that was kept has its ELBO.

    The others are below by as much as they were over the points that all of them climbed.
    """
    if not starts:
        return (Restart(elbo, steps, str(stop)),)
    best = max(range(len(starts)), key=lambda i: starts[i].elbo)
    return tuple(
        Restart(elbo, max(steps, one.steps), str(stop))
        if number == best
        else Restart(elbo + one.elbo - starts[best].elbo, one.steps, one.reason)
        for number, one in enumerate(starts)
    )
