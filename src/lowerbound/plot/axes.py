"""What all pictures share: colours, plain axes, and Matplotlib when it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.errors.storage import needed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

# Distinct for the colour-blind too (Okabe and Ito), the light ones last.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
INK, FAINT = "#222222", "#8C8C8C"
PALE = "#E6E6E6"


def pyplot() -> Any:
    """Matplotlib's pyplot, or an error that says how to install it."""
    with needed("Plots need Matplotlib, which is not installed", "plot"):
        import matplotlib.pyplot as plt
    return plt


def small_panels(
    count: int, columns: int, size: tuple[float, float], **shared: bool
) -> tuple[Any, np.ndarray]:
    """A figure of so many panels of one size in inches, in rows; and its axes, shape (count,)."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure, axes = pyplot().subplots(
        rows,
        columns,
        figsize=(max(size[0] * columns, 4.2), size[1] * rows + 0.6),
        squeeze=False,
        layout="constrained",
        **shared,
    )
    for ax in axes.ravel()[count:]:
        ax.remove()
    found: np.ndarray = axes.ravel()[:count]
    for ax in found[-columns:]:  # the lowest of each column
        ax.tick_params(labelbottom=True)
    return figure, found


def bare(ax: Axes) -> None:
    """Axes without a box, with small labels."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8, colors=INK)


def percent(axis: Axis) -> None:
    """Shares along an axis, as percentages without needless digits."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g}%"))


def empty(ax: Axes) -> None:
    """Axes that only hold marks and text: no box, no ticks."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
