"""The rung of scales that are too many to be integrated: chains over them, and effects given them.

A Gaussian over everything is foreseeably far off there: a coefficient and a scale of its own make a
funnel, and one whose prior has no variance a long one. In coordinates where each coefficient is
standard given the scales there is none (`methods.sampling`).
"""

from __future__ import annotations

from collections.abc import Iterator

from lowerbound.errors import NoPredictorsError
from lowerbound.joint.latents import domain_of
from lowerbound.joint.terms.domain import POSITIVE, SIMPLEX, UNIT
from lowerbound.ladder.case import Case, Tried, listed
from lowerbound.methods.grid.scalar_sites import noise_setters
from lowerbound.methods.hierarchy.hierarchies import predictors_for
from lowerbound.methods.hierarchy.predictors import Predictors
from lowerbound.methods.sampling.sampled import MOST, sampled_predictors
from lowerbound.methods.sampling.trajectories_value import Trajectories

NAME = "trajectories"
MANY = 10  # numbers of theta, above which they are too many to be integrated where they are local
LOCAL = 4  # numbers of z for each of theta, up to which scales are about as many as effects
LEAST = 3  # numbers of z


def sampled(case: Case) -> Iterator[Tried]:
    """Chains over local scales, about as many as there are effects; these are exact given them."""
    small = MANY < case.size <= 2 * MOST
    if not small or case.discrete or not _has_many(case):
        return
    try:
        found = sampled_predictors(case.problem)
    except NoPredictorsError:
        return
    if not _is_local(case, found):
        return
    given = "exactly" if found.is_quadratic else "by a change of variables"
    yield case.tried(
        NAME,
        f"{found.dimension} numbers of {listed(found.theta)} are about as many as the "
        f"{found.size} that they are scales of; chains over them, and {listed(found.z)} given "
        f"them, {given}",
        Trajectories(),
    )


def _has_many(case: Case) -> bool:
    """Whether there may be more numbers of theta than can be integrated."""
    if sum(_bounded(case).values()) <= MANY:
        return False
    try:
        return predictors_for(case.problem).dimension > MANY
    except NoPredictorsError:
        return True


def _is_local(case: Case, found: Predictors) -> bool:
    """Whether theta are many scales, and effects not many more."""
    scales = sum(_bounded(case).get(name, 0) for name in found.theta)
    return scales > max(MANY, found.dimension // 2) and LEAST <= found.size <= LOCAL * scales


def _bounded(case: Case) -> dict[str, int]:
    """The numbers of each site that is positive, or a share, and no noise of the data."""
    noise = noise_setters(case.model)
    kinds = {n: domain_of(site) for n, site in case.model.latent.items() if n not in noise}
    return {n: case.sizes[n] for n, kind in kinds.items() if kind in (POSITIVE, UNIT, SIMPLEX)}
