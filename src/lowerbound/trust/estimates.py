"""How far the means and sds of q are off, from draws of q and log p at them.

Where the importance weights p / q are even, weighted averages over the draws tell. Where they are
not, draws of a law that is moved to p do (`proposals`). In many dimensions neither does; then short
chains from q do (`drift`), or at least the curvature of log p, averaged over q. Where an estimate
is near the limit of what counts, more draws are taken, as far as they go.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from lowerbound.family.numerics.pareto import smoothed_weights
from lowerbound.result.evidence import Evidence, Finding, Off
from lowerbound.result.verdicts import Drawn
from lowerbound.trust.against import Against, Moments
from lowerbound.trust.central_widths import log_width_ratio
from lowerbound.trust.drift import Drifted, drifted
from lowerbound.trust.optima.summits import Optima, Summit, other_summits
from lowerbound.trust.proposals import ENOUGH, Effort, nearest, score_matched, telling
from lowerbound.trust.weighing import EVEN, Weighted, weighted

FEW = 1.2  # standard errors by which the larger of two exceeds them, about
SURE = 2.0  # standard errors beyond which an estimate is no noise
LEAST_ACCEPTED = 0.4  # of the proposals of chains, below which they have not moved
MEAN, SD = 0.25, math.log(1.25)  # posterior sds, and a log ratio, that make a fit wrong
MOST_MORE = 7  # times the draws of q, on top, where their weights are sound
SEARCH = 0.5  # of the points, at most, that other summits are looked for with
FIXED = 16.0  # roundings of a number, within which its spread is no spread
MORE = 3.0  # times the points, on top, where an estimate is near a limit

Own = dict[str, Moments]


def measured(
    judge: Against, drawn: Drawn, elbo: float, points: int, seed: int = 0, optima: Optima = ()
) -> Evidence:
    """The evidence from draws of q, and where that takes more, from log p at so many points.

    optima: where other starts of the fit have converged.
    """
    values = judge.values(drawn.vectors)
    own = weighted(values, drawn.vectors, drawn.log_ratios)
    if points > 0 and (_is_even(own) if not own.tells else _is_open(_paired(own))):
        # The weights are sound, or but for a few, and too few: more of them are all that it takes.
        drawn = _with_more(judge, drawn, points, seed + 1)
        values = judge.values(drawn.vectors)
        own = weighted(values, drawn.vectors, drawn.log_ratios)
    count, alone = len(drawn.vectors), _alone(own)
    efficiency = own.size / count if len(own.log_weights) else 0.0
    others = other_summits(judge, drawn, own.log_mean, SEARCH * points, optima)

    def evidence(by: str, off: tuple[Off, ...], bound: Weighted = own) -> Evidence:
        gap, error = bound.log_mean - elbo, bound.log_mean_error
        found = tuple(_with_own(one, alone) for one in off)
        known = Evidence(by, count, own.k_hat, efficiency, gap, found, error)
        return replace(
            known,
            findings=tuple(_said(one) for one in others),
            summits=tuple((-math.log(one.mass), one.vector) for one in others),
        )

    even = own.even and not others
    if even and not _is_open(_paired(own)):
        return evidence("weights", _paired(own))
    moments = judge.moments(values, drawn)

    def near(found: Weighted) -> bool:
        return _is_open(_compared(moments, found))

    effort = Effort(points, near=near, more=MORE * points)
    around = nearest(judge, drawn, own, seed, effort, others)
    best = telling(around)
    if even and (best is None or _error(_paired(own)) < _error(_compared(moments, best))):
        return evidence("weights", _paired(own))
    if best is not None and own.tells and not others and _is_poorer(best, own):
        return evidence("weights", _paired(own))
    if best is not None:
        return evidence("proposals", _compared(moments, best), best)
    moved = drifted(lambda u: judge.target(u, few=True), drawn, points, seed)
    if moved is not None and moved.accepted > LEAST_ACCEPTED:
        off = moved_off(judge, moments, moved)
        if around is not None and around.size >= ENOUGH:
            off = tuple(map(_narrower, off, _compared(moments, around)))
        if not own.tells or others or _error(off) < _error(_paired(own)):
            return evidence("chains", off)
    if own.tells:
        return evidence("weights", _paired(own))
    return evidence("curvature", _curved(judge, drawn))


def _said(one: Summit) -> Finding:
    """What is to be said of a summit that q is not at."""
    times = f"about {one.mass:.2g} times the mass that q has found"
    if not one.mirrored:
        text = f"log p has another summit, beyond a valley, with {times}."
        return Finding("summit", text, value=one.mass)
    named = " and ".join(f"'{site}'" for site in one.mirrored)
    signs = "sign" if len(one.mirrored) == 1 else "signs"
    text = f"With the {signs} of {named} reversed log p is as high, and q has one of these images."
    return Finding("summit", text, one.mirrored[0], one.mass)


def _is_even(own: Weighted) -> bool:
    """Whether most draws of q weigh the same; one of some hundred may still make a heavy tail."""
    return own.made > 0 and len(own.log_weights) > 0 and own.size >= EVEN * own.made


def _is_poorer(best: Weighted, own: Weighted) -> bool:
    """Whether weighted draws tell less than those of q.

    The averages of both weights estimate the evidence: the one that is below the other by more
    than their errors misses mass, as a Student law does in the neck of a funnel.
    """
    errors = math.hypot(best.log_mean_error, own.log_mean_error)
    return best.size < own.size or best.log_mean < own.log_mean - SURE * errors


def _with_more(judge: Against, drawn: Drawn, points: int, seed: int) -> Drawn:
    """More draws of q, as many at a time as there were: the same compiled programs make them."""
    count = len(drawn.vectors)
    rounds = min(int(MORE * points) // count, MOST_MORE)
    for one in range(rounds):
        drawn = _joined(drawn, judge.drawn(count, seed + one))
    return drawn


def _joined(one: Drawn, other: Drawn) -> Drawn:
    """The draws of both, and what the second has to spare."""
    return Drawn(
        np.concatenate([one.vectors, other.vectors]),
        np.concatenate([one.log_p, other.log_p]),
        np.concatenate([one.gradients, other.gradients]),
        np.concatenate([one.log_q, other.log_q]),
        other.spare,
    )


def _error(off: tuple[Off, ...]) -> float:
    return max((one.spread_error for one in off), default=math.inf)


def _is_open(off: tuple[Off, ...]) -> bool:
    """Whether the errors of estimates leave open on which side of a limit q is."""
    return any(
        abs(abs(one.shift) - MEAN) < SURE * one.shift_error
        or abs(abs(one.spread) - SD) < SURE * one.spread_error
        for one in off
    )


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
        sd = sd * _varies(array)
        one = _worst(site, mean - weights @ x, variance, sd, shift_error, spread_error)
        if one is not None and SURE * one.spread_error > SD:  # the sd of so heavy a tail is noise
            one = _by_widths(one, x[:, sd > 0], weights)
        found.append(one)
    return tuple(one for one in found if one is not None)


def _by_widths(one: Off, x: np.ndarray, weights: np.ndarray) -> Off:
    """What is known of a site whose sds are not: the widths of its central intervals."""
    each = [log_width_ratio(column, weights) for column in x.T]
    spread, error = max(each, key=lambda pair: abs(pair[0]) - pair[1])
    return replace(one, spread=spread, spread_error=error, middle=True)


def _compared(moments: Own, best: Weighted) -> tuple[Off, ...]:
    """The moments of q beside averages over weighted draws of another density."""
    weights = np.exp(best.log_weights)
    found = []
    for site, own in moments.items():
        x = best.values[site].reshape(len(best.values[site]), -1).astype(float)
        centred = x - weights @ x
        variance = weights @ centred**2
        shift_error = np.sqrt(weights**2 @ centred**2 + own.mean_error**2)
        noise = weights**2 @ (centred**2 - variance) ** 2
        noise += (variance / own.variance * own.variance_error) ** 2
        shift, sd = own.mean - weights @ x, own.sd * _varies(best.values[site])
        found.append(_worst(site, shift, variance, sd, shift_error, np.sqrt(noise)))
    return tuple(one for one in found if one is not None)


def moved_off(judge: Against, moments: Own, moved: Drifted) -> tuple[Off, ...]:
    """The moments of q beside averages over what chains from there came to.

    The chains are independent; a chain's own draws are not, and count as one and a half.
    """
    after, found = judge.values(moved.vectors), []
    size = 1.5 * moved.chains
    for site, own in moments.items():
        x = after[site].reshape(len(after[site]), -1).astype(float)
        variance = x.var(axis=0)
        shift_error = np.sqrt(variance / size + own.mean_error**2)
        relative = np.sqrt(2 / size + (own.variance_error / own.variance) ** 2)
        shift, sd = own.mean - x.mean(axis=0), own.sd * _varies(after[site])
        found.append(_worst(site, shift, variance, sd, shift_error, variance * relative))
    return tuple(one for one in found if one is not None)


def _varies(draws: np.ndarray) -> np.ndarray:
    """Which elements are more than one number with its rounding, as the diagonal of a correlation
    matrix is: such a one is neither far off nor narrow.
    """
    x = draws.reshape(len(draws), -1)
    rounding = np.finfo(np.float32 if x.dtype == np.float32 else np.float64).eps
    varies: np.ndarray = np.ptp(x, axis=0) > FIXED * rounding * np.abs(x).max(axis=0)
    return varies


def _narrower(chains: Off, heavy: Off) -> Off:
    """What chains say of a site, unless weights with a heavy tail know q to be narrower.

    What such weights miss of a tail is missing from their sd: that q is too narrow, they can tell.
    """
    if heavy.site != chains.site or not heavy.spread < -SURE * heavy.spread_error:
        return chains
    if heavy.spread >= chains.spread:
        return chains
    return replace(chains, spread=heavy.spread, spread_error=heavy.spread_error)


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
    first = int(np.argmax(np.abs(off) - noise))
    second = int(np.argmax(np.abs(ratio) - ratio_noise))
    return Off(
        site,
        float(off[first]),
        float(ratio[second]),
        float(noise[first]),
        float(ratio_noise[second]),
    )


# --------------------------------------------------------------------------------------------------
# Weights, site by site


def _alone(own: Weighted) -> dict[str, tuple[float, float]]:
    """k-hat and effective size by site, of the element whose mean the weights of q tell worst.

    Weights may be heavy where a site does not mind, and even but for a site that they matter to.
    """
    if not len(own.log_weights):
        return {}
    weights, found = np.exp(own.log_weights), {}
    for site, array in own.values.items():
        x = array.reshape(len(array), -1).astype(float)
        centred = x - weights @ x
        noise = weights**2 @ centred**2
        with np.errstate(all="ignore"):
            sizes = (weights @ centred**2) / noise
        moves = np.flatnonzero(np.isfinite(sizes))
        if not len(moves):
            continue
        worst = int(moves[np.argmin(sizes[moves])])
        with np.errstate(divide="ignore"):
            squares = own.log_ratios + 2 * np.log(np.abs(centred[:, worst]))
        fine = squares[np.isfinite(squares)]
        even = own.k_hat == 0.0  # constant weights are perfect, whatever is averaged
        k_hat = 0.0 if even else smoothed_weights(fine)[1] if len(fine) else math.inf
        found[site] = (k_hat, float(sizes[worst]))
    return found


def _with_own(one: Off, alone: dict[str, tuple[float, float]]) -> Off:
    k_hat, size = alone.get(one.site, (math.nan, math.nan))
    return replace(one, k_hat=k_hat, size=size)


# --------------------------------------------------------------------------------------------------
# Curvature


def _curved(judge: Against, drawn: Drawn) -> tuple[Off, ...]:
    """How far q is from the Gaussian of full covariance that its draws see, in u."""
    found = score_matched(drawn)
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
