"""What comes next: the data of a series, and intervals of the steps ahead."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lowerbound.errors import ArgumentError, NotAFitError, UnknownSiteError
from lowerbound.model import trace_model
from lowerbound.plot.axes import FAINT, INK, bare, small_panels
from lowerbound.plot.captions import faint_title, legend_below, trust_caption
from lowerbound.plot.elements import check_least
from lowerbound.plot.of_series.bands import band, columns, points
from lowerbound.result.exchange.groups_of_draws import observed_values
from lowerbound.result.fitted import Fit

MOST = 6  # panels


def forecast(
    fit: Fit, *args: Any, site: str | None = None, draws: int = 400, **kwargs: Any
) -> np.ndarray:
    """The observed series with predictive intervals of its steps, and of those after the last.

    args, kwargs: those of a longer series, as `fit.predictive` takes them: the program goes on
    where its `scan` is longer than the data. site: by default the first observed one. Returns the
    axes, shape (panels,), one for each number that a step observes.

    >>> import numpy as np, numpyro, numpyro.distributions as dist
    >>> from numpyro.contrib.control_flow import scan
    >>> def walk(y=None, steps=None):
    ...     def step(z, y):
    ...         z = numpyro.sample("z", dist.Normal(z, 0.5))
    ...         return z, numpyro.sample("y", dist.Normal(z, 1.0), obs=y)
    ...     scan(step, 0.0, y, length=steps if y is None else len(y))
    >>> (ax,) = lb.plot.forecast(lb.fit(walk, np.array([0.1, 0.9, 1.4, 2.0])), steps=7)
    >>> ax.get_title(loc="left")
    'y: 4 steps, and 3 ahead'
    """
    if not isinstance(fit, Fit):
        raise NotAFitError("plot.forecast", fit)
    check_least("plot.forecast", 20, draws=draws)
    data = _observed(fit)
    name = site if site is not None else next(iter(data))
    if name not in data:
        raise UnknownSiteError("plot.forecast got the site", name, tuple(data), "is not observed")
    drawn = fit.predictive(*args, draws=draws, **kwargs)[name]
    own = columns(name, data[name][None], MOST)
    found = columns(name, drawn, MOST)
    figure, axes = small_panels(len(found), 1, (6.4, 2.4), sharex=True)
    marks: dict[str, Any] = {}
    for ax, (label, one) in zip(axes, found.items(), strict=True):
        known = own[label][0]
        marks |= band(ax, one) | points(ax, known)
        ahead = one.shape[1] - len(known)
        if ahead > 0:
            ax.axvline(len(known) - 0.5, color=FAINT, lw=0.8, ls=":")
        more = f", and {ahead} ahead" if ahead > 0 else ""
        faint_title(ax, f"{label}: {len(known):,} steps{more}")
        bare(ax)
    axes[-1].set_xlabel("step", fontsize=9, color=INK)
    legend_below(figure, marks)
    trust_caption(figure, fit)
    return axes


def _observed(fit: Fit) -> dict[str, np.ndarray]:
    """The data of the fit, of sites that have steps."""
    if not fit.has_data:
        raise ArgumentError(
            "The file of the fit holds no data to go on from.\n"
            "Expected the old data: pass them to lb.load(path, model, ...)."
        )
    with jax.enable_x64(True):
        model = trace_model(fit.original, *fit.call_with((), {}), fit.answer.plate)
    found = {name: array for name, array in observed_values(model).items() if array.ndim}
    if not found:
        raise ArgumentError(
            "plot.forecast got a fit of a program that observes no series.\n"
            "Expected an observed site whose first axis is time."
        )
    return found
