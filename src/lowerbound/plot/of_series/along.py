"""Sites along the steps of a series: states with their uncertainty, and the parts of a sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lowerbound.errors import ArgumentError, NotAFitError, UnknownSiteError
from lowerbound.plot.axes import INK, bare, pyplot, small_panels
from lowerbound.plot.captions import faint_title, legend_below, trust_caption
from lowerbound.plot.elements import check_least
from lowerbound.plot.of_series.bands import band, columns, points, shares
from lowerbound.result.fitted import Fit

DRAWS = 400
MOST = 6  # panels


def states(
    fit: Fit, site: str | None = None, *, data: Any = None, draws: int = DRAWS, most: int = MOST
) -> np.ndarray:
    """The path of a site along its first axis, with its uncertainty.

    Of numbers the median with 50% and 90% intervals; of discrete states the probability of each in
    every step. site: by default the latent site of most steps. data: (steps,), drawn as points
    beside it. Of states of several numbers, or of several sequences, the first `most`. Returns
    the axes, shape (panels,).

    >>> import numpy as np, numpyro, numpyro.distributions as dist
    >>> def walk(y):
    ...     z = numpyro.sample("z", dist.GaussianRandomWalk(0.5, num_steps=len(y)))
    ...     numpyro.sample("y", dist.Normal(z, 1.0), obs=y)
    >>> y = np.array([0.1, 0.9, 1.4, 2.0])
    >>> (ax,) = lb.plot.states(lb.fit(walk, y), data=y)
    >>> ax.get_title(loc="left")
    'z'
    """
    _check(fit, "plot.states", draws, most)
    values = fit.sample(draws)
    chosen = site if site is not None else _longest(fit, values)
    found = columns(chosen, _along("plot.states", values, chosen), most)
    figure, axes = small_panels(len(found), 1, (6.4, 1.9), sharex=True)
    marks: dict[str, Any] = {}
    for ax, (label, drawn) in zip(axes, found.items(), strict=True):
        if np.issubdtype(drawn.dtype, np.inexact):
            marks |= band(ax, drawn)
        else:
            shares(ax, drawn)
        if data is not None:
            marks |= points(ax.twinx() if not marks else ax, np.asarray(data))
        faint_title(ax, label)
        bare(ax)
    axes[-1].set_xlabel("step", fontsize=9, color=INK)
    if marks:
        legend_below(figure, marks)
    trust_caption(figure, fit, "" if marks else "White is 0 and dark is 1.")
    return axes


def components(
    fit: Fit, sites: Sequence[str] | None = None, *, draws: int = DRAWS, most: int = MOST
) -> np.ndarray:
    """The parts of a series, level, slope and season say, a panel each, with one axis of steps.

    sites: latent or deterministic ones of as many steps as each other; by default the numeric sites
    that have most steps. Medians with 50% and 90% intervals. Returns the axes, shape (panels,).

    >>> import numpy as np, numpyro, numpyro.distributions as dist
    >>> def parts(y):
    ...     level = numpyro.sample("level", dist.GaussianRandomWalk(0.5, num_steps=len(y)))
    ...     noise = numpyro.sample("noise", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))
    ...     numpyro.sample("y", dist.Normal(level + noise, 0.3), obs=y)
    >>> axes = lb.plot.components(lb.fit(parts, np.array([0.1, 0.9, 1.4, 2.0])))
    >>> [ax.get_title(loc="left") for ax in axes]
    ['level', 'noise']
    """
    _check(fit, "plot.components", draws, most)
    values = fit.sample(draws)
    if sites is None:
        numeric = {n: v for n, v in values.items() if np.issubdtype(np.asarray(v).dtype, float)}
        length = _along("plot.components", numeric, _longest(fit, numeric)).shape[1]
        sites = [n for n, v in numeric.items() if np.ndim(v) > 1 and np.shape(v)[1] == length]
    series: dict[str, np.ndarray] = {}
    for name in sites:
        series |= columns(name, _along("plot.components", values, name), most)
    shown = dict(list(series.items())[:most])
    figure, axes = small_panels(len(shown), 1, (6.4, 1.5), sharex=True)
    marks: dict[str, Any] = {}
    for ax, (label, drawn) in zip(axes, shown.items(), strict=True):
        marks |= band(ax, drawn)
        faint_title(ax, label)
        bare(ax)
    axes[-1].set_xlabel("step", fontsize=9, color=INK)
    legend_below(figure, marks)
    hidden = len(series) - len(shown)
    trust_caption(figure, fit, f"{hidden} more are not shown." if hidden else "")
    return axes


def _check(fit: Any, caller: str, draws: Any, most: Any) -> None:
    if not isinstance(fit, Fit):
        raise NotAFitError(caller, fit)
    check_least(caller, 20, draws=draws)
    check_least(caller, 1, most=most)
    pyplot()


def _longest(fit: Fit, values: Mapping[str, Any]) -> str:
    """The latent site of most steps."""
    own = {n: np.shape(v)[1] for n, v in values.items() if n in fit.sites and np.ndim(v) > 1}
    if not own:
        raise ArgumentError(
            "The fit has no site with an axis of steps.\n"
            "Expected a latent site whose first axis is time, as those inside scan have."
        )
    return max(own, key=lambda name: own[name])


def _along(caller: str, values: Mapping[str, Any], site: str) -> np.ndarray:
    """The draws of a site, (draws, steps, ...)."""
    known = [name for name, value in values.items() if np.ndim(value) > 1]
    if site not in known:
        raise UnknownSiteError(f"{caller} got the site", site, known or ("-",), "has no steps")
    return np.asarray(values[site])
