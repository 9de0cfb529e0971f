"""Pictures of a choice of models: a criterion over the values of one argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.choosing.varied import Sweep
from lowerbound.errors import ArgumentError
from lowerbound.plot.axes import COLOURS, FAINT, INK, bare, pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LABELS = 12
LABELS = {
    "elbo": "ELBO (nats)",
    "loo": "leave-one-out log predictive (nats)",
    "k-fold": "log predictive by folds (nats)",
}


def sweep(result: Sweep, ax: Axes | None = None) -> Axes:
    """The criterion of every fit of a sweep; bars are two standard errors of its difference to
    the best.

    The best one is orange, and the others have their difference to it. Fits that are not to be
    trusted (`fit.verdict`) are hollow.
    """
    if not isinstance(result, Sweep):
        raise ArgumentError(
            f"plot.sweep got {type(result).__name__}.\nExpected what lb.sweep(model, ...) returns."
        )
    rows = {row.name: row for row in result.comparison.rows}
    own = [rows[name] for name in result.fits]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in result.values)
    x = np.array(result.values, float) if numbers else np.arange(len(own), dtype=float)
    y = np.array([row.value for row in own])
    if ax is None:
        width = float(np.clip(0.45 * len(own) + 2, 4, 9))
        ax = pyplot().subplots(figsize=(width, 3.2), layout="constrained")[1]
    if numbers:
        order = np.argsort(x)
        ax.plot(x[order], y[order], color=FAINT, lw=1, zorder=1)
    for at, row in zip(x, own, strict=True):
        colour = COLOURS[1] if row.name == result.comparison.best else COLOURS[0]
        error = 2 * row.difference_error
        ax.errorbar(
            at,
            row.value,
            yerr=error if np.isfinite(error) and error > 0 else None,
            fmt="o",
            color=colour,
            mfc="white" if row.marked else colour,
            mew=1.4,
            ms=7,
            capsize=3,
            zorder=3,
            gid=row.name,
        )
    if len(own) <= MOST_LABELS:  # one bad value may hide the differences between the others
        for at, row in zip(x, own, strict=True):
            text = f"{row.difference:.2g}" if row.difference else ""
            style: Any = {"fontsize": 7, "color": INK, "ha": "center"}
            ax.annotate(text, (at, row.value), (0, 9), textcoords="offset points", **style)
        ax.margins(y=0.12)
    _values(ax, result, x, numbers)
    ax.set_ylabel(LABELS[result.comparison.by], fontsize=9, color=INK)
    note = f"best: {result.comparison.best}"
    if any(row.marked for row in own):
        note += "; hollow: not to be trusted"
    ax.set_title(note, fontsize=8, color=FAINT, loc="left")
    bare(ax)
    return ax


def _values(ax: Axes, result: Sweep, x: np.ndarray, numbers: bool) -> None:
    """The values along the axis: every whole number, or names where they are none."""
    ax.set_xlabel(result.argument, fontsize=9, color=INK)
    if numbers and len(x) <= 12 and (x == np.round(x)).all():
        ax.set_xticks(np.unique(x), [f"{value:g}" for value in np.unique(x)])
    elif not numbers:
        names = [name.removeprefix(f"{result.argument}=") for name in result.fits]
        turned = max(map(len, names)) > 8
        ax.set_xticks(x, names, rotation=30 if turned else 0, ha="right" if turned else "center")
        ax.set_xlim(-0.5, len(x) - 0.5)
