"""How far the means and sds of q are off, from draws of q and log p at them.

Where the importance weights p / q are even, weighted averages over the draws tell. Where they are
not, draws of a Student law around what they say of p do, a few times: adaptive importance sampling.
In many dimensions neither does; then the curvature of log p, averaged over q, gives the sds that a
Gaussian of full covariance would have (by Stein's identity, its mean -E[grad log p (u - m)'] C^-1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lowerbound.family.numerics.pareto import smoothed_weights
from lowerbound.result.verdicts import Drawn, Evidence, Off
from lowerbound.trust.against import Against
from lowerbound.trust.drift import drifted

EVEN = 0.8  # effective size over number from which the weights of q tell
FREEDOM = 5.0  # degrees of freedom of proposals: heavier than any posterior of interest
PROPOSALS = (1024, 2048, 4096, 8192)  # in each round
FEWEST = 100  # effective draws that estimates need
ENOUGH = 800  # with which no better proposals are looked for
DRAWS_PER_NUMBER = 4  # for a curvature
MOST_NUMBERS = 100  # in which a proposal can come near
FEW = 1.2  # standard errors by which the larger of two exceeds them, about
SURE = 2.0  # standard errors beyond which an estimate is no noise
LEAST_ACCEPTED = 0.4  # of the proposals of chains, below which they have not moved
HEAVY = 0.7  # k-hat above which weights tell nothing (Vehtari et al. 2024)

Values = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Weighted:
    """Weighted draws that stand for the posterior."""

    values: Values
    vectors: np.ndarray
    log_weights: np.ndarray  # smoothed, summing to one
    k_hat: float
    log_mean: float  # log of the average of the raw weights: the importance-weighted bound
    log_mean_error: float = 0.0
    made: int = 0  # draws, those without a density included

    @property
    def size(self) -> float:
        """The effective number of draws."""
        return float(1.0 / np.exp(2 * self.log_weights).sum())

    @property
    def tells(self) -> bool:
        """Whether averages over the draws are near those of the posterior."""
        return self.k_hat < HEAVY and self.size >= FEWEST


def weighted(values: Values, vectors: np.ndarray, log_ratios: np.ndarray) -> Weighted:
    """Draws of any density with log p less that density, which may be -inf or no number."""
    fine = np.isfinite(log_ratios)
    kept = {name: array[fine] for name, array in values.items()}
    if not fine.any():
        return Weighted(kept, vectors[fine], np.zeros(0), math.inf, -math.inf)
    ratios, made = log_ratios[fine], len(log_ratios)
    top = ratios.max()
    raw = np.exp(ratios - top)
    log_mean = float(top + np.log(raw.sum() / made))
    error = math.sqrt(max(float((raw**2).sum() / raw.sum() ** 2) - 1.0 / made, 0.0))
    log_weights, k_hat = smoothed_weights(ratios)
    return Weighted(kept, vectors[fine], log_weights, k_hat, log_mean, error, made)


def measured(judge: Against, drawn: Drawn, elbo: float, points: int, seed: int = 0) -> Evidence:
    """The evidence from draws of q, and where that takes more, from log p at so many points."""
    values = judge.values(drawn.vectors)
    own = weighted(values, drawn.vectors, drawn.log_ratios)
    count = len(drawn.vectors)
    efficiency = own.size / count if len(own.log_weights) else 0.0
    gap = own.log_mean - elbo
    if efficiency >= EVEN and own.tells:
        return Evidence("weights", count, own.k_hat, efficiency, gap, _paired(own))
    best = proposed(judge, drawn, own, points, seed)
    if best is not None:
        off = _compared(values, best)
        return Evidence("proposals", count, own.k_hat, efficiency, best.log_mean - elbo, off)
    moved = drifted(lambda u: judge.target(u, few=True), drawn, points, seed)
    if moved is not None and moved.accepted > LEAST_ACCEPTED:
        off = _drifted(values, judge.values(moved.vectors), moved.chains)
        return Evidence("chains", count, own.k_hat, efficiency, gap, off)
    if own.tells:
        return Evidence("weights", count, own.k_hat, efficiency, gap, _paired(own))
    return Evidence("curvature", count, own.k_hat, efficiency, gap, _curved(judge, drawn))


# --------------------------------------------------------------------------------------------------
# Averages over weighted draws


def _paired(own: Weighted) -> tuple[Off, ...]:
    """Averages over the draws of q with and without weights: what even weights leave is noise."""
    weights = np.exp(own.log_weights)
    excess = weights - 1.0 / len(weights)
    found = []
    for site, array in own.values.items():
        x = array.reshape(len(array), -1).astype(float)
        mean, sd = x.mean(axis=0), x.std(axis=0)
        centred = x - weights @ x
        variance = weights @ centred**2
        shift_error = np.sqrt(excess**2 @ centred**2)
        spread_error = np.sqrt(excess**2 @ (centred**2 - variance) ** 2)
        found.append(_worst(site, mean - weights @ x, variance, sd, shift_error, spread_error))
    return tuple(one for one in found if one is not None)


def _compared(values: Values, best: Weighted) -> tuple[Off, ...]:
    """Averages over draws of q beside those over weighted draws of another density."""
    weights = np.exp(best.log_weights)
    found = []
    for site, array in values.items():
        x = best.values[site].reshape(len(best.values[site]), -1).astype(float)
        own = array.reshape(len(array), -1).astype(float)
        centred = x - weights @ x
        variance = weights @ centred**2
        shift_error = np.sqrt(weights**2 @ centred**2 + variance / len(own))
        noise = weights**2 @ (centred**2 - variance) ** 2 + 2 * variance**2 / len(own)
        shift, sd = own.mean(axis=0) - weights @ x, own.std(axis=0)
        found.append(_worst(site, shift, variance, sd, shift_error, np.sqrt(noise)))
    return tuple(one for one in found if one is not None)


def _drifted(values: Values, after: Values, chains: int) -> tuple[Off, ...]:
    """Averages over draws of q beside those over what chains from there came to.

    The chains are independent; a chain's own draws are not, and count as one and a half.
    """
    found = []
    size = 1.5 * chains
    for site, array in values.items():
        own = array.reshape(len(array), -1).astype(float)
        x = after[site].reshape(len(after[site]), -1).astype(float)
        variance, sd = x.var(axis=0), own.std(axis=0)
        shift_error = np.sqrt(variance * (1 / size + 1 / len(own)))
        variance_error = variance * math.sqrt(2 / size + 2 / len(own))
        shift = own.mean(axis=0) - x.mean(axis=0)
        found.append(_worst(site, shift, variance, sd, shift_error, variance_error))
    return tuple(one for one in found if one is not None)


def _worst(
    site: str,
    shift: np.ndarray,
    variance: np.ndarray,
    sd: np.ndarray,
    shift_error: np.ndarray,
    variance_error: np.ndarray,
) -> Off | None:
    """The elements of a site whose mean and whose sd are farthest off, beyond noise.

    The largest of many errors is larger than one of them: as sqrt(2 log m) standard errors.
    """
    moves = (variance > 0) & (sd > 0) & np.isfinite(variance) & np.isfinite(sd)
    if not moves.any():
        return None
    true = np.sqrt(variance[moves])
    off, noise = shift[moves] / true, shift_error[moves] / true
    ratio = np.log(sd[moves] / true)
    ratio_noise = 0.5 * variance_error[moves] / variance[moves]
    largest = math.sqrt(2 * math.log(int(moves.sum())))
    many = 1.0 + max(largest - FEW, 0.0) / SURE
    noise, ratio_noise = many * noise, many * ratio_noise
    first = int(np.argmax(np.abs(off) - SURE * noise))
    second = int(np.argmax(np.abs(ratio) - SURE * ratio_noise))
    return Off(
        site,
        float(off[first]),
        float(ratio[second]),
        float(noise[first]),
        float(ratio_noise[second]),
    )


# --------------------------------------------------------------------------------------------------
# Proposals around what is known of p


def proposed(
    judge: Against,
    drawn: Drawn,
    own: Weighted,
    points: float,
    seed: int,
    rounds: Sequence[int] = PROPOSALS,
    enough: float = ENOUGH,
) -> Weighted | None:
    """Weighted draws of a Student law that is moved to p in rounds; None where none comes near.

    It ends when so many effective draws are `enough`, or there are so many `points` of log p.
    `own` are the weighted draws of q.
    """
    dimension = drawn.vectors.shape[1]
    if dimension > MOST_NUMBERS:
        return None
    place = _matched(drawn) or _moments_of(own, drawn)
    rng, best, left = np.random.default_rng(seed), None, points
    for most in rounds:
        count = int(min(most, left))
        if place is None or count < FEWEST:
            break
        left -= count
        vectors, log_law = _student(*place, count, rng)
        log_p = judge.target(vectors, few=True)[0]
        found = weighted(judge.values(vectors), vectors, log_p - log_law)
        if not len(found.log_weights):
            break
        if best is None or (found.tells, found.size) > (best.tells, best.size):
            best = found
        if best.tells and best.size >= enough:
            break
        place = _moments_of(found, drawn)
    return best if best is not None and best.tells else None


Place = tuple[np.ndarray, np.ndarray]  # a location, and the root of a covariance


def _matched(drawn: Drawn) -> Place | None:
    """The Gaussian whose score is nearest to that of p over the draws, where there is one."""
    found = _score_matched(drawn)
    if found is None:
        return None
    mean, root, slope, curvature, _ = found
    inner = np.linalg.inv(curvature)
    covariance = root @ inner @ root.T
    return mean + root @ (inner @ slope), np.linalg.cholesky(0.5 * (covariance + covariance.T))


def _score_matched(drawn: Drawn) -> tuple[np.ndarray, ...] | None:
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


def _moments_of(found: Weighted, drawn: Drawn) -> Place | None:
    """Location and root of the covariance of weighted draws; few of them lean on those of q."""
    weights = np.exp(found.log_weights)
    if not len(weights):
        return None
    dimension = drawn.vectors.shape[1]
    mean = weights @ found.vectors
    centred = found.vectors - mean
    prior = np.atleast_2d(np.cov(drawn.vectors.T))
    lean = dimension / (dimension + found.size)
    covariance = (1 - lean) * (centred.T * weights) @ centred + lean * prior
    try:
        return mean, np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return None


def _student(
    loc: np.ndarray, root: np.ndarray, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of a Student law, and its log density at them."""
    dimension = len(loc)
    freedom = max(FREEDOM, dimension / 2)
    normal = rng.standard_normal((count, dimension))
    stretch = np.sqrt(freedom / rng.chisquare(freedom, count))
    vectors = loc + (normal * stretch[:, None]) @ root.T
    distance = (normal**2).sum(axis=1) * stretch**2
    log_law = (
        math.lgamma((freedom + dimension) / 2)
        - math.lgamma(freedom / 2)
        - 0.5 * dimension * math.log(freedom * math.pi)
        - np.log(np.diagonal(root)).sum()
        - 0.5 * (freedom + dimension) * np.log1p(distance / freedom)
    )
    return vectors, log_law


# --------------------------------------------------------------------------------------------------
# Curvature


def _curved(judge: Against, drawn: Drawn) -> tuple[Off, ...]:
    """How far q is from the Gaussian of full covariance that its draws see, in u."""
    found = _score_matched(drawn)
    if found is None:
        return ()
    _, root, slope, curvature, noise = found
    inner = np.linalg.inv(curvature)
    sd = np.sqrt(np.diagonal(root @ inner @ root.T))
    shift = -(root @ (inner @ slope)) / sd
    spread = np.log(np.sqrt((root**2).sum(axis=1)) / sd)
    error = np.full_like(sd, float(np.sqrt((noise**2).sum())))
    ones = np.ones_like(sd)
    found_off = []
    for site in judge.coordinates.shapes:
        part = judge.coordinates.part(site)
        one = _worst(
            site, shift[part], ones[part], np.exp(spread[part]), error[part], 2 * error[part]
        )
        found_off += [one] if one is not None else []
    return tuple(found_off)
