"""What a rung of the ladder sees, and what it says of itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lowerbound.errors import Residual
from lowerbound.joint.multiaffine import Structure
from lowerbound.model import Model
from lowerbound.rewrite.summing.enumerated import can_be_summed, discrete_sites
from lowerbound.run.method import Method
from lowerbound.run.problem import Problem

GRID = "conditioned"  # the name of the rung of scalars on a grid


@dataclass(frozen=True)
class Tried:
    """What was tried: the method that would do, or none, and the reason."""

    name: str
    reason: str
    method: Method | None = None


@dataclass(frozen=True, eq=False)
class Case:
    """A problem with what is known of it, and the rungs that have failed for it."""

    problem: Problem
    failed: Mapping[str, str]

    def tried(self, name: str, reason: str, method: Method | None = None) -> Tried:
        """A line of the ladder."""
        return Tried(name, reason, method)

    @property
    def model(self) -> Model:
        """The traced program."""
        return self.problem.model

    @property
    def structure(self) -> Structure:
        """What is derived of it."""
        return self.problem.joint.structure

    @property
    def discrete(self) -> tuple[str, ...]:
        """The discrete latent sites."""
        return tuple(discrete_sites(self.model))

    @property
    def summable(self) -> bool:
        """Whether the discrete sites can be summed out."""
        return can_be_summed(self.model)

    @property
    def size(self) -> int:
        """The numbers of the continuous latent sites."""
        return sum(self.sizes.values())

    @property
    def sizes(self) -> dict[str, int]:
        """The numbers of each continuous latent site."""
        latent = self.model.latent.items()
        return {n: math.prod(s.shape) for n, s in latent if n not in self.discrete}


Rung = Callable[[Case], Iterator[Tried]]


def entry(residual: Residual) -> str:
    """How the latent sites of a residual enter its density."""
    verb = "enters" if len(residual.latents) == 1 else "enter"
    return f"{listed(residual.latents)} {verb} '{residual.site}' through {residual.operation}"


def listed(names: Sequence[str]) -> str:
    """Names in quotes."""
    return ", ".join(f"'{name}'" for name in names)
