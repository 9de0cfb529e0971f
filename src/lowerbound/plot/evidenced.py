"""What a verdict rests on: how far the means and sds of every site are off."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowerbound.errors import ArgumentError, NotAFitError
from lowerbound.plot.axes import COLOURS, INK, PALE, bare, pyplot
from lowerbound.plot.captions import trust_caption
from lowerbound.result.fitted import Fit
from lowerbound.result.verdicts import Off, Verdict
from lowerbound.trust.judging import MEAN, SD

MOST = 30  # sites
BY = {
    "weights": "importance weights of draws of q",
    "proposals": "draws around the posterior",
    "chains": "short chains that start at q",
    "curvature": "the curvature of log p",
}


def evidence(result: Fit | Verdict) -> np.ndarray:
    """How far q is off, site by site: the mean in posterior sds, and the sd as a ratio.

    Of every site its worst number, with two standard errors of the estimate. Outside the grey bands
    (a quarter of an sd; a quarter of the width) a fit counts as wrong, and orange marks those that
    are surely there. Of many sites the worst. Returns the axes, shape (2,): means, sds.

    >>> from lowerbound.result.verdicts import Evidence, Off, Verdict
    >>> off = (Off("tau", 0.1, -0.7, 0.05, 0.1), Off("mu", 0.0, 0.01, 0.05, 0.05))
    >>> found = Verdict("means", "q is narrow", "", Evidence("weights", 500, 0.4, 0.5, 0.1, off))
    >>> means, sds = lb.plot.evidence(found)
    >>> [text.get_text() for text in means.get_yticklabels()]
    ['tau', 'mu']
    """
    if not isinstance(result, Fit | Verdict):
        raise NotAFitError("plot.evidence", result)
    verdict = result.verdict if isinstance(result, Fit) else result
    known = verdict.evidence
    if known is None or not known.off:
        raise ArgumentError(
            f"plot.evidence got a verdict without measurements: {verdict.reason}.\n"
            "Expected one that draws were made for: lb.plot.evidence(lb.check(fit))."
        )
    shown = sorted(known.off, key=_worst, reverse=True)[:MOST]
    figure, (left, right) = pyplot().subplots(
        1, 2, figsize=(5.4, 0.24 * len(shown) + 1.5), sharey=True, layout="constrained"
    )
    at = np.arange(len(shown))
    _panel(left, at, [(one.shift, one.shift_error) for one in shown], MEAN)
    _panel(right, at, [(one.spread, one.spread_error) for one in shown], SD)
    left.set_yticks(at, [one.site for one in shown])
    left.set_ylim(len(shown) - 0.4, -0.6)
    left.set_xlabel("mean off by (posterior sds)", fontsize=9, color=INK)
    right.set_xlabel("sd of q / of the posterior", fontsize=9, color=INK)
    ratios = _ratios(right)
    right.set_xticks(np.log(ratios), [f"{ratio:g}" for ratio in ratios])
    note = f"By {BY.get(known.by, known.by)}, {known.draws:,} draws, k-hat {known.k_hat:.2f}."
    hidden = len(known.off) - len(shown)
    trust_caption(figure, verdict, note + (f" The worst of {len(known.off)} sites." * bool(hidden)))
    found = np.empty(2, object)
    found[:] = [left, right]
    return found


def _worst(one: Off) -> float:
    return max(abs(one.shift) / MEAN, abs(one.spread) / SD)


def _panel(ax: Any, at: np.ndarray, found: list[tuple[float, float]], limit: float) -> None:
    """Estimates with two standard errors, beside the band of what is good."""
    values, errors = np.array(found).T
    sure = np.abs(values) - 2 * errors > limit
    ax.axvspan(-limit, limit, color=PALE, lw=0, zorder=0)
    ax.axvline(0, color="white", lw=1, zorder=1)
    for bad, colour in ((False, COLOURS[0]), (True, COLOURS[1])):
        own = sure == bad
        if own.any():
            ax.errorbar(
                values[own], at[own], xerr=2 * errors[own], fmt="o", color=colour, ms=5, lw=1.2
            )
    reach = max(float(np.max(np.abs(values) + np.minimum(2 * errors, 3 * limit))), 1.6 * limit)
    ax.set_xlim(-1.08 * reach, 1.08 * reach)
    bare(ax)
    ax.tick_params(axis="y", length=0)


def _ratios(ax: Any) -> np.ndarray:
    """Round ratios within the limits of a logarithmic axis."""
    low, high = np.exp(ax.get_xlim())
    fine = [r for r in (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0) if low <= r <= high]
    if len(fine) < 4:
        fine = [r for r in (0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4) if low <= r <= high]
    if high > 10:
        fine = [10.0**power for power in range(-9, 10) if low <= 10.0**power <= high]
    return np.array(fine or [1.0])
