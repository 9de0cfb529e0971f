"""Which component each row belongs to, under q: responsibilities (eq:gmm-z-update)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.errors import ArgumentError, NotAFitError, UnknownSiteError
from lowerbound.plot.axes import COLOURS, INK, bare, percent, pyplot
from lowerbound.plot.captions import trust_caption
from lowerbound.result.fitted import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PIXELS = 600  # columns of the picture: more rows share one
MOST = 30  # components that have a line of their own
SURE = 0.95


def responsibilities(
    fit: Fit, *rows: Any, site: str | None = None, ordered: bool = False
) -> np.ndarray:
    """The probability of each component for every row, and how large the components are.

    site: a discrete site in the data plate, or proportions of each row, such as topics of
    documents; by default the first there is. rows: new rows, as `fit.local(*rows)` takes them,
    which a stochastic fit needs. Rows are sorted by their likeliest component and how sure it is;
    with `ordered=True` they stay in their order, as states of a time series should. Of very many
    rows several share a column. Returns the axes, shape (2,): the rows, and the sizes.

    >>> import numpyro, numpyro.distributions as dist
    >>> def pair(x):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    ...     with numpyro.plate("data", len(x)):
    ...         c = numpyro.sample("c", dist.Categorical(np.full(2, 0.5)))
    ...         numpyro.sample("x", dist.Normal(mu[c], 1.0), obs=x)
    >>> fit = lb.fit(pair, np.array([-3.0, -2.5, 2.4, 3.1]))
    >>> left, right = lb.plot.responsibilities(fit)
    >>> left.get_xlabel()
    '4 rows, by their likeliest component'
    """
    if not isinstance(fit, Fit):
        raise NotAFitError("plot.responsibilities", fit)
    name, table = _table(fit, rows, site)
    count, K = table.shape
    sizes = table.mean(axis=0)
    order = np.argsort(-sizes, kind="stable")[:MOST]
    height = float(np.clip(0.24 * len(order) + 1.0, 2.2, 6.5))
    figure, (left, right) = pyplot().subplots(
        1, 2, figsize=(5.6, height), width_ratios=[4, 1], sharey=True, layout="constrained"
    )
    _rows(left, table[:, order], ordered)
    left.set_yticks(np.arange(len(order)), [str(k) for k in order])
    left.set_ylabel(f"component ({name})", fontsize=9, color=INK)
    how = "in their order" if ordered else "by their likeliest component"
    left.set_xlabel(f"{count:,} rows, {how}", fontsize=9, color=INK)
    right.barh(np.arange(len(order)), sizes[order], 0.7, color=COLOURS[0])
    right.set_xlabel("share of rows", fontsize=9, color=INK)
    percent(right.xaxis)
    right.locator_params(axis="x", nbins=3)
    for ax in (left, right):
        bare(ax)
    sure = float((table.max(axis=1) > SURE).mean())
    empty = int((sizes * count < 1).sum())
    note = f"White is 0 and dark is 1; {sure:.0%} of the rows are sure (above {SURE})"
    note += f"; {empty} of {K} components hold less than one row" if empty else ""
    note += f"; {K - len(order)} small components are not shown" if len(order) < K else ""
    trust_caption(figure, fit, f"{note}.")
    found = np.empty(2, object)
    found[:] = [left, right]
    return found


def _rows(ax: Axes, table: np.ndarray, ordered: bool) -> None:
    """An image of the probabilities, components down and rows across."""
    if not ordered:
        likeliest = table.argmax(axis=1)
        table = table[np.lexsort((-table.max(axis=1), likeliest))]
    if len(table) > PIXELS:
        table = np.stack([part.mean(axis=0) for part in np.array_split(table, PIXELS)])
    extent = (0.0, 1.0, table.shape[1] - 0.5, -0.5)
    ax.imshow(
        table.T, cmap="Blues", vmin=0, vmax=1, aspect="auto", extent=extent, interpolation="nearest"
    )
    ax.set_xticks([])
    ax.tick_params(axis="y", length=0)


def _table(fit: Fit, rows: tuple[Any, ...], site: str | None) -> tuple[str, np.ndarray]:
    """The site, and its probabilities or proportions by row, (rows, K)."""
    if rows:
        known: Any = fit.local(*rows)
        names = list(known)
    else:
        known = fit.posterior
        names = [n for n, record in fit.sites.items() if record["scope"] == "local"]
    if site is not None and site not in names:
        which = "is no site of the rows" if names else "the fit keeps no sites of rows"
        raise UnknownSiteError("plot.responsibilities got the site", site, names or ("-",), which)
    for name in [site] if site is not None else names:
        law = known[name]
        table = np.asarray(law.probs if hasattr(law, "probs") else law.mean)
        simplex = table.ndim >= 2 and np.allclose(table.sum(axis=-1), 1.0, atol=1e-4)
        if simplex:
            return name, table.reshape(-1, table.shape[-1])
        if law.is_discrete and table.ndim >= 1 and ((table >= 0) & (table <= 1)).all():
            return name, np.stack([1 - table.ravel(), table.ravel()], axis=1)
    given = f"the site '{site}'" if site is not None else "a fit"
    hint = "" if rows or fit.whole else " A stochastic fit keeps none: pass rows, as to fit.local."
    raise ArgumentError(
        f"plot.responsibilities got {given} without probabilities of rows.\n"
        f"Expected a discrete site in the data plate, or proportions of each row.{hint}"
    )
