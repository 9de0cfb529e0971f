"""The rung of sites that have exact factors given the rest: they are integrated out first."""

from __future__ import annotations

from collections.abc import Iterator

from lowerbound.compute.collapsing import collapsible
from lowerbound.errors import LowerboundError
from lowerbound.joint.latents import domain_of
from lowerbound.joint.terms.domain import REAL
from lowerbound.ladder import gaussian_rungs, hierarchical, scalars
from lowerbound.ladder.case import GRID, Case, Tried, listed
from lowerbound.methods.rewriting.collapsed_out import Collapsed, collapsed_problem

LEAST = 3  # real numbers that are left, from which they may be a Gaussian given the others
FEW = 50  # numbers of a Gaussian of all that is left, where others would be one given scales


def collapsed(case: Case) -> Iterator[Tried]:
    """Conjugate sites integrated out, and whatever rung takes the rest.

    Where what is left has many real numbers, it should be Gaussian given a few others; what is not
    may be so with the sites that are integrated out, and goes on.
    """
    if case.discrete or not case.model.latent:
        return
    sites = collapsible(case.model)
    if not sites:
        return
    names = listed(sites)
    gridded = () if GRID in case.failed else hierarchical.on_a_grid(case)
    if gridded:
        reason = f"a grid over {listed(gridded)} does as well, with exact factors"
        yield case.tried(f"{names} integrated out", reason)
        return
    try:
        found, rest = collapsed_problem(case.problem, sites)
    except LowerboundError as error:
        yield case.tried(f"{names} integrated out", str(error).splitlines()[0])
        return
    after = f", with {names} integrated out"
    failed = {n.removesuffix(after): why for n, why in case.failed.items() if n.endswith(after)}
    failed |= {n: why for n, why in case.failed.items() if n == GRID}  # whatever is on it
    inner = Case(rest, failed)
    families = dict.fromkeys(family.name for family in found.family.families)
    exactly = f"{names} exactly, given the rest ({', '.join(families)})"
    real = sum(n for site, n in inner.sizes.items() if domain_of(inner.model.latent[site]) is REAL)
    few = real < LEAST or inner.size <= FEW
    whole = (scalars.whole,) if len(inner.sizes) == inner.size else ()
    integrated = (hierarchical.integrated,) if real >= LEAST else ()
    gaussian = (gaussian_rungs.gaussian,) if few else ()
    for rung in (*whole, *integrated, *gaussian):
        for tried in rung(inner):
            method = None if tried.method is None else Collapsed(sites, tried.method)
            yield case.tried(f"{tried.name}{after}", f"{tried.reason}; {exactly}", method)
