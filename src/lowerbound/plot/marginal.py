"""Densities of single numbers under q, and under what is laid over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.plot.axes import COLOURS, INK, bare, small_panels
from lowerbound.plot.captions import legend_below, trust_caption
from lowerbound.plot.elements import check_least, chosen, layers_of, left_out
from lowerbound.result.fitted import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_VALUES = 12  # of a number that is drawn as bars
POINTS = 200  # of a curve
INSIDE = (0.005, 0.995)  # the quantiles that a panel holds, and a little more


def marginals(
    fit: Fit,
    sites: Sequence[str] | None = None,
    *,
    over: Any = None,
    most: int = 12,
    columns: int = 4,
    draws: int = 4000,
) -> np.ndarray:
    """The density of single numbers under q: a panel each, at most `most` of them.

    over: what to compare q with: a corrected fit, draws by site (as NumPyro's `MCMC.get_samples()`
    gives them), or several of these by name. Of many numbers, those in which they differ most are
    shown; without `over` those that stand out among their site. Densities are smoothed draws;
    numbers of few values have bars. Returns the axes, shape (panels,).

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> fit = lb.fit(coin, y)
    >>> axes = lb.plot.marginals(fit, over={"exact": lb.correct(fit, "psis")})
    >>> [ax.get_title(loc="left") for ax in axes]
    ['p']
    """
    check_least("plot.marginals", 1, most=most, columns=columns)
    layers = layers_of("plot.marginals", fit, sites, draws, over)
    every = [one for site in layers.shapes for one in layers.elements(site)]
    shown = chosen(every, most)
    figure, axes = small_panels(len(shown), columns, (1.9, 1.55))
    marks: dict[str, Any] = {}
    for ax, element in zip(axes, shown, strict=True):
        own = layers.of(element)
        values = np.unique(np.concatenate([d[:1000] for d in own.values()]))
        if len(values) <= MOST_VALUES:
            marks |= _bars(ax, own, values)
        else:
            marks |= _curves(ax, own)
        ax.set_title(element.label, fontsize=9, color=INK, loc="left")
        ax.set_yticks([])
        bare(ax)
        ax.spines["left"].set_visible(False)
    if layers.several:
        legend_below(figure, {name: marks[name] for name in layers.names})
    trust_caption(figure, fit, left_out(len(shown), len(every), layers.why(shown)))
    return axes


def _curves(ax: Axes, own: dict[str, np.ndarray]) -> dict[str, Any]:
    ends = np.array([np.quantile(d, INSIDE) for d in own.values()])
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    pad = 0.06 * (high - low)
    pooled = np.concatenate(list(own.values()))
    low, high = max(low - pad, float(pooled.min())), min(high + pad, float(pooled.max()))
    grid, marks = np.linspace(low, high, POINTS), {}
    for number, (name, draws) in enumerate(own.items()):
        colour, height = COLOURS[number % len(COLOURS)], smoothed(draws, grid)
        if not number:
            ax.fill_between(grid, height, color=colour, alpha=0.25, lw=0)
        style = "-" if not number else ("--", "-.", ":")[(number - 1) % 3]
        (marks[name],) = ax.plot(grid, height, style, color=colour, lw=1.6, gid=name)
    ax.set_xlim(low, high)
    ax.set_ylim(0, None)
    ax.locator_params(axis="x", nbins=4)
    return marks


def smoothed(draws: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """The density of draws on a grid: Gaussian kernels, reflected at 0 and 1 where draws end there.

    Where no draw is below 0 the density there is nothing, or the support ends: a reflection is
    right for both. So it is at 1 for draws that are between 0 and 1.

    >>> uniform = (np.arange(2000) + 0.5) / 2000
    >>> smoothed(uniform, np.array([0.0, 0.5, 1.0])).round(1)
    array([1., 1., 1.])
    """
    x = np.asarray(draws, float)
    ordered = np.sort(x)
    # The shortest interval that holds a half: several modes are not smoothed into one.
    half = float((ordered[len(x) // 2 :] - ordered[: len(x) - len(x) // 2]).min())
    width = min(float(x.std()), half / 1.34) if half > 0 else float(x.std())
    if not width > 0:
        return np.zeros_like(grid)
    width *= 0.9 * len(x) ** -0.2  # Silverman's rule
    parts = [x]
    if x.min() >= 0:
        parts.append(-x)
        if x.max() <= 1:
            parts.append(2 - x)
    # A fine histogram first: thousands of draws cost what a few hundred bins do.
    edges = np.linspace(grid[0] - 4 * width, grid[-1] + 4 * width, 801)
    heights = sum(np.histogram(part, edges)[0] for part in parts) / len(x)
    middles = 0.5 * (edges[1:] + edges[:-1])
    kernels = np.exp(-0.5 * ((grid[:, None] - middles) / width) ** 2)
    found: np.ndarray = kernels @ heights / (width * np.sqrt(2 * np.pi))
    return found


def _bars(ax: Axes, own: dict[str, np.ndarray], values: np.ndarray) -> dict[str, Any]:
    """The shares of the values of a discrete number."""
    marks, gap = {}, float(np.diff(values).min()) if len(values) > 1 else 1.0
    width = 0.8 * gap / len(own)
    for number, (name, draws) in enumerate(own.items()):
        shares = [(draws == value).mean() for value in values]
        at = values + (number - (len(own) - 1) / 2) * width
        colour = COLOURS[number % len(COLOURS)]
        marks[name] = ax.bar(at, shares, 0.92 * width, color=colour, gid=name)
    if len(values) <= 6:
        ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.set_ylim(0, 1)
    return marks
