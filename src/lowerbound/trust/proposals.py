"""Draws of a law that is moved to the posterior, where those of q are too far from it.

Adaptive importance sampling: a Student law around the Gaussian whose slopes are nearest to those of
log p over draws of q (by Stein's identity, the curvature of log p averaged over q is
-E[grad log p (u - m)'] C^-1), then around the weighted draws of the round before; in several parts
where these are bent or have a long tail, and there are enough of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lowerbound.result.verdicts import Drawn
from lowerbound.trust.against import Against
from lowerbound.trust.laws import Law, Place
from lowerbound.trust.optima.summits import MOST_PROPOSED, Summit
from lowerbound.trust.weighing import FEWEST, Weighted, together, weighted

PROPOSALS = (1024, 2048, 4096, 8192, 8192)  # in each round
ENOUGH = 800  # effective draws with which no better proposals are looked for
PLENTY = 10 * ENOUGH  # with which no more are, even where they leave something open
DRAWS_PER_NUMBER = 4  # for a curvature
PER_PART, MOST_PARTS = 20, 4  # effective draws for a number of each part of a law, and parts of it
UNBENT = 0.5  # effective draws over all, from which one part is enough


@dataclass(frozen=True)
class Effort:
    """How much is done to come near: points of log p in all, and in each round.

    near: whether weighted draws leave open what they are asked, so that as many `more` points are
    worth their time. enough: effective draws. light: k-hat of their weights, where less is better.
    """

    points: float = math.inf
    rounds: Sequence[int] = PROPOSALS
    enough: float = ENOUGH
    near: Callable[[Weighted], bool] = lambda found: False
    more: float = 0.0
    light: float = math.inf

    def left(self, best: Weighted | None, spent: int) -> float:
        """The points that another round may take."""
        near = best is not None and best.tells and best.size < PLENTY and self.near(best)
        return self.points + (self.more if near else 0.0) - spent

    def is_done(self, best: Weighted | None, spent: int) -> bool:
        """Whether no further round is worth its time."""
        if self.left(best, spent) < FEWEST:
            return True
        if best is None or not best.tells or best.size < self.enough or best.k_hat > self.light:
            return False
        return best.size >= PLENTY or not self.near(best)


def telling(found: Weighted | None) -> Weighted | None:
    """Weighted draws whose weights tell; None of others."""
    return found if found is not None and found.tells else None


def nearest(
    judge: Against,
    drawn: Drawn,
    own: Weighted,
    seed: int,
    effort: Effort,
    others: Sequence[Summit] = (),
) -> Weighted | None:
    """Weighted draws of a law that is moved to p: the best of some rounds, telling or not.

    `own` are the weighted draws of q; `others` are summits that q is not at. Rounds are taken
    together where that is worth more.
    """
    dimension = drawn.vectors.shape[1]
    if dimension > MOST_PROPOSED:
        return None
    prior = np.atleast_2d(np.cov(drawn.vectors.T))
    law = _first(drawn, own, prior, others)
    rng, best, spent = np.random.default_rng(seed), None, 0
    for most in effort.rounds:
        if law is None or effort.is_done(best, spent):
            break
        count = int(min(most, effort.left(best, spent)))
        spent += count
        vectors, log_law = law.drawn(count, rng)
        log_p = judge.target(vectors, few=True)[0]
        found = weighted(judge.values(vectors), vectors, log_p - log_law)
        if not len(found.log_weights):
            break
        best = found if best is None else _better(best, found)
        law = _next(law, best if best.tells else found, prior, rng)
    return best


def _next(law: Law, found: Weighted, prior: np.ndarray, rng: np.random.Generator) -> Law | None:
    """The law of the next round; in parts where one place is not enough for a bend or a tail."""
    moved = law.moved(found, prior)
    parts = int(min(found.size / (PER_PART * len(prior)), MOST_PARTS))
    if moved is None or len(moved.places) > 1 or parts < 2 or found.size > UNBENT * found.made:
        return moved
    return moved.parted(found, parts, rng)


def _first(drawn: Drawn, own: Weighted, prior: np.ndarray, others: Sequence[Summit]) -> Law | None:
    """The law of the first round: at q, or where its slopes point to, and at other summits."""
    place = matched(drawn)
    if place is None:
        mean = drawn.vectors.mean(axis=0)
        moved = Law.at([(mean, np.eye(len(mean)))]).moved(own, prior)
        if moved is None:
            return None
        (place,) = moved.places
    places = [place, *((one.vector, one.root) for one in others)]
    return Law.at(places, [1.0, *(one.mass for one in others)])


def _better(one: Weighted, other: Weighted) -> Weighted:
    """The draws of the two that tell more, or both together."""
    if one.tells and other.tells:
        both = together(one, other)
        if both.tells and both.size > max(one.size, other.size):
            return both
    return max(one, other, key=lambda found: (found.tells, found.size))


def matched(drawn: Drawn) -> Place | None:
    """The Gaussian whose score is nearest to that of p over the draws, where there is one."""
    found = score_matched(drawn)
    if found is None:
        return None
    mean, root, slope, curvature, _ = found
    inner = np.linalg.inv(curvature)
    covariance = root @ inner @ root.T
    return mean + root @ (inner @ slope), np.linalg.cholesky(0.5 * (covariance + covariance.T))


def score_matched(drawn: Drawn) -> tuple[np.ndarray, ...] | None:
    """Mean and root of the draws; slope, curvature and noise of log p where q is standard."""
    fine = np.isfinite(drawn.gradients).all(axis=1) & np.isfinite(drawn.log_p)
    u, gradients = drawn.vectors[fine], drawn.gradients[fine]
    count, dimension = u.shape
    if count < max(DRAWS_PER_NUMBER * dimension, 2 * dimension + 10):
        return None
    mean = u.mean(axis=0)
    covariance = np.atleast_2d(np.cov(u.T))
    try:
        root = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return None
    z, scores = np.linalg.solve(root, (u - mean).T).T, gradients @ root
    curvature = -scores.T @ z / count
    residual = scores - scores.mean(axis=0) + z @ curvature.T
    curvature = 0.5 * (curvature + curvature.T)
    if not np.isfinite(curvature).all() or np.linalg.eigvalsh(curvature)[0] <= 0:
        return None
    return mean, root, scores.mean(axis=0), curvature, residual.std(axis=0) / math.sqrt(count)
