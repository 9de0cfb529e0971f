"""Predictive checks: the data beside data that the fitted model makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lowerbound.errors import ArgumentError, NotAFitError, UnknownSiteError
from lowerbound.errors.wording import entry_of
from lowerbound.model import trace_model
from lowerbound.plot.axes import COLOURS, INK, bare, small_panels
from lowerbound.plot.captions import faint_title, legend_below, trust_caption
from lowerbound.plot.elements import check_least
from lowerbound.result.exchange.groups_of_draws import observed_values
from lowerbound.result.fitted import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW = 30  # observations that are drawn one by one
VALUES = 25  # different values of data that have bars
MOST_NUMBERS = 4_000_000  # in all replicated data sets
STATISTICS: dict[str, Callable[[np.ndarray], Any]] = {
    "mean": np.mean,
    "sd": np.std,
    "smallest": np.min,
    "largest": np.max,
}
RARE = 0.01  # a share of replicated data sets that makes a statistic worth naming
DATA, MODEL = "the data", "replicated: median and 90%"


@dataclass(frozen=True, eq=False)
class Replicated:
    """Data y (n,) and replicated ones (draws, n), of one site or of one column of it."""

    name: str
    data: np.ndarray
    drawn: np.ndarray

    def inside(self, level: float) -> float:
        """The share of the data within their own central intervals."""
        tail = (1 - level) / 2
        low, high = np.quantile(self.drawn, [tail, 1 - tail], axis=0)
        return float(((self.data >= low) & (self.data <= high)).mean())

    def shares(self) -> dict[str, float]:
        """By statistic, the share of replicated data sets that have a larger one."""
        found = {}
        for name, function in STATISTICS.items():
            own, others = function(self.data), np.array([function(row) for row in self.drawn])
            found[name] = float((others > own).mean() + 0.5 * (others == own).mean())
        return found

    def __str__(self) -> str:
        odd = [
            f"{name} {'too small' if share > 0.5 else 'too large'}"
            for name, share in self.shares().items()
            if min(share, 1 - share) < RARE
        ]
        said = f"{self.inside(0.9):.0%} of the data are in their 90% intervals"
        return f"{said}; for the model, their {', '.join(odd)}" if odd else said


def predictive(
    fit: Fit,
    *args: Any,
    sites: Sequence[str] | None = None,
    draws: int = 200,
    most: int = 6,
    **kwargs: Any,
) -> np.ndarray:
    """The observed data beside data sets that the fitted model replicates, a panel a site.

    Continuous data in bins, those of few values by the share of each, up to 30 data one by one;
    orange are the data, blue is what the model makes. Titles say how many of the data are within
    their 90% intervals, and name the mean, sd, smallest or largest that fewer than 1% of the
    replicated data sets reach. args, kwargs: new data, as `fit.predictive` takes them, which a
    stochastic fit needs. Of a site with several columns, the `most` that the model fits worst.
    Returns the axes, shape (panels,).

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> (ax,) = lb.plot.predictive(lb.fit(coin, y))
    >>> ax.get_title(loc="left")
    'y: 100% of the data are in their 90% intervals'
    """
    if not isinstance(fit, Fit):
        raise NotAFitError("plot.predictive", fit)
    check_least("plot.predictive", 20, draws=draws)
    check_least("plot.predictive", 1, most=most)
    every = replicated(fit, args, kwargs, sites, draws)
    shown = sorted(every, key=_misfit, reverse=True)[:most]
    shown = [one for one in every if one in shown]
    columns = 1 if len(shown) == 1 else 2
    figure, axes = small_panels(len(shown), columns, (4.6 if columns == 1 else 2.8, 2.4))
    marks: dict[str, Any] = {}
    for ax, one in zip(axes, shown, strict=True):
        marks |= _panel(ax, one)
        faint_title(ax, f"{one.name}: {one}")
        bare(ax)
    legend_below(figure, marks)
    hidden = len(every) - len(shown)
    note = f"The {len(shown)} of {len(every)} columns that fit worst." if hidden else ""
    trust_caption(figure, fit, note)
    return axes


def replicated(
    fit: Fit,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    sites: Sequence[str] | None = None,
    draws: int = 200,
) -> list[Replicated]:
    """The data of a fit, or new ones, with replications of them; one a site and column."""
    kwargs = kwargs or {}
    if not (fit.has_data or args or kwargs):
        raise ArgumentError(
            "The file of the fit holds no data to compare with.\n"
            "Expected data: pass them here, or to lb.load(path, model, ...)."
        )
    if not (fit.whole or args or kwargs):
        raise ArgumentError(
            "The fit holds global factors alone, so it cannot replicate the rows it was made from."
            "\nExpected rows to compare with: lb.plot.predictive(fit, x_new)."
        )
    with jax.enable_x64(True):
        model = trace_model(fit.original, *fit.call_with(args, kwargs), fit.answer.plate)
    data = observed_values(model)
    for name in sites or ():
        if name not in data:
            raise UnknownSiteError(
                "plot.predictive got the site", name, tuple(data) or ("-",), "is not observed"
            )
    names = list(sites) if sites is not None else list(data)
    if not names:
        raise ArgumentError(
            "plot.predictive got a fit of a program that observes nothing.\n"
            "Expected a numpyro.sample with obs=; what numpyro.factor adds cannot be replicated."
        )
    size = sum(data[name].size for name in names)
    count = int(np.clip(MOST_NUMBERS // max(size, 1), 20, draws))
    drawn = fit.predictive(*args, draws=count, **kwargs)
    return [part for name in names for part in _columns(name, data[name], drawn[name])]


def _columns(name: str, data: np.ndarray, drawn: np.ndarray) -> list[Replicated]:
    """A site as one part, or one a column; entries that are missing are left out."""
    width = data.shape[-1] if data.ndim > 1 and data.shape[-1] <= 100 else 1
    if data.ndim < 2 or width == 1:
        data, drawn = data.reshape(-1, 1), drawn.reshape(len(drawn), -1, 1)
    else:
        data, drawn = data.reshape(-1, width), drawn.reshape(len(drawn), -1, width)
    found = []
    for column in range(data.shape[1]):
        here = np.isfinite(data[:, column])
        label = entry_of(name, (column,)).replace("[", "[:, ") if data.shape[1] > 1 else name
        if here.any():
            found.append(Replicated(label, data[here, column], drawn[:, here, column]))
    return found


def _misfit(one: Replicated) -> float:
    """How rare the rarest statistic is."""
    return -min(min(share, 1 - share) for share in one.shares().values())


# --------------------------------------------------------------------------------------------------
# Panels


def _panel(ax: Axes, one: Replicated) -> dict[str, Any]:
    values = np.unique(np.concatenate([one.data, one.drawn[:5].ravel()]))
    if len(one.data) <= FEW:
        return _one_by_one(ax, one)
    if len(values) <= VALUES:
        return _values(ax, one, values)
    if (values == np.round(values)).all():
        return _counts(ax, one)
    return _binned(ax, one)


def _one_by_one(ax: Axes, one: Replicated) -> dict[str, Any]:
    at = np.arange(len(one.data))
    low, lower, middle, upper, high = np.quantile(one.drawn, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
    ax.vlines(at, low, high, color=COLOURS[0], lw=1)
    ax.vlines(at, lower, upper, color=COLOURS[0], lw=4)
    (model,) = ax.plot(at, middle, "o", color="white", mec=COLOURS[0], ms=4.5)
    (data,) = ax.plot(at, one.data, "D", color=COLOURS[1], ms=5, gid=one.name)
    ax.set_xlabel("observation", fontsize=9, color=INK)
    ax.set_ylabel(one.name, fontsize=9, color=INK)
    ax.set_xlim(-0.7, len(at) - 0.3)
    ax.set_xticks(at[:: max(len(at) // 10, 1)])
    return {DATA: data, MODEL: model}


def _values(ax: Axes, one: Replicated, values: np.ndarray) -> dict[str, Any]:
    """The share of each value."""
    own = np.array([(one.data == value).mean() for value in values])
    others = np.stack([(one.drawn == value).mean(axis=1) for value in values])
    return _bars(ax, one.name, values, own, others)


def _counts(ax: Axes, one: Replicated) -> dict[str, Any]:
    """Many whole numbers, in bins."""
    top = np.quantile(one.drawn, 0.999)
    low, high = min(one.data.min(), one.drawn.min()), max(one.data.max(), top)
    step = max(int(np.ceil((high - low + 1) / VALUES)), 1)
    edges = np.arange(low, high + step + 1, step) - 0.5
    own = np.histogram(one.data, edges)[0] / len(one.data)
    others = np.stack([np.histogram(row, edges)[0] / len(row) for row in one.drawn], axis=1)
    return _bars(ax, one.name, edges[:-1] + step / 2, own, others)


def _bars(
    ax: Axes, name: str, at: np.ndarray, own: np.ndarray, others: np.ndarray
) -> dict[str, Any]:
    width = float(np.diff(at).min()) if len(at) > 1 else 1.0
    low, middle, high = np.quantile(others, [0.05, 0.5, 0.95], axis=1)
    data = ax.bar(at, own, 0.8 * width, color=COLOURS[1], alpha=0.45, lw=0, gid=name)
    ax.vlines(at, low, high, color=COLOURS[0], lw=1.6)
    (model,) = ax.plot(at, middle, "o", color=COLOURS[0], ms=4)
    if len(at) <= 10:
        ax.set_xticks(at, [f"{value:g}" for value in at])
    ax.set_ylabel("share", fontsize=9, color=INK)
    ax.set_ylim(0, None)
    return {DATA: data, MODEL: model}


def _binned(ax: Axes, one: Replicated) -> dict[str, Any]:
    """Continuous numbers: the share of the data in each bin."""
    spread = float(np.ptp(one.data)) or 1.0
    ends = np.quantile(one.drawn, [0.002, 0.998])
    low = max(min(one.data.min(), ends[0]), one.data.min() - spread)
    high = min(max(one.data.max(), ends[1]), one.data.max() + spread)
    count = int(np.clip(2 * len(one.data) ** 0.45, 10, 50))
    edges = np.linspace(low, high, count + 1)
    own = np.histogram(one.data, edges)[0] / len(one.data)
    each = np.stack([np.histogram(row, edges)[0] / len(row) for row in one.drawn])
    bottom, middle, top = np.quantile(each, [0.05, 0.5, 0.95], axis=0)
    data = ax.stairs(own, edges, fill=True, color=COLOURS[1], alpha=0.45, gid=one.name)
    ax.stairs(top, edges, baseline=bottom, fill=True, color=COLOURS[0], alpha=0.35)
    model = ax.stairs(middle, edges, color=COLOURS[0], lw=1.4)
    ax.set_ylabel("share", fontsize=9, color=INK)
    ax.set_xlim(low, high)
    return {DATA: data, MODEL: model}
