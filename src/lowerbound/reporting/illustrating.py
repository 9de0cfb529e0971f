"""The pictures of a page, and what is said where one cannot be drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from lowerbound.errors import LowerboundError, MissingPackageError
from lowerbound.errors.wording import first_line
from lowerbound.plot.axes import pyplot
from lowerbound.plot.captions import without_verdict
from lowerbound.plot.evidenced import evidence
from lowerbound.plot.fits import elbo
from lowerbound.plot.forest import posterior
from lowerbound.plot.memberships import responsibilities
from lowerbound.plot.pairing import pairs
from lowerbound.plot.replicated import predictive
from lowerbound.plot.starting import restarts
from lowerbound.reporting.page import paragraph, picture
from lowerbound.result.fitted import Fit

DRAWN = 5000  # numbers of a posterior of which draws are made
Draw = Callable[[Fit], Any]


def numbers(fit: Fit) -> int:
    """How many numbers the sites outside the data plate have."""
    shared = (s["shape"] for s in fit.sites.values() if s["scope"] == "global")
    return sum(math.prod(shape) for shape in shared)


def pictures(fit: Fit) -> Iterator[str]:
    """Those that tell something of this fit: how it was found, how far it is off, what it says."""
    if fit.verdict.evidence is not None and fit.verdict.evidence.off:
        yield _drawn(
            fit,
            evidence,
            "How far q is off, by site, with two standard errors; good is within the grey bands.",
        )
    if fit.sites and numbers(fit) <= DRAWN:
        yield _drawn(fit, posterior, "Means, 50% (thick) and 90% (thin) intervals under q.")
        if _several(fit):
            caption = "Pairs of numbers under q: draws, and the ellipse of two sds."
            yield _drawn(fit, lambda one: pairs(one, most=4), caption)
    if _assigned(fit):
        yield _drawn(fit, responsibilities, "Which component the rows belong to, under q.")
    if len(fit.restarts) > 1 and fit.whole:
        yield _drawn(fit, restarts, f"The ELBO of every start by {fit.history.step}.")
    elif len(fit.history.elbo) > 2 or not fit.whole:  # a line through two points says nothing
        yield _drawn(fit, elbo, climb_caption(fit))


def check(fit: Fit) -> str:
    """The predictive check, or why there is none."""
    if not fit.whole:
        return paragraph(
            "The fit keeps the factors of global sites alone. Compare it with rows by "
            "lb.plot.predictive(fit, x)."
        )
    return _drawn(
        fit,
        predictive,
        "The data beside 200 data sets that the fitted model makes. They were used twice, so a "
        "check that passes proves little; one that fails says where the model is wrong.",
    )


def given(figures: Mapping[str, Any]) -> Iterator[str]:
    """Figures of the user."""
    for caption, figure in figures.items():
        yield picture(figure, caption)


def climb_caption(fit: Fit) -> str:
    """What the curve of the ELBO shows."""
    if not fit.whole:
        below = "; below, the average log predictive of rows held out"
        return f"The ELBO by rows seen{below if len(fit.history.held_out) else ''}."
    text = f"The ELBO by {fit.history.step}."
    if "Gaussian" in fit.method and np.any(np.diff(fit.history.elbo) < 0):
        text += " It is an average over draws, and may fall where a stage with more of them begins."
    return text


def _drawn(fit: Fit, draw: Draw, caption: str) -> str:
    """A picture of the library, without the verdict that the page already has."""
    try:
        axes = np.atleast_1d(np.asarray(draw(fit), dtype=object)).ravel()
    except MissingPackageError:
        raise
    except LowerboundError as error:
        return paragraph(f"Not drawn: {first_line(error)}.", "small")
    figure = axes[0].get_figure(root=True)
    without_verdict(figure)
    shown = picture(figure, caption)
    pyplot().close(figure)
    return shown


def _several(fit: Fit) -> bool:
    return numbers(fit) > 1 or sum(math.prod(s["shape"]) for s in fit.sites.values()) > 1


def _assigned(fit: Fit) -> bool:
    """Whether rows have a discrete site of their own."""
    return fit.whole and any(
        record["scope"] == "local" and record["support_values"] is not None
        for record in fit.sites.values()
    )
