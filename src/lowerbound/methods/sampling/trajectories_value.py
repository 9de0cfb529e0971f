"""Trajectories as a method: chains over theta, and z given theta by a change of variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from lowerbound.run.method import Method
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem

FEWEST = 400  # draws


@dataclass(frozen=True, eq=False, repr=False)
class Trajectories(Method):
    """Draws by NUTS in coordinates without funnels, in the place of a density.

    For programs of linear predictors, as `lb.Integrated` is, with more scales theta than can be
    integrated: horseshoes and other priors with a scale for every coefficient. Where the terms are
    Gaussian, z is integrated out exactly: chains go over theta alone, and z is drawn given it.
    Where not, chains go over theta and u, with z = m(theta) + L(theta)^-T u standard normal but for
    what a parabola misses of each term; the density is that of the program all the same.

    draws: how many at first, in four chains; more are made until they are worth enough.

    >>> lb.Trajectories(draws=4000)
    Trajectories(draws=4000)
    """

    draws: int = 2000
    limited: ClassVar[bool] = True

    def __post_init__(self) -> None:
        fine = isinstance(self.draws, int) and not isinstance(self.draws, bool)
        self.check(("draws", fine and self.draws >= FEWEST, f"an integer of at least {FEWEST}"))

    def plan(self, problem: Problem) -> Planned[Any]:
        """The predictors of the program, and what is left of it given theta."""
        from lowerbound.methods.sampling.sampled import Sampling

        return Sampling(problem, self)
