"""A page about a fit: one HTML file with nothing outside it."""

from __future__ import annotations

import base64
import io
import math
import os
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from lowerbound.result.fitted import Fit

__all__ = ["report", "verdict"]

AGREEMENT = 0.1  # nats: restarts this close to the best ELBO found the same optimum, in effect
ROWS = 60  # rows of the table of the posterior
DRAWN = 5000  # elements of a posterior of which quantiles are drawn

STYLE = """
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222;
       font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
pre { background: #f5f5f5; padding: .8rem 1rem; overflow-x: auto; font-size: .75rem; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .15rem .9rem .15rem 0; border-bottom: 1px solid #e5e5e5; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1rem 0; } img { max-width: 100%; }
figcaption, .small { color: #666; font-size: .9rem; }
.all, .means, .nothing { border-left: .4rem solid #009e73; padding-left: .8rem; }
.means { border-color: #e69f00; } .nothing { border-color: #d55e00; }
"""


def verdict(fit: Fit) -> str:
    """Whether the fit converged, and how many restarts found the best ELBO."""
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
    error = "" if fit.elbo_error == 0 else f" (an estimate, standard error {fit.elbo_error:,.2f})"
    return f"ELBO {fit.elbo:,.2f} nats{error}."


def _posterior(fit: Fit) -> dict[str, Any]:
    """The summary of the posterior; of a large one, exact moments of its first elements."""
    import pandas as pd

    shared = {n: s["shape"] for n, s in fit.sites.items() if s["scope"] == "global"}
    count = sum(math.prod(shape) for shape in shared.values())
    if count <= DRAWN:
        summary = fit.summary()
        more = f" (first {ROWS} of {len(summary)} elements)" if len(summary) > ROWS else ""
        return {f"Posterior{more}": summary.head(ROWS)}
    rows: dict[str, dict[str, float]] = {}
    for name, shape in shared.items():
        mean, sd = fit.mean(name).ravel(), fit.sd(name).ravel()
        for place in range(min(math.prod(shape), ROWS - len(rows))):
            index = ", ".join(map(str, np.unravel_index(place, shape)))
            rows[f"{name}[{index}]"] = {"mean": mean[place], "sd": sd[place]}
    heading = f"Posterior (first {len(rows)} of {count} elements)"
    return {heading: pd.DataFrame.from_dict(rows, orient="index")}


def report(
    fit: Fit,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    tables: Mapping[str, Any] | None = None,
    figures: Mapping[str, Any] | None = None,
) -> Path:
    """Write a page about a fit: how far to trust it, what was derived, the run, the posterior.

    tables: pandas DataFrames by heading; without them, the summary of the posterior.
    figures: Matplotlib figures by caption; without them, the climb of the ELBO.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> path = lb.report(lb.fit(coin, y), "coin.html", title="Four tosses")
    >>> "<h1>Four tosses</h1>" in path.read_text("utf-8")
    True
    """
    heading = title or f"Fit of {fit.plan.model}"
    if tables is None:
        tables = _posterior(fit)
    versions = ", ".join(f"{name} {version}" for name, version in fit.versions.items())
    parts = [
        f"<h1>{escape(heading)}</h1>",
        f"<p class={fit.verdict.trust}><strong>{escape(str(fit.verdict))}</strong></p>",
        f"<p>{escape(verdict(fit))} {escape(_bound(fit))}</p>",
        *(_figure(figure, caption) for caption, figure in _figures(fit, figures).items()),
        "<h2>What was derived</h2>",
        f"<pre>{escape(str(fit.plan))}</pre>",
        *(_table(name, table) for name, table in tables.items()),
        "<h2>The run</h2>",
        f"<p class=small>{escape(fit.method)}, seed {fit.seed}, {fit.precision}; "
        f"{escape(fit.stop_reason)}. {escape(versions)}.</p>",
    ]
    page = (
        f"<!doctype html>\n<html lang=en><meta charset=utf-8>\n<title>{escape(heading)}</title>\n"
        f"<meta name=viewport content='width=device-width'>\n<style>{STYLE}</style>\n"
        + "\n".join(parts)
        + "\n</html>\n"
    )
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page, encoding="utf-8")
    return target


def _figures(fit: Fit, figures: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if figures is not None:
        return figures
    from lowerbound import plot

    caption = f"The ELBO by {fit.history.step}."
    if "Gaussian" in fit.method and np.any(np.diff(fit.history.elbo) < 0):
        caption += (
            " It is an average over draws, and may fall where a stage with more of them begins."
        )
    if not fit.whole:
        below = "; below, the average log predictive of rows held out"
        caption = f"The ELBO by rows seen{below if len(fit.history.held_out) else ''}."
    return {caption: plot.elbo(fit).figure}


def _figure(figure: Any, caption: str) -> str:
    """A Matplotlib figure as a picture inside the page."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    data = base64.b64encode(buffer.getvalue()).decode()
    text = escape(caption)
    return (
        f"<figure><img alt='{text}' src='data:image/png;base64,{data}'>"
        f"<figcaption>{text}</figcaption></figure>"
    )


def _table(name: str, table: Any) -> str:
    head = "".join(f"<th>{escape(str(c))}</th>" for c in ("", *table.columns))
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(_cell(v))}</td>" for v in (index, *values)) + "</tr>"
        for index, *values in table.itertuples()
    )
    return f"<h2>{escape(name)}</h2>\n<table><tr>{head}</tr>\n{rows}\n</table>"


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.3f}" if value == 0 or 1e-3 <= abs(value) < 1e6 else f"{value:.3g}"
