"""A Gaussian over some sites with exact factors of the others, as a method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lowerbound.methods.gaussian.unconstrained_methods import Gaussian
from lowerbound.run.method import Method
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem


@dataclass(frozen=True, eq=False, repr=False)
class Over(Method):
    """q(g) q(z): a Gaussian over some sites g, and coordinate updates of all others.

    sites: those that the Gaussian covers, e.g. ("eta",); the others have exact updates given them.
    method: lb.Gaussian(...), with rank "auto", "full" or "diagonal".

    >>> lb.Over(("eta",), lb.Gaussian(starts=2))
    Over(('eta',), method=Gaussian(starts=2))
    """

    sites: Sequence[str]
    method: Gaussian = field(default_factory=Gaussian)
    limited: ClassVar[bool] = True

    def __post_init__(self) -> None:
        sites, method = self.sites, self.method
        self.check(
            (
                "sites",
                not isinstance(sites, str) and len(sites) > 0,
                'a tuple of site names, e.g. ("eta",)',
            ),
            (
                "method",
                type(method) is Gaussian
                and method.rank in ("auto", "full", "diagonal")
                and method.noncentred == "auto",
                'lb.Gaussian(...) with rank "auto", "full" or "diagonal", without noncentred',
            ),
        )

    def plan(self, problem: Problem) -> Planned[Any]:
        """The Gaussian and the factors, in turn."""
        from lowerbound.methods.partial.given_sites import PartlyGaussian

        return PartlyGaussian(problem, tuple(self.sites), self.method)
