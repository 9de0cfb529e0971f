"""The method value of coordinate ascent with births, merges and deletions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.run.method import COUNT, Method, is_count
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem

ONE: Final = "one"
ALL: Final = "all"


@dataclass(frozen=True, eq=False, repr=False)
class Growing(Method):
    """Coordinate ascent of a mixture that finds how many of its components are needed.

    Components are split, merged, deleted and put in order (Hughes and Sudderth 2013), and a change
    is kept only where the exact ELBO is higher; `fit.history.moves` has those that were. The K of
    the program is the most that there can be.

    method: lb.CAVI(...) with its tolerance, max_sweeps and blocks.
    start: "one" component that holds all rows, or "all" K of them, as lb.CAVI() starts.
    rounds: of moves at most.

    >>> lb.Growing(start="all")
    Growing(start='all')
    """

    method: CAVI = field(default_factory=CAVI)
    start: str = ONE
    rounds: int = 100

    def __post_init__(self) -> None:
        plain = isinstance(self.method, CAVI) and (
            (self.method.restarts, self.method.init, self.method.monitor) == (1, "auto", None)
        )
        self.check(
            ("method", plain, "lb.CAVI(...) with one start of its own, and without monitor"),
            ("start", self.start in (ONE, ALL), f'"{ONE}" or "{ALL}"'),
            ("rounds", is_count(self.rounds), COUNT),
        )

    def plan(self, problem: Problem) -> Planned[Any]:
        """Sweeps, and moves between them."""
        from lowerbound.methods.growth.moving import Moving

        return Moving(problem, self)
