"""Structured inference as a method: a few scalars on a grid, the rest given them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lowerbound.errors import SettingError
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.methods.gaussian.unconstrained_methods import Gaussian
from lowerbound.run.method import Method, is_same
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem

MOST = 3
HEEDED = ("init", "draws", "starts")  # settings of the method within that a grid takes over


@dataclass(frozen=True, eq=False, repr=False)
class Given(Method):
    """q(theta) q(z | theta): scalars theta on a grid, and a method for the rest at every node.

    sites: one to three scalar sites, e.g. ("tau",).
    method: lb.CAVI() solves the rest by coordinate ascent given each node, lb.Gaussian() by a
        Gaussian. Its `init` says where theta and z are looked for.

    >>> fit = lb.fit(coin, y, method=lb.Given(("p",)))
    >>> round(float(fit.mean("p")), 2)
    0.67
    """

    sites: Sequence[str]
    method: Method = field(default_factory=CAVI)
    limited: ClassVar[bool] = True

    def __post_init__(self) -> None:
        sites = self.sites
        self.check(
            (
                "sites",
                not isinstance(sites, str) and all(isinstance(name, str) for name in sites),
                'a tuple of site names, e.g. ("tau",)',
            ),
            (
                "sites",
                1 <= len(sites) <= MOST and len(set(sites)) == len(sites),
                "one to three sites, each once: the grid has a dimension for each",
            ),
            (
                "method",
                type(self.method) in (CAVI, Gaussian),
                "lb.CAVI(...) or lb.Gaussian(...), which solve the rest at every node",
            ),
        )
        plain = type(self.method)().settings()
        for name, value in self.method.settings().items():
            if name not in HEEDED and not is_same(value, plain[name]):
                raise SettingError(
                    "Given",
                    f"a method with {name}",
                    value,
                    "none: a grid solves every node from the one beside it, to its own tolerance",
                )

    def plan(self, problem: Problem) -> Planned[Any]:
        """The plan of the program with theta observed, and a grid."""
        from lowerbound.methods.grid.grids import planned_grid

        return planned_grid(problem, tuple(self.sites), self.method)
