"""Pictures of a calibration: the ranks of what generated the data among draws of q."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowerbound.calibration.calibrated import Calibration
from lowerbound.calibration.ranks import Quantity
from lowerbound.errors import ArgumentError
from lowerbound.plot.axes import COLOURS, FAINT, INK, PALE, bare, pyplot
from lowerbound.plot.elements import check_least

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PER_BIN = 20  # simulations, about
OUTSIDE = 0.01  # of all bins of a panel together, how often one leaves the band by chance


def calibration(result: Calibration, most: int = 12, columns: int = 4) -> np.ndarray:
    """Histograms of the ranks by quantity, the `most` with the smallest p-values, worst first.

    Flat within the grey band where q is the posterior; a slope is bias, a heap at both ends a q
    that is too narrow, a heap in the middle one that is too wide. Orange ones are rejected. Titles
    have the coverage of 50, 80 and 95% intervals. Returns the axes, shape (quantities,).
    """
    if not isinstance(result, Calibration):
        raise ArgumentError(
            f"plot.calibration got {type(result).__name__}.\n"
            "Expected what lb.calibrate(model, ...) returns."
        )
    check_least("plot.calibration", 1, most=most, columns=columns)
    shown = sorted(result.quantities, key=lambda one: one.smallest)[:most]
    columns = min(columns, len(shown))
    rows = -(-len(shown) // columns)
    figure, axes = pyplot().subplots(
        rows,
        columns,
        figsize=(max(2.2 * columns, 3.4), 1.75 * rows + 0.5),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    drawn: np.ndarray = axes.ravel()[: len(shown)]
    for ax, one in zip(drawn, shown, strict=True):
        _histogram(ax, one, result.ranks[one.name])
    for ax in axes.ravel()[len(shown) :]:
        ax.remove()
    for ax in drawn[-columns:]:  # the lowest of each column
        ax.tick_params(labelbottom=True)
    figure.supxlabel("rank of the truth among draws of q", fontsize=9, color=INK)
    figure.supylabel("simulations", fontsize=9, color=INK)
    hidden = len(result.quantities) - len(shown)
    if hidden:
        title = f"the {len(shown)} worst of {len(result.quantities)} quantities"
        figure.suptitle(title, fontsize=8, color=FAINT)
    return drawn


def _histogram(ax: Axes, one: Quantity, ranks: np.ndarray) -> None:
    from scipy import stats

    count = len(ranks)
    bins = int(np.clip(count // PER_BIN, 4, 20))
    tail = OUTSIDE / (2 * bins)
    low, high = stats.binom.ppf([tail, 1 - tail], count, 1 / bins)
    ax.axhspan(low, high, color=PALE, lw=0, zorder=0)
    ax.axhline(count / bins, color=FAINT, lw=0.8, zorder=1)
    colour = COLOURS[1] if one.wrong else COLOURS[0]
    heights = np.histogram(ranks, bins, (0.0, 1.0))[0]
    width = 1 / bins
    places = (np.arange(bins) + 0.5) * width
    ax.bar(places, heights, 0.86 * width, color=colour, zorder=2, gid=one.name)
    ax.set(xlim=(0, 1), xticks=[0, 0.5, 1])
    held = "/".join(f"{100 * share:.0f}" for share in one.coverage.values())
    ax.set_title(f"{one.name}\n{held}%", fontsize=8, color=INK, loc="left")
    bare(ax)
