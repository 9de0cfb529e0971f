"""The ELBO of every start by sweep (the paper's Figure 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowerbound.errors import NotAFitError
from lowerbound.plot.axes import COLOURS, FAINT, INK, bare, pyplot
from lowerbound.plot.captions import trust_caption
from lowerbound.result.fitted import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SAME = 0.1  # nats between starts that found one optimum, in effect
NAMED = 5  # optima in the legend


def restarts(fit: Fit, ax: Axes | None = None) -> Axes:
    """The ELBO of every start by sweep (fig:init), coloured by the optimum that it found.

    Starts within 0.1 nats of each other have one colour, and the legend counts them. Steep
    beginnings are cut off, so that the ends can be told apart. Where a method keeps no curves of
    its other starts, their ends are dots.

    `pair` is the program in the example of `lb.plot.responsibilities`.

    >>> x = np.array([-3.0, -2.5, 2.4, 3.1])
    >>> ax = lb.plot.restarts(lb.fit(pair, x, method=lb.CAVI(restarts=4)))
    >>> len(ax.get_legend().get_texts()) <= 4
    True
    """
    if not isinstance(fit, Fit):
        raise NotAFitError("plot.restarts", fit)
    own = ax is None
    if ax is None:
        ax = pyplot().subplots(figsize=(5.4, 3.4), layout="constrained")[1]
    ends = np.array([one.elbo for one in fit.restarts], float)
    curves = _curves(fit)
    optima = _optima(ends)
    for number in sorted(
        range(len(ends)), key=lambda n: ends[n] if np.isfinite(ends[n]) else -1e300
    ):
        if not np.isfinite(ends[number]):
            continue
        place = next(i for i, members in enumerate(optima) if number in members)
        colour = COLOURS[place] if place < NAMED else FAINT
        best = number == int(np.nanargmax(ends))
        curve = curves[number]
        if len(curve):
            sweeps = np.arange(1, len(curve) + 1)
            ax.plot(sweeps, curve, color=colour, lw=2.2 if best else 1.2, alpha=1 if best else 0.75)
        last = len(curve) or fit.restarts[number].sweeps
        ax.plot(last, ends[number], "o", color=colour, ms=6 if best else 4, gid=f"end {number}")
    _legend(ax, ends, optima)
    _limits(ax, ends, curves)
    ax.set_xlabel(fit.history.step, fontsize=9, color=INK)
    ax.set_ylabel("ELBO (nats)", fontsize=9, color=INK)
    ax.ticklabel_format(axis="y", useOffset=False, style="plain")
    bare(ax)
    if own:
        failed = int((~np.isfinite(ends)).sum())
        note = f"{failed} starts have no finite ELBO." if failed else ""
        trust_caption(ax.figure, fit, note)
    return ax


def _curves(fit: Fit) -> list[np.ndarray]:
    """The ELBO on the way, of every start; empty where it is not kept."""
    count, kept = len(fit.restarts), fit.history.starts
    if kept.shape[1:] == (count,):
        return [column[np.isfinite(column)] for column in kept.T]
    found = [np.zeros(0)] * count
    best = int(np.nanargmax([one.elbo for one in fit.restarts]))
    found[best] = fit.history.elbo[np.isfinite(fit.history.elbo)]
    return found


def _optima(ends: np.ndarray) -> list[list[int]]:
    """Starts by the optimum that they found, the highest first.

    >>> _optima(np.array([-5.0, -3.0, -3.01, np.nan]))
    [[1, 2], [0]]
    """
    found: list[list[int]] = []
    for number in sorted(np.flatnonzero(np.isfinite(ends)).tolist(), key=lambda n: -ends[n]):
        if found and ends[found[-1][0]] - ends[number] <= SAME:
            found[-1].append(number)
        else:
            found.append([number])
    return found


def _legend(ax: Axes, ends: np.ndarray, optima: list[list[int]]) -> None:
    from matplotlib.lines import Line2D

    marks, texts = [], []
    for place, members in enumerate(optima[:NAMED]):
        marks.append(Line2D([], [], color=COLOURS[place], lw=2, marker="o", ms=4))
        count = f"{len(members)} start{'s' if len(members) > 1 else ''}"
        gap = ends[optima[0][0]] - ends[members[0]]
        texts.append(f"{gap:,.2f} below: {count}" if place else f"{ends[members[0]]:,.2f}: {count}")
    rest = sum(len(members) for members in optima[NAMED:])
    if rest:
        marks.append(Line2D([], [], color=FAINT, lw=2, marker="o", ms=4))
        texts.append(f"lower: {rest} starts")
    ax.legend(marks, texts, frameon=False, fontsize=8, loc="lower right", labelcolor=INK)


def _limits(ax: Axes, ends: np.ndarray, curves: list[np.ndarray]) -> None:
    """From a little below the lowest end, or what all curves but their beginnings need."""
    fine = ends[np.isfinite(ends)]
    top, bottom = float(fine.max()), float(fine.min())
    values = np.concatenate([*curves, fine])
    span = top - bottom
    late = [curve[min(len(curve) // 10 + 1, len(curve) - 1) :] for curve in curves if len(curve)]
    low = min([bottom, *(float(part.min()) for part in late)])
    if span > SAME:
        low = max(low, bottom - 0.2 * span)
    low = max(low, float(values.min()))
    room = max(top - low, 1e-9 * max(abs(top), 1.0))
    ax.set_ylim(low - 0.25 * room, top + 0.06 * room)
