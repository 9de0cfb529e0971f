"""The rungs of sites that have exact factors given the rest: they are integrated out first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lowerbound.compute.collapsing import collapsible
from lowerbound.errors import LowerboundError
from lowerbound.joint.latents import domain_of
from lowerbound.joint.terms.domain import REAL
from lowerbound.ladder import gaussian_rungs, hierarchical, scalars
from lowerbound.ladder.case import GRID, Case, Rung, Tried, listed
from lowerbound.methods.rewriting.collapsed_out import Collapsed, collapsed_problem

FEW = 4  # sites that are named one by one
LEAST = 3  # real numbers that are left, from which they may be a Gaussian given the others


class Rest(NamedTuple):
    """What is left of a case, and what is said of the sites that are integrated out."""

    sites: tuple[str, ...]
    case: Case
    after: str
    exactly: str

    @property
    def has_effects(self) -> bool:
        """Whether real numbers are left, which may be a Gaussian given the others."""
        latent = self.case.model.latent
        real = [n for name, n in self.case.sizes.items() if domain_of(latent[name]) is REAL]
        return sum(real) >= LEAST

    def climbed(self, rung: Rung, case: Case) -> Iterator[Tried]:
        """What a rung says of what is left."""
        for tried in rung(self.case):
            name = f"{tried.name}{self.after}"
            if tried.method is None:
                yield case.tried(name, tried.reason)
            else:
                method = Collapsed(self.sites, tried.method)
                yield case.tried(name, f"{tried.reason}; {self.exactly}", method)


def collapsed(case: Case) -> Iterator[Tried]:
    """Conjugate sites integrated out; a grid or a Gaussian of the rest, or one given scales."""
    sites = _sites(case)
    if not sites:
        return
    gridded = () if GRID in case.failed else hierarchical.on_a_grid(case)
    if gridded:
        reason = f"a grid over {listed(gridded)} does as well, with exact factors"
        yield case.tried(f"{named(sites)} integrated out", reason)
        return
    try:
        rest = _rest(case, sites)
    except LowerboundError as error:
        yield case.tried(f"{named(sites)} integrated out", str(error).splitlines()[0])
        return
    if len(rest.case.sizes) == rest.case.size:
        yield from rest.climbed(scalars.whole, case)
    effects = rest.has_effects
    rung = hierarchical.integrated if effects else gaussian_rungs.gaussian
    yield from rest.climbed(rung, case)


def collapsed_effects(case: Case) -> Iterator[Tried]:
    """A Gaussian of the rest, effects and all, where nothing better took the whole."""
    sites = _sites(case)
    if not sites:
        return
    try:
        rest = _rest(case, sites)
    except LowerboundError:
        return
    if rest.has_effects:
        yield from rest.climbed(gaussian_rungs.gaussian, case)


def named(sites: Sequence[str]) -> str:
    """Some sites in words; of a loop in Python, which makes many, the first.

    >>> named(["a", "b"]), named([f"z{n}" for n in range(20)])
    ("'a', 'b'", "'z0' and 19 others")
    """
    return listed(sites) if len(sites) <= FEW else f"'{sites[0]}' and {len(sites) - 1} others"


def _sites(case: Case) -> tuple[str, ...]:
    return () if case.discrete or not case.model.latent else collapsible(case.model)


def _rest(case: Case, sites: tuple[str, ...]) -> Rest:
    """What is left; raises LowerboundError where the density is not what it should be."""
    found, problem = collapsed_problem(case.problem, sites)
    after = f", with {named(sites)} integrated out"
    failed = {n.removesuffix(after): why for n, why in case.failed.items() if n.endswith(after)}
    failed |= {n: why for n, why in case.failed.items() if n == GRID}  # whatever is on it
    families = dict.fromkeys(family.name for family in found.family.families)
    are = "it is" if len(sites) == 1 else "they are"
    why = f"as {are} conjugate given the rest ({', '.join(families)})"
    exactly = f"{named(sites)} exactly, {why}"
    return Rest(sites, Case(problem, failed), after, exactly)
