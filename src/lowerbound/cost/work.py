"""Work in units that do not depend on the machine, and what it takes on this one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lowerbound.cost.estimate import USUAL, Cost
from lowerbound.cost.speed import machine

COMPILER = 85_000  # bytes that XLA keeps for an operation that it has compiled


@dataclass(frozen=True)
class Work:
    """What a fit does: operations that are compiled, numbers and products that are computed.

    `bytes` are those of the values that it holds at once, beside what the compiler keeps; `most`
    are the seconds after which it stops, whatever is left to do. `within`: in nine fits of ten at
    most so many times the numbers and products, and at least so many times fewer, are computed.
    """

    operations: float
    numbers: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    most: float = math.inf
    within: float = 1.0

    @property
    def cost(self) -> Cost:
        """Seconds and megabytes on this machine, whose speed is measured on first use.

        Where the seconds may be further apart than usual, they are the middle of their range.
        """
        speed = machine()
        compiling = self.operations * speed.equation
        computing = self.numbers * speed.number + self.flops * speed.flop
        megabytes = (COMPILER * self.operations + self.bytes) / 1e6
        ends = (computing / self.within, computing * self.within)
        least, most = (min(compiling + end, self.most) for end in ends)
        if most <= least * USUAL**2:
            return Cost(min(compiling + computing, self.most), megabytes)
        return Cost(math.sqrt(least * most), megabytes, math.sqrt(most / least))


@dataclass(frozen=True)
class Alternative:
    """A cheaper way: the method as it is written in a call, and its work."""

    method: str
    work: Work

    @property
    def cost(self) -> Cost:
        """Seconds and megabytes on this machine."""
        return self.work.cost

    def __str__(self) -> str:
        return f"Cheaper: method={self.method}, {self.cost}."
