"""Means and intervals of all numbers of a posterior, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.plot.axes import COLOURS, FAINT, INK, bare, pyplot
from lowerbound.plot.captions import legend_below, trust_caption
from lowerbound.plot.elements import Layers, check_least, chosen, layers_of
from lowerbound.result.fitted import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = 12  # sites that are drawn without being named
HIDDEN = 0.025  # of the width of a panel, that a mark covers
LINE, HEAD = 0.2, 0.62  # inches of a line, and of what surrounds the lines of a panel


def posterior(
    fit: Fit,
    sites: Sequence[str] | None = None,
    draws: int = 1000,
    *,
    over: Any = None,
    most: int = 20,
) -> np.ndarray:
    """One panel per site: mean, 50% (thick) and 90% (thin) interval of its numbers under q.

    Without `sites`, the latent sites outside the data plate. over: what to compare q with: a
    corrected fit, draws by site (as NumPyro's `MCMC.get_samples()` gives them), or several of these
    by name. Of a site with more than `most` numbers, those in which they differ most; without
    `over` those that stand out. Returns the axes, shape (sites,).

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> (ax,) = lb.plot.posterior(lb.fit(coin, y))
    >>> ax.get_title(loc="left")
    'p'
    """
    check_least("plot.posterior", 1, most=most)
    layers = layers_of("plot.posterior", fit, sites, draws, over)
    names = list(layers.shapes)
    shown = names if sites is not None else names[:PANELS]
    step = LINE * (1 + 0.45 * (len(layers.draws) - 1))
    heights = [step * min(most, max(int(np.prod(layers.shapes[name])), 1)) + HEAD for name in shown]
    figure, axes = pyplot().subplots(
        len(shown),
        figsize=(5, sum(heights) + 0.35),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    marks: dict[str, Any] = {}
    for ax, name in zip(axes[:, 0], shown, strict=True):
        marks = _site(ax, name, layers, most)
    if layers.several:
        legend_below(figure, marks)
    hidden = len(names) - len(shown)
    trust_caption(figure, fit, f"{hidden} more sites: name them in `sites`." if hidden else "")
    drawn: np.ndarray = axes[:, 0]
    return drawn


def _site(ax: Axes, name: str, layers: Layers, most: int) -> dict[str, Any]:
    """The numbers of a site; returns what to put into a legend, by density."""
    every = layers.elements(name)
    shown = chosen(every, most)
    rows, marks = np.arange(len(shown)), {}
    for number, (label, own) in enumerate(layers.draws.items()):
        values = own[name][:, [one.place for one in shown]]
        colour = COLOURS[number % len(COLOURS)]
        at = rows + (number - (len(layers.draws) - 1) / 2) * 0.8 / len(layers.draws)
        low, lower, upper, high = np.quantile(values, [0.05, 0.25, 0.75, 0.95], axis=0)
        ax.hlines(at, low, high, color=colour, lw=1)
        ax.hlines(at, lower, upper, color=colour, lw=3 if layers.several else 3.5)
        style: Any = {"color": "white", "mec": colour, "ms": 4 if layers.several else 4.5}
        (marks[label],) = ax.plot(values.mean(axis=0), at, "o", gid=label, **style)
    labels = [one.label.removeprefix(name) for one in shown]
    ax.set_yticks(rows, labels)
    ax.set_ylim(len(rows) - 0.45, -0.55)
    narrow = _narrow(ax, layers, name, [one.place for one in shown])
    more = (
        f"   {len(shown)} of {len(every):,}: {layers.why(shown)}" if len(shown) < len(every) else ""
    )
    ax.set_title(name, fontsize=10, color=INK, loc="left")
    if more or narrow:
        ax.set_title("; ".join(filter(None, (more, narrow))), fontsize=7, color=FAINT, loc="right")
    bare(ax)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    return marks


def _narrow(ax: Axes, layers: Layers, name: str, places: list[int]) -> str:
    """Where intervals hide behind the marks, how wide they are."""
    sds = next(iter(layers.draws.values()))[name][:, places].std(axis=0)
    low, high = ax.get_xlim()
    if not len(sds) > 1 or 3.3 * np.median(sds) > HIDDEN * (high - low):
        return ""
    return f"sds {sds.min():.2g} to {sds.max():.2g}, hidden by the marks"
