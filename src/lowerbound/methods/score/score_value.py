"""The method value of score functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from lowerbound.methods.gaussian.unconstrained_methods import UnconstrainedMethod
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem


@dataclass(frozen=True, eq=False, repr=False)
class ScoreFunctions(UnconstrainedMethod):
    """For discrete sites that cannot be summed out: a probability for each value of each entry.

    By draws, beside a Gaussian of the continuous sites; the gradients are those of score functions
    with control variates, or local expectations where these are affordable.

    rank, draws: of the Gaussian, and how many draws a step takes. The other settings are those of
    `lb.Gaussian`; "auto" of `noncentred` leaves sites as they are.

    >>> lb.ScoreFunctions(draws=8)
    ScoreFunctions(draws=8)
    """

    rank: str | int = "auto"  # type: ignore[misc]
    draws: int | None = None  # type: ignore[misc]
    can: ClassVar[frozenset[str]] = frozenset()
    engine: ClassVar[str] = "score"
    ranks: ClassVar[tuple[str, ...]] = ("auto", "full", "diagonal")

    def plan(self, problem: Problem) -> Planned[Any]:
        """A factor for every entry of discrete sites, and a Gaussian for the others."""
        from lowerbound.methods.score.finite_fit import planned_score

        return planned_score(problem, self)
