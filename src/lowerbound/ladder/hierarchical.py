"""The rung of hierarchies: hyperparameters integrated, a sparse Gaussian given them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

from lowerbound.compute.engine import derived
from lowerbound.errors import (
    ImproperPosteriorError,
    NoPredictorsError,
    NotIdentifiedWarning,
    TooDenseError,
)
from lowerbound.joint.blocks.gaussians import MAX_JOINT_DIMENSION
from lowerbound.joint.latents import domain_of
from lowerbound.joint.multiaffine import Structure
from lowerbound.joint.terms.domain import REAL
from lowerbound.ladder.case import Case, Tried, listed
from lowerbound.ladder.scalars import sets_of_scalars
from lowerbound.methods.grid.conditional import problem_given
from lowerbound.methods.grid.scalar_sites import observed_scales, scale_setters, size_of
from lowerbound.methods.hierarchy.by_chains.chained_theta import can_be_chained
from lowerbound.methods.hierarchy.finding_theta import MOST
from lowerbound.methods.hierarchy.hierarchies import Hierarchy, predictors_for, surface_for
from lowerbound.methods.hierarchy.identified import confounded, flat_sites
from lowerbound.methods.hierarchy.integrated_value import Integrated
from lowerbound.methods.hierarchy.predictors import Predictors

NAME = "integrated"
BOUNDED = "integrated, with sites that have bounds"
GRIDDED = 2  # scalars, up to which a grid with exact factors given them is as good
LEAST = 3  # numbers of z
SHARED = 6  # numbers that are integrated though none is said to be a scale
FEW = 150  # numbers of z that such a grid solves at every node


def integrated(case: Case) -> Iterator[Tried]:
    """Scales, correlations and shapes integrated together, whatever their number."""
    if case.discrete or not case.model.latent:
        return
    scales = _scales(case)
    if not scales and not _multiplied(case):
        yield from _known_scales(case)
        return
    gridded = on_a_grid(case) if scales and NAME not in case.failed else ()
    try:
        found = predictors_for(case.problem)
        _check(found)
        if gridded:
            yield case.tried(
                NAME, f"a grid over {listed(gridded)} does as well, with exact factors"
            )
            return
        if NAME not in case.failed:
            yield _tried(case, NAME, found)
            return
        yield case.tried(NAME, f"given up: {case.failed[NAME]}")
        if found.straight and BOUNDED not in case.failed:
            sites = found.straight
            yield _tried(case, BOUNDED, predictors_for(case.problem, sites), sites)
    except (NoPredictorsError, TooDenseError) as error:
        reason = (
            error.reason if isinstance(error, NoPredictorsError) else str(error).splitlines()[0]
        )
        yield case.tried(BOUNDED if NAME in case.failed else NAME, reason)


def _known_scales(case: Case) -> Iterator[Tried]:
    """One Gaussian of all sites with a sparse precision, where factors would be dense or several.

    Chains of known variances, for one: independent factors of neighbours lose their sds.
    """
    if not _dense_or_apart(case.structure) or NAME in case.failed:
        return
    try:
        found = predictors_for(case.problem)
        if found.theta or not found.all_real or found.size < LEAST:
            return
        if _as_well_together(case, found):
            return
        surface_for(case.problem, found)
    except (NoPredictorsError, TooDenseError):
        return
    flat = flat_sites(found)
    if flat:
        raise ImproperPosteriorError(flat)
    what = "the posterior" if found.is_quadratic else "the best one by quadrature"
    reason = f"all scales are known: one Gaussian of {found.size} numbers with a sparse precision"
    yield case.tried(NAME, f"{reason}, {what}", Integrated())


def _dense_or_apart(structure: Structure) -> bool:
    """Whether some terms fit no factor, or factors meet, or one is large."""
    sizes = [int(block.static.get("dim", 1)) for block in structure.blocks]
    alone = structure.independent and max(sizes, default=0) <= MAX_JOINT_DIMENSION
    return bool(structure.residuals) or not alone


def _check(found: Predictors) -> None:
    """Raise where the posterior is improper, and warn of scales that only priors tell apart."""
    flat = flat_sites(found)
    if flat:
        raise ImproperPosteriorError(flat)
    together = confounded(found)
    if together is not None:
        warnings.warn(NotIdentifiedWarning(*together), stacklevel=2)


def _tried(case: Case, name: str, found: Predictors, sites: Sequence[str] = ()) -> Tried:
    """The method, or why it is not taken."""
    if not found.theta:
        return case.tried(name, "no site sets a scale or a shape")
    if found.size < LEAST:
        return case.tried(name, f"given {listed(found.theta)}, hardly anything is left")
    if _as_well_together(case, found):
        reason = f"all {found.size + found.dimension} numbers together are a small Gaussian"
        return case.tried(name, f"{reason}, where rows need sums over several predictors each")
    surface = surface_for(case.problem, found)
    if found.dimension > MOST and not can_be_chained(surface):
        numbers = f"{found.dimension} numbers of {listed(found.theta)}"
        return case.tried(name, f"{numbers} are too many to be integrated")
    how = "exactly" if found.is_quadratic else "by quadrature"
    method = Integrated(sites=tuple(sites) or None)
    at_once = Hierarchy(case.problem, method).chained_at_once
    over = "by Hamiltonian chains" if at_once else "over points"
    return case.tried(
        name,
        f"{found.dimension} numbers of {listed(found.theta)} {over}; given these, a Gaussian "
        f"of {found.size} numbers with a sparse precision, {how}",
        method,
    )


def _as_well_together(case: Case, found: Predictors) -> bool:
    """Whether z has hardly more numbers than predictors that meet in a row, and no scale.

    Sums over the predictors of every row are then sums over z, as often as there are rows.
    """
    meeting = found.joint.clusters.shape[1] if found.meet else 0
    setters = set(scale_setters(case.model)) & set(found.theta)
    return found.size <= 2 * meeting and not setters


def _scales(case: Case) -> list[str]:
    """The sites that must be integrated, as far as their supports and their use tell."""
    latent = case.model.latent
    used = {*scale_setters(case.model), *observed_scales(case.model)}
    return [name for name in latent if name in used or domain_of(latent[name]) is not REAL]


def _multiplied(case: Case) -> bool:
    """Whether a few numbers multiply what others say, as exp of the logarithm of a scale does.

    Then some terms fit no factor; where all do, there is no need to look.
    """
    if not case.structure.residuals:
        return False
    try:
        found = predictors_for(case.problem)
    except NoPredictorsError:
        return False
    return 0 < found.dimension <= SHARED and found.size > found.dimension


def on_a_grid(case: Case) -> tuple[str, ...]:
    """A few scalars of which a grid is exact as well, and cheap; none where there are none."""
    for sites in dict.fromkeys(sets_of_scalars(case)):
        if not 0 < len(sites) <= GRIDDED or not 0 < size_of(case.model, sites) <= FEW:
            continue
        if derived(problem_given(case.problem, sites)).structure.is_posterior:
            return sites
    return ()
