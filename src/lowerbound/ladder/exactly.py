"""Rungs of exact updates: one factor, coordinate ascent, and auxiliary sites that allow it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lowerbound.errors import AugmentationError
from lowerbound.joint import inputs_of
from lowerbound.joint.multiaffine import Structure
from lowerbound.joint.terms.impossible import is_impossible
from lowerbound.ladder.case import Case, Tried, entry, listed
from lowerbound.ladder.exchangeable import exchangeable
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.methods.gaussian.unconstrained_methods import FULL_BELOW
from lowerbound.methods.rewriting.augmenting import Augmented, augmented_problem
from lowerbound.methods.rewriting.enumeration import Enumeration, can_be_enumerated
from lowerbound.methods.rewriting.summed_out import summed_problem
from lowerbound.rewrite.augment import possible

STARTS = 6  # of coordinate ascent, two of every kind, where they cost little
SMALL_MIXTURE = 10_000  # responsibilities, in all discrete factors
FEW_TRANSITIONS = 1_000  # of all paths: the sum over them costs little in every step of a Gaussian
FEW_STEPS, SIDE_BY_SIDE = 100, 20_000  # of one path, and transitions of many such, summed at once
# Rows for each number, from where on a posterior is near a Gaussian; responsibilities in all rows.
MANY_ROWS, SUMMED_IN_STEPS = 100, 50_000


def exact(case: Case) -> Iterator[Tried]:
    """One factor holds every latent site, with a closed form."""
    structure = case.structure
    alone = structure.independent and not structure.residuals
    if not alone and can_be_enumerated(case.model):
        reason = f"the values of {listed(case.discrete)} are summed over"
        yield case.tried("exact", f"{reason}, together where they meet", Enumeration())
        return
    if structure.residuals:
        first = structure.residuals[0]
        yield case.tried("exact", f"{entry(first)} ({first.where})")
        return
    curved, alone = structure.by_quadrature, structure.independent
    if alone and not curved:
        yield case.tried("exact", "no term joins two factors, so q is the posterior", CAVI())
    elif alone:
        yield case.tried("exact", "the best Gaussian is not the posterior")
    else:
        count = len(structure.blocks)
        yield case.tried("exact", f"{count} factors meet that are independent in q")


def coordinates(case: Case) -> Iterator[Tried]:
    """Every site has a factor: coordinate ascent."""
    structure, name = case.structure, "coordinate ascent"
    if structure.residuals:
        yield case.tried(name, "some terms fit no factor (see exact)")
        return
    excluding = exclusions(case)
    if excluding and 0 < case.size <= FULL_BELOW and case.summable:
        reason = "exclude values of each other, which independent factors cannot say"
        yield case.tried(name, f"{listed(excluding)} {reason}")
        return
    short = short_paths(structure)
    if short and 0 < case.size <= FULL_BELOW and case.summable:
        reason = "short enough to be summed out of a Gaussian, which loses less"
        yield case.tried(name, f"{listed(short)} makes a path {reason}")
        return
    many = many_rows(case)
    if many:
        reason = f"there are {case.size} numbers, and {MANY_ROWS} rows or more for each"
        yield case.tried(name, f"{listed(many)} summed out of a Gaussian loses less: {reason}")
        return
    how = " (some expectations by quadrature)" if structure.by_quadrature else ""
    starts = STARTS if several_optima(structure) else 1
    often = f"; {starts} starts, as the ELBO may have several optima" if starts > 1 else ""
    reason = f"every site has an optimal factor{how}{often}"
    yield case.tried(name, reason, CAVI(restarts=starts))


def augmented_exactly(case: Case) -> Iterator[Tried]:
    """Auxiliary sites that make every update exact, where a Gaussian is out of reach."""
    residuals, name, model = case.structure.residuals, "augmented", case.model
    if not residuals:
        return
    kinds = {site.name: site.distribution for site in model.sites}
    choices = {
        r.site: () if r.site in case.discrete else possible(kinds[r.site])[:1] for r in residuals
    }
    unknown = [site for site, known in choices.items() if not known]
    if unknown:
        yield case.tried(name, f"none is known for '{unknown[0]}', {kinds[unknown[0]]}")
        return
    named = {site: known[0] for site, known in choices.items()}
    if case.size <= FULL_BELOW and (not case.discrete or case.summable):
        reason = f"a Gaussian of {case.size} numbers is affordable, and loses less"
        yield case.tried(name, reason)
        return
    try:
        structure = augmented_problem(case.problem, named).joint.structure
    except AugmentationError as error:
        yield case.tried(name, str(error).split("   (")[0])
        return
    if structure.residuals:
        yield case.tried(name, f"with {named}, terms would still be left over")
        return
    yield case.tried(name, f"{named}: every update is exact", Augmented(named, CAVI()))


def several_optima(structure: Structure) -> bool:
    """Whether a small model has discrete factors that meet others: a mixture, in the main."""
    discrete = [block for block in structure.blocks if block.family.enumerable]
    size = sum(b.elements * int(b.static["dim"]) for b in discrete)
    numbers = {block.number for block in discrete}
    meets = any(s.blocks & numbers and s.blocks - numbers for s in structure.summands)
    return meets and size <= SMALL_MIXTURE


def many_rows(case: Case) -> tuple[str, ...]:
    """The discrete sites, where few numbers are known by so many rows that a Gaussian has them.

    Given q of every row, the numbers look better known than they are; summed over, the rows make a
    likelihood of the numbers, near a Gaussian as all are. Not so where components may change
    places: there the posterior has many summits.
    """
    structure = case.structure
    discrete = [block for block in structure.blocks if block.family.enumerable]
    numbers = {block.number for block in discrete}
    meets = any(s.blocks & numbers and s.blocks - numbers for s in structure.summands)
    alone = all(b.elements == math.prod(b.batch_shape) for b in discrete)  # no path
    rows = min((b.elements for b in discrete), default=0)
    states = sum(b.elements * int(b.static["dim"]) for b in discrete)
    few = 0 < MANY_ROWS * case.size <= rows and case.size <= FULL_BELOW
    if not (meets and alone and few and states <= SUMMED_IN_STEPS and case.summable):
        return ()
    summation, problem = summed_problem(case.problem)
    return () if exchangeable(problem.model) else tuple(summation.names)


def short_paths(structure: Structure) -> tuple[str, ...]:
    """The discrete sites of paths that meet other factors, where transitions are few."""
    paths = [
        block
        for block in structure.blocks
        if block.family.enumerable and block.elements > math.prod(block.batch_shape)
    ]
    numbers = {block.number for block in paths}
    meets = any(s.blocks & numbers and s.blocks - numbers for s in structure.summands)
    steps = max((b.elements // math.prod(b.batch_shape) for b in paths), default=0)
    most = SIDE_BY_SIDE if steps <= FEW_STEPS else FEW_TRANSITIONS
    few = sum(b.elements * int(b.static["dim"]) ** 2 for b in paths) <= most
    return tuple(site for block in paths for site in block.sites) if meets and few else ()


def exclusions(case: Case) -> tuple[str, ...]:
    """The discrete sites of which some values together are impossible, where there are such.

    Elements of one site may exclude values of each other too, as neighbours in a chain do.
    """
    joint, model = case.problem.joint, case.model
    blocks = {block.number: block for block in joint.blocks if block.family.enumerable}
    meeting = [s for s in joint.structure.summands if sum(r.block in blocks for r in s.reads) > 1]
    if not meeting:
        return ()
    arrays = joint.compress(inputs_of(model))
    found: set[str] = set()
    for summand in meeting:
        low = [is_impossible(arrays[slot].min(initial=0.0)) for slot, _ in summand.constants]
        if any(low) or is_impossible(summand.coefficient):
            found |= {site for n in summand.blocks if n in blocks for site in blocks[n].sites}
    return tuple(name for name in model.latent if name in found)
