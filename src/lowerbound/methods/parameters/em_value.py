"""The method value of variational EM by gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lowerbound.run.method import Method, is_count, is_size
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem

RANKS = ("auto", "full", "diagonal")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EM(Method):
    """Parameters (`numpyro.param`) by gradients of the ELBO, with a Gaussian q by rows.

    For programs that coordinate ascent does not cover: networks, and any likelihood. Every row of
    the data plate has a Gaussian of its own on the unconstrained space, without an encoder, and
    the other latent sites have one together. lb.CAVI() is the exact one, where there is one.

    rank: "full" covariances (of a row, and of what the rows share), "diagonal", or "auto": full up
        to 10 numbers a row and 100 shared ones.
    draws: how many a step takes, in pairs; by default 8, or 2 where an evaluation is dear.
    batch_size: rows of a step; by default all, or what is quick.
    steps: at most so many; by default what is affordable, and where all rows fit into a step, the
        maximum over fixed draws at the end.
    tolerance: steps get shorter, and end, when the ELBO gains relatively less than this.
    init: a dict of values of parameters and of latent sites to start from.

    >>> lb.EM(steps=500)
    EM(steps=500)
    """

    rank: str = "auto"
    draws: int | None = None
    batch_size: int | None = None
    steps: int | None = None
    tolerance: float = 1e-4
    init: str | Mapping[str, Any] = "auto"

    def __post_init__(self) -> None:
        count = "an integer of at least 1, or None"
        self.check(
            ("rank", self.rank in RANKS, '"auto", "full" or "diagonal"'),
            ("draws", self.draws is None or is_count(self.draws), count),
            ("batch_size", self.batch_size is None or is_count(self.batch_size), count),
            ("steps", self.steps is None or is_count(self.steps), count),
            ("tolerance", is_size(self.tolerance), "a number of at least 0"),
            (
                "init",
                isinstance(self.init, Mapping) or self.init == "auto",
                '"auto" or a dict of values of parameters and sites',
            ),
        )

    @property
    def given(self) -> dict[str, Any]:
        """The values to start from."""
        return dict(self.init) if isinstance(self.init, Mapping) else {}

    def plan(self, problem: Problem) -> Planned[Any]:
        """Gradient steps of the parameters and of q together."""
        from lowerbound.methods.parameters.gradients import GradientSteps

        return GradientSteps(problem, self)
