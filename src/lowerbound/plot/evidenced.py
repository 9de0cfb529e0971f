"""What a verdict rests on: how far the means and sds of every site are off."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lowerbound.errors import ArgumentError, NotAFitError
from lowerbound.plot.axes import COLOURS, INK, PALE, bare, pyplot
from lowerbound.plot.captions import trust_caption
from lowerbound.result.evidence import WAYS, Evidence, Off
from lowerbound.result.fitted import Fit
from lowerbound.result.verdicts import Verdict
from lowerbound.trust.estimates import MEAN, SD

MOST = 30  # sites


def evidence(result: Fit | Verdict) -> np.ndarray:
    """How far q is off, site by site: the mean in posterior sds, and the sd as a ratio.

    Of every site its worst number, with two standard errors of the estimate. Outside the grey bands
    (a quarter of an sd; a quarter of the width) a fit counts as wrong, and orange marks those that
    are surely there. The k-hats of the importance weights for each site, where they are known, are
    good within the grey. Of many sites the worst. Returns the axes: means, sds, k-hats.

    >>> from lowerbound.result.evidence import Evidence, Off
    >>> off = (Off("tau", 0.1, -0.7, 0.05, 0.1), Off("mu", 0.0, 0.01, 0.05, 0.05))
    >>> found = lb.Verdict("means", "q is narrow", "", Evidence("weights", 500, 0.4, 0.5, 0.1, off))
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
    tails = any(math.isfinite(one.k_hat) for one in shown)
    figure, axes = pyplot().subplots(
        1,
        3 if tails else 2,
        figsize=(5.7, 0.24 * len(shown) + 1.5),
        width_ratios=[3, 3, 2] if tails else None,
        sharey=True,
        layout="constrained",
    )
    at = np.arange(len(shown))
    left, right = axes[:2]
    _panel(left, at, [(one.shift, one.shift_error) for one in shown], MEAN)
    _panel(right, at, [(one.spread, one.spread_error) for one in shown], SD)
    left.set_yticks(at, [one.site for one in shown])
    left.set_ylim(len(shown) - 0.4, -0.6)
    left.set_xlabel("mean off by (sds)", fontsize=9, color=INK)
    right.set_xlabel("sd of q / posterior", fontsize=9, color=INK)
    ratios = _ratios(right)
    right.set_xticks(np.log(ratios), [f"{ratio:g}" for ratio in ratios])
    if tails:
        _k_hats(axes[2], at, shown, known)
    note = f"By {WAYS.get(known.by, known.by)}, {known.draws:,} draws, k-hat {known.k_hat:.2f}."
    if len(shown) < len(known.off):
        note += f" The worst of {len(known.off)} sites."
    trust_caption(figure, verdict, note)
    found: np.ndarray = axes
    return found


def _k_hats(ax: Any, at: np.ndarray, shown: list[Off], known: Evidence) -> None:
    """The k-hat of every site beside the largest that is good."""
    values = np.clip([one.k_hat for one in shown], -0.5, 1.5)
    ax.axvspan(-0.5, known.k_threshold, color=PALE, lw=0, zorder=0)
    for bad, colour in ((False, COLOURS[0]), (True, COLOURS[1])):
        own = (values > known.k_threshold) == bad
        ax.plot(values[own], at[own], "o", color=colour, ms=5)
    ax.set_xlim(min(-0.05, float(np.nanmin(values)) - 0.1), max(1.0, np.nanmax(values) + 0.1))
    ax.set_xlabel("k-hat", fontsize=9, color=INK)
    bare(ax)
    ax.tick_params(axis="y", length=0)


def _worst(one: Off) -> float:
    return float(max(abs(one.shift) / MEAN, abs(one.spread) / SD))


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
