"""Pairs of numbers with the 2-sigma ellipses of q and of the posterior (the paper's Figure 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.errors import ArgumentError
from lowerbound.plot.axes import COLOURS, INK, bare, pyplot
from lowerbound.plot.captions import trust_caption
from lowerbound.plot.elements import Element, Layers, check_least, chosen, layers_of, left_out
from lowerbound.result.fitted import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOOKED_AT = 300  # numbers whose correlations are looked at
POINTS = 400  # of each density in a panel
WIDE = 8.0  # the ratio of the ends of a number that has a logarithmic axis
NOISE = 4.0  # standard errors of a correlation that is none
PANEL = 1.65  # inches


def pairs(
    fit: Fit,
    sites: Sequence[str] | None = None,
    *,
    over: Any = None,
    most: int = 5,
    draws: int = 4000,
) -> np.ndarray:
    """Pairs of numbers: draws and 2-sigma ellipses of q and of what is laid over it (fig:accuracy).

    over: what to compare q with: a corrected fit, draws by site (as NumPyro's `MCMC.get_samples()`
    gives them), or several of these by name; mean field shows as an upright ellipse inside a
    slanted one. Of more than `most` numbers, those in which they differ most; without `over` those
    that are correlated most. An ellipse is that of the Gaussian with the same means and
    covariances: it holds 86% of a Gaussian. Positive numbers that reach over an order of magnitude
    have a logarithmic axis, and the ellipse is that of their logarithms. Returns the axes, shape
    (pairs,).

    >>> import numpyro, numpyro.distributions as dist
    >>> def ends():
    ...     start = numpyro.sample("start", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("end", dist.Normal(start, 0.5))
    >>> fit = lb.fit(ends, method=lb.Gaussian(rank="diagonal"))
    >>> (ax,) = lb.plot.pairs(fit, over=lb.correct(fit, "linear-response"))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('start', 'end')
    """
    check_least("plot.pairs", 2, most=most)
    layers = layers_of("plot.pairs", fit, sites, draws, over)
    every = [one for site in layers.shapes for one in layers.elements(site)]
    if len(every) < 2:
        raise ArgumentError(
            f"plot.pairs got one number, '{every[0].label}'.\n"
            "Expected two or more. Use lb.plot.marginals(fit)."
        )
    shown, why = _chosen(layers, every, most)
    count = len(shown) - 1
    side = PANEL * count if count > 1 else 3.6
    figure, grid = pyplot().subplots(
        count,
        count,
        figsize=(max(side, 3.6) + 0.5, side + 0.6),
        sharex="col",
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    kept, marks = [], {}
    for row, across in np.ndindex(count, count):
        ax, x, y = grid[row, across], shown[across], shown[row + 1]
        if across > row:
            ax.set_axis_off()
            continue
        marks = _pair(ax, layers, x, y)
        if row == count - 1:
            ax.set_xlabel(x.label, fontsize=9, color=INK)
        if across == 0:
            ax.set_ylabel(y.label, fontsize=9, color=INK)
        kept.append(ax)
    _legend(figure, grid, marks)
    trust_caption(figure, fit, left_out(len(shown), len(every), why))
    drawn = np.empty(len(kept), object)
    drawn[:] = kept
    return drawn


def _pair(ax: Axes, layers: Layers, x: Element, y: Element) -> dict[str, Any]:
    """Draws and ellipses of one pair; returns the outlines by density."""
    first, second = layers.of(x), layers.of(y)
    curved = np.array([_is_wide(first), _is_wide(second)])
    marks = {}
    for number, name in enumerate(layers.names):
        colour = COLOURS[number % len(COLOURS)]
        points = np.stack([first[name], second[name]], axis=1).astype(float)
        few = points[:: max(len(points) // POINTS, 1)]
        ax.plot(*few.T, ".", color=colour, ms=3, alpha=0.35, mew=0, zorder=1, rasterized=True)
        place = np.where(curved, np.log(np.where(curved, points, 1.0)), points)
        ring = outline(place.mean(axis=0), np.cov(place.T))
        ring = np.where(curved[:, None], np.exp(np.where(curved[:, None], ring, 0.0)), ring)
        (marks[name],) = ax.plot(*ring, color=colour, lw=1.7, zorder=3 - number, gid=name)
    for axis, log in zip((ax.xaxis, ax.yaxis), curved, strict=True):
        _ticks(axis, log)
    bare(ax)
    return marks


def _is_wide(own: dict[str, np.ndarray]) -> bool:
    """Whether a number is positive and reaches over an order of magnitude."""
    low, high = np.quantile(np.concatenate(list(own.values())), [0.01, 0.99])
    return bool(all(draws.min() > 0 for draws in own.values()) and high > WIDE * low)


def _ticks(axis: Any, log: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if not log:
        axis.set_major_locator(MaxNLocator(4))
        return
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(numticks=4))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def outline(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """The ellipse at two standard deviations, shape (2, 120).

    >>> ring = outline(np.array([1.0, 0.0]), np.diag([4.0, 1.0]))
    >>> ring.max(axis=1).round(1)
    array([5., 2.])
    """
    angle = np.linspace(0, 2 * np.pi, 120)
    values, vectors = np.linalg.eigh(covariance)  # may be singular: entries of a simplex
    root = vectors * np.sqrt(np.clip(values, 0, None))
    ring: np.ndarray = mean[:, None] + 2 * root @ np.stack([np.cos(angle), np.sin(angle)])
    return ring


def _legend(figure: Any, grid: np.ndarray, marks: dict[str, Any]) -> None:
    """In the empty corner of a triangle; above a single panel."""
    style: Any = {"frameon": False, "fontsize": 8, "labelcolor": INK}
    names = [f"{name} (2 sigma)" if not i else name for i, name in enumerate(marks)]
    if len(grid) > 1:
        grid[0, -1].legend(list(marks.values()), names, loc="upper right", **style)
    else:
        figure.legend(list(marks.values()), names, loc="outside lower left", ncols=3, **style)


def _chosen(layers: Layers, every: list[Element], most: int) -> tuple[list[Element], str]:
    """The numbers of the picture, and by what they were chosen."""
    if len(every) <= most or layers.several:
        shown = chosen(every, most)
        return shown, layers.why(shown)
    some = chosen(every, LOOKED_AT)
    (own,) = layers.draws.values()
    with np.errstate(all="ignore"):
        table = np.corrcoef(np.stack([own[one.site][:, one.place] for one in some]))
    size = np.abs(np.nan_to_num(table - np.diag(np.diagonal(table))))
    if size.max() < NOISE / np.sqrt(len(next(iter(own.values())))):
        shown = chosen(every, most)
        return shown, f"none are correlated, {layers.why(shown)}"
    kept = [int(place) for place in np.unravel_index(int(size.argmax()), size.shape)]
    while len(kept) < most:
        reach = size[kept].max(axis=0)
        reach[kept] = -1
        kept.append(int(reach.argmax()))
    return [some[place] for place in sorted(kept)], "those that are correlated most"
