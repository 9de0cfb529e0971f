"""Hierarchies as a method: hyperparameters integrated, the rest a sparse Gaussian given them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lowerbound.run.method import COUNT, Method, is_count
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem


@dataclass(frozen=True, eq=False, repr=False)
class Integrated(Method):
    """q(theta) q(z | theta): hyperparameters integrated over points, z a Gaussian given each.

    For programs whose density is a sum of functions of linear predictors of z, given scales,
    correlations and shapes theta, of which there may be twenty-four: mixed models and generalised
    ones, random walks, splines. The precision of z has the zeros of the design. Where the terms
    are Gaussian, q is the posterior, up to the integral over theta. A program without any theta, as
    a chain of known variances, has one Gaussian of z. Of a series, several numbers that multiply
    its states (entries of matrices), up to a hundred, are gone over by Hamiltonian chains.

    sites: what is integrated; by default what must be: all sites that are not real, and those
        that do not enter through a linear predictor.
    points: how many values of theta, by default as many as it takes.

    >>> method = lb.Integrated(points=64)
    >>> method.points
    64
    """

    sites: Sequence[str] | None = None
    points: int | None = None
    limited: ClassVar[bool] = True

    def __post_init__(self) -> None:
        sites, points = self.sites, self.points
        self.check(
            (
                "sites",
                sites is None
                or (not isinstance(sites, str) and all(isinstance(name, str) for name in sites)),
                'a tuple of site names, e.g. ("tau", "sigma"), or None',
            ),
            ("points", points is None or is_count(points), f"{COUNT}, or None"),
        )

    def plan(self, problem: Problem) -> Planned[Any]:
        """The predictors of the program, and how their precision is factored."""
        from lowerbound.methods.hierarchy.hierarchies import planned_hierarchy

        return planned_hierarchy(problem, self)
