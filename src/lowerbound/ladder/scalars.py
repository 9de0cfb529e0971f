"""The rung of a few scalars on a grid, and given them an exact factor, or a Gaussian."""

from __future__ import annotations

from collections.abc import Iterator

from lowerbound.compute.engine import derived
from lowerbound.errors import Residual
from lowerbound.joint.latents import domain_of
from lowerbound.joint.terms.domain import COUNT
from lowerbound.ladder.case import GRID, Case, Tried, entry, listed
from lowerbound.methods.gaussian.unconstrained_methods import Gaussian
from lowerbound.methods.grid.conditional import problem_given
from lowerbound.methods.grid.given_scalars import MOST, Given
from lowerbound.methods.grid.scalar_sites import (
    NODES,
    affordable,
    is_scalar,
    scalars_to_condition,
    scale_setters,
    size_of,
    states_of,
    work_of,
)

MOST_WORK = 3e9  # multiplications that a sweep over all nodes may cost
MOST_STATES = 2e7  # probabilities of discrete sites, at all nodes together
STEPS = 10  # sweeps that a Gaussian by quadrature takes at a node, where an exact one takes one


def conditioned(case: Case) -> Iterator[Tried]:
    """All scalars that set a scale or a shape, those that set a scale, or every continuous site."""
    if GRID in case.failed:
        yield case.tried(GRID, f"given up: {case.failed[GRID]}")
        return
    every, setters, _ = sets = sets_of_scalars(case)
    tried = [sites for sites in dict.fromkeys(sets) if 0 < len(sites) <= MOST]
    for sites in tried:
        yield from given(case, sites, last=sites == setters)
    if not every and not tried:
        yield case.tried(GRID, "no scalar site sets the scale or shape of others")
    elif not tried:
        yield case.tried(GRID, f"{len(every)} scalars are too many for a grid")


def whole(case: Case) -> Iterator[Tried]:
    """Every continuous site on a grid, where they are a few scalars."""
    *_, sites = sets_of_scalars(case)
    if GRID not in case.failed and 0 < len(sites) <= MOST:
        yield from given(case, sites, last=False)


def sets_of_scalars(case: Case) -> tuple[tuple[str, ...], ...]:
    """All that set a scale or a shape, those that set a scale, and every continuous site.

    The last is empty where some site is no scalar.
    """
    model = case.model
    every = scalars_to_condition(model)
    setters = [n for n in scale_setters(model) if n in every]
    scalars = [n for n, s in model.latent.items() if is_scalar(s) and n not in case.discrete]
    whole = scalars if len(scalars) + len(case.discrete) == len(model.latent) else []
    return tuple(every), tuple(setters), tuple(whole)


def given(case: Case, sites: tuple[str, ...], last: bool) -> Iterator[Tried]:
    """The method with `sites` on a grid, if it pays."""
    names, nodes = listed(sites), NODES[len(sites)]
    rest = [n for n in case.model.latent if n not in sites]
    work, states = nodes * work_of(case.model, rest), nodes * states_of(case.model, rest)
    if states > MOST_STATES:
        cost = f"a grid over {names} would hold about {states:.0e} probabilities of discrete sites"
        yield case.tried(GRID, cost)
        return
    if work > MOST_WORK:
        cost = f"a grid over {names} would cost about {work:.0e} operations a sweep"
        yield case.tried(GRID, cost)
        return
    grid = f"{names} on a grid (about {nodes} nodes); given a node,"
    if not rest:
        yield case.tried(GRID, f"{grid} nothing is left", Given(sites))
        return
    structure = derived(problem_given(case.problem, sites)).structure
    if structure.residuals:
        yield from gaussian_given(case, sites, structure.residuals[0], last)
    elif structure.by_quadrature and STEPS * work > MOST_WORK:
        cost = f"a grid over {names} would cost about {STEPS * work:.0e} operations"
        yield case.tried(GRID, cost)
    elif structure.independent:
        what = "a Gaussian by quadrature" if structure.by_quadrature else "exact factors"
        yield case.tried(GRID, f"{grid} {what}", Given(sites))
    elif case.structure.residuals and not without_density(case):
        count = len(structure.blocks)
        yield case.tried(GRID, f"{grid} {count} factors by coordinate ascent", Given(sites))
    else:
        count = len(structure.blocks)
        yield case.tried(GRID, f"given {names}, the rest would still be {count} factors that meet")


def gaussian_given(
    case: Case, sites: tuple[str, ...], residual: Residual, last: bool
) -> Iterator[Tried]:
    """A Gaussian given scalars that set the scale of other latent sites."""
    names = listed(sites)
    if not last or without_density(case) or not affordable(case.model, sites):
        yield case.tried(GRID, f"given {names}, still {entry(residual)}")
        return
    size = size_of(case.model, sites)
    reason = f"{names} on a grid, because the scale of other sites hangs on it; given a node, a "
    yield case.tried(GRID, f"{reason}Gaussian of {size} numbers", Given(sites, Gaussian()))


def without_density(case: Case) -> bool:
    """Whether some latent site is discrete, or a count."""
    sites = case.model.latent.values()
    return any(s.support_values is not None or domain_of(s) is COUNT for s in sites)
