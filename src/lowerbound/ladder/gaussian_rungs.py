"""Rungs of Gaussians on the unconstrained space: over some sites, or over all of them."""

from __future__ import annotations

from collections.abc import Iterator

from lowerbound.ladder.case import GRID, Case, Tried, listed
from lowerbound.methods.gaussian.sparse.wide import wide_problem
from lowerbound.methods.gaussian.unconstrained_methods import FULL_BELOW, Gaussian
from lowerbound.methods.grid.given_scalars import Given
from lowerbound.methods.grid.scalar_sites import FEW_GIVEN, affordable, observed_scales, size_of
from lowerbound.methods.partial.given_program import sites_to_cover
from lowerbound.methods.partial.over import Over


def partly(case: Case) -> Iterator[Tried]:
    """A Gaussian of the sites of terms left over, where one of all sites is out of reach."""
    size, stuck = case.size, bool(case.discrete) and not case.summable
    if size <= FULL_BELOW and not stuck:
        return
    chosen = sites_to_cover(case.model, case.structure.residuals, *case.problem.call)
    own = sum(case.sizes[name] for name in chosen or ())
    if chosen is None or (not stuck and own > max(FULL_BELOW, 3 * size // 4)):
        return
    if not case.discrete and wide_problem(case.problem, Gaussian())[1] is not None:
        return
    why = f"all would be {size} numbers"
    why = f"{listed(case.discrete)} cannot be summed out" if stuck else why
    space = f"{own} numbers on the unconstrained space"
    reason = f"{space}, and exact updates of all other sites; {why}"
    yield case.tried(f"Gaussian over {listed(chosen)}, the rest exact", reason, Over(chosen))


def gaussian(case: Case) -> Iterator[Tried]:
    """A Gaussian takes every continuous site, given the scale of the data where few are left."""
    if case.discrete:
        return
    noise = tuple(observed_scales(case.model))
    space = "numbers on the unconstrained space"
    if GRID not in case.failed and affordable(case.model, noise, FEW_GIVEN):
        reason = (
            f"about {size_of(case.model, noise)} {space}, given {listed(noise)}, the scale of the "
            "data, on a grid; expectations by quasi-Monte Carlo"
        )
        yield case.tried("Gaussian", reason, Given(noise, Gaussian()))
    reason = f"all sites together, about {size_of(case.model)} {space}; expectations by quasi-"
    yield case.tried("Gaussian", f"{reason}Monte Carlo", Gaussian())
