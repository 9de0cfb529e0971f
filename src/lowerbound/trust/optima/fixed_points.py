"""Other fixed points of coordinate ascent: whether they would move the moments of q.

An optimum a few nats below has a small share of the mass, and a small share that is far away moves
means by its share of the distance, and variances by its share of the square.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lowerbound.family.meanfield import MeanField
from lowerbound.family.variational import marginal_without
from lowerbound.result.fitted import Fit
from lowerbound.result.verdicts import Drawn
from lowerbound.trust.against import Against, Moments, auxiliary_sites
from lowerbound.trust.estimates import MEAN, SD
from lowerbound.trust.optima.summits import COUNTS

DRAWS = 512
SAME = 0.1  # nats between equal optima: the same up to the names of components


@dataclass(frozen=True)
class FixedPoint:
    """Another optimum: nats below, and what q would be off by with its share of the mass.

    shift: of a mean, in sds; spread: the log of a ratio of sds. Both are infinite where its factors
    were not kept.
    """

    gap: float
    site: str = ""
    shift: float = math.inf
    spread: float = math.inf

    @property
    def counts(self) -> bool:
        """Whether it moves a mean or an sd by more than the limits."""
        return abs(self.shift) > MEAN or abs(self.spread) > SD


def other_fixed_point(fit: Fit, judge: Against, drawn: Drawn) -> FixedPoint | None:
    """The other optimum of coordinate ascent that counts most; None where none does.

    Those of one ELBO are the same up to the names of components.
    """
    if not isinstance(fit.q.family, MeanField):
        return None
    if fit.answer.others:
        own = judge.moments(judge.values(drawn.vectors), drawn)
        found = [_weighed(fit, judge, own, gap, factors) for gap, factors in fit.answer.others]
    else:
        best = max((one.elbo for one in fit.restarts), default=-math.inf)
        gaps = [best - one.elbo for one in fit.restarts if one.reason.startswith("converged")]
        found = [FixedPoint(gap) for gap in gaps if SAME < gap < COUNTS]
    known = [one for one in found if one is not None and one.counts]
    return min(known, key=lambda one: one.gap, default=None)


def _weighed(
    fit: Fit, judge: Against, own: Mapping[str, Moments], gap: float, factors: object
) -> FixedPoint | None:
    """What the factors of another optimum would move, with their share of the mass."""
    absent = [site for site in fit.sites if site not in judge.coordinates.shapes]
    there = marginal_without(fit.q.family, factors, [*absent, *auxiliary_sites(fit)])
    if there is None:
        return FixedPoint(gap) if gap < COUNTS else None
    values = Against(judge.target, *there).sites(fit.seed, DRAWS)
    share = math.exp(-gap) / (1.0 + math.exp(-gap))
    worst = FixedPoint(gap, "", 0.0, 0.0)
    for site, here in own.items():
        shift, spread = _moved(here, Moments.of_draws(values[site]), share)
        if max(shift / MEAN, spread / SD) > max(worst.shift / MEAN, worst.spread / SD):
            worst = FixedPoint(gap, site, shift, spread)
    return worst


def _moved(here: Moments, there: Moments, share: float) -> tuple[float, float]:
    """How far a mean and an sd of a site are from those of both optima together.

    Elements are compared in the order of their means: other names of components move nothing.
    """
    one, other = np.argsort(here.mean), np.argsort(there.mean)
    mean = (1.0 - share) * here.mean[one] + share * there.mean[other]
    variance = (1.0 - share) * (here.variance[one] + (here.mean[one] - mean) ** 2)
    variance = variance + share * (there.variance[other] + (there.mean[other] - mean) ** 2)
    fine = (variance > 0) & (here.variance[one] > 0)
    if not fine.any():
        return 0.0, 0.0
    shift = np.abs(here.mean[one] - mean)[fine] / np.sqrt(variance[fine])
    spread = 0.5 * np.abs(np.log(here.variance[one][fine] / variance[fine]))
    return float(shift.max()), float(spread.max())
