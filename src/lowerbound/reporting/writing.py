"""`report`: one page about a fit, the verdict first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from lowerbound.errors import NotAFitError
from lowerbound.errors.wording import entry_of
from lowerbound.plot.elements import Element, chosen
from lowerbound.reporting.illustrating import DRAWN, check, given, numbers, pictures
from lowerbound.reporting.page import (
    code,
    heading,
    page,
    paragraph,
    table,
    verdict_card,
    words,
)
from lowerbound.reporting.remaking import reproduction, settings
from lowerbound.result.fitted import Fit

AGREEMENT = 0.1  # nats: restarts this close to the best ELBO found the same optimum, in effect
ROWS = 60  # rows of the table of the posterior


def report(
    fit: Fit,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    tables: Mapping[str, Any] | None = None,
    figures: Mapping[str, Any] | None = None,
) -> Path:
    """Write a page about a fit, and return its path: one HTML file with nothing outside it.

    First the verdict, in words and coloured; then the summary of the posterior, pictures, the data
    beside data that the model makes, the plan, settings and versions, and code that makes the fit
    again. It can be read on a phone, in the dark, and on paper.

    tables: pandas DataFrames by heading; without them, the summary of the posterior.
    figures: Matplotlib figures by caption; without them, the pictures that fit the fit.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> path = lb.report(lb.fit(coin, y), "coin.html", title="Four tosses")
    >>> "<h1>Four tosses</h1>" in path.read_text("utf-8")
    True
    """
    if not isinstance(fit, Fit):
        raise NotAFitError("report", fit)
    target = Path(path)
    name = title or f"Fit of {fit.plan.model}"
    text = page(name, _parts(fit, name, tables, figures))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return target


def _parts(
    fit: Fit,
    name: str,
    tables: Mapping[str, Any] | None,
    figures: Mapping[str, Any] | None,
) -> Iterator[str]:
    yield f"<h1>{escape(name)}</h1>"
    yield verdict_card(fit.verdict)
    yield paragraph(f"{course(fit)} {_bound(fit)}")
    if fit.verdict.evidence is not None:
        yield code(repr(fit.verdict.evidence))
    for title, frame in (posterior_tables(fit) if tables is None else tables).items():
        yield heading(title)
        yield table(frame.columns, frame.itertuples())
    yield heading("Pictures")
    if figures is None:
        yield from pictures(fit)
        yield heading("Predictive check")
        yield check(fit)
    else:
        yield from given(figures)
    yield heading("What was derived")
    yield code(str(fit.plan))
    yield heading("Settings")
    yield words(settings(fit))
    yield heading("Versions")
    yield paragraph(", ".join(f"{package} {version}" for package, version in fit.versions.items()))
    yield heading("Code to reproduce")
    yield code(reproduction(fit))


def course(fit: Fit) -> str:
    """Whether the run converged, and how many restarts found the best ELBO.

    >>> course(lb.fit(coin, y))
    'Converged after 2 sweeps; there was one restart, so other optima were not looked for.'
    """
    state = "Converged" if fit.converged else "Not converged"
    if not fit.whole:
        seen = f", {fit.history.rows[-1]:,} rows" if len(fit.history.rows) else ""
        return f"{state} after {fit.restarts[0].sweeps} steps{seen}."
    close = sum(r.elbo >= fit.elbo - AGREEMENT for r in fit.restarts)
    many = (
        f"{close} of {len(fit.restarts)} restarts end within {AGREEMENT} nats of the best ELBO"
        if len(fit.restarts) > 1
        else "there was one restart, so other optima were not looked for"
    )
    count = len(fit.history.elbo)
    length = f"{count} {fit.history.step}{'' if count == 1 else 's'}"
    if fit.history.step != "sweep" and len(fit.restarts) == 1:
        return f"{state} after {length}."
    return f"{state} after {length}; {many}."


def _bound(fit: Fit) -> str:
    """The ELBO, with its standard error where it is an estimate."""
    error = "" if fit.elbo_error == 0 else f" (an estimate, standard error {fit.elbo_error:.2g})"
    return f"ELBO {fit.elbo:,.2f} nats{error}."


def posterior_tables(fit: Fit) -> dict[str, Any]:
    """The summary of the posterior: of a large one the numbers that stand out most.

    Of a very large one by exact moments, without draws.
    """
    import pandas as pd

    if not fit.sites:
        return {}
    if numbers(fit) <= DRAWN:
        frame = fit.summary()
        sites = [str(name).partition("[")[0] for name in frame.index]
    else:
        shared = [name for name, record in fit.sites.items() if record["scope"] == "global"]
        parts = [_moments(fit, name) for name in shared]
        sites = [name for name, part in zip(shared, parts, strict=True) for _ in part.index]
        frame = pd.concat(parts)
    if len(frame) <= ROWS:
        return {"Posterior": frame}
    middle = frame.groupby(sites)["mean"].transform("median")
    scores = ((frame["mean"] - middle).abs() / frame["sd"]).fillna(0.0)
    every = [
        Element(str(label), site, place, float(score))
        for place, (label, site, score) in enumerate(zip(frame.index, sites, scores, strict=True))
    ]
    kept = [one.place for one in chosen(every, ROWS)]
    title = f"Posterior ({ROWS} of {len(frame):,} numbers, those that stand out most)"
    return {title: frame.iloc[kept]}


def _moments(fit: Fit, name: str) -> Any:
    """Exact means and sds of a site."""
    import pandas as pd

    mean, sd = fit.mean(name), fit.sd(name)
    labels = [entry_of(name, index) for index in np.ndindex(mean.shape)]
    return pd.DataFrame({"mean": mean.ravel(), "sd": sd.ravel()}, index=labels)
