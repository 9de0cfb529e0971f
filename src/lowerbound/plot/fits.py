"""Pictures of a run and of its components: the ELBO, and mixtures in the plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.errors import ArgumentError
from lowerbound.plot.axes import COLOURS, FAINT, INK, bare, pyplot
from lowerbound.result.fitted import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def elbo(fit: Fit, ax: Axes | None = None) -> Axes:
    """The ELBO (eq:elbo) of the kept restart by sweep; where the other restarts ended, as dots.

    Of a stochastic fit: its noisy estimates by rows seen, and the ELBO of the result; rows held out
    have a panel of their own below, unless `ax` is given. Returns the axes of the ELBO.
    """
    if fit.whole:
        ax = pyplot().subplots(figsize=(5, 3), layout="constrained")[1] if ax is None else ax
        _by_sweep(fit, ax)
    elif ax is not None or not len(fit.history.held_out):
        ax = pyplot().subplots(figsize=(5, 3), layout="constrained")[1] if ax is None else ax
        _by_rows(fit, ax)
        ax.set_xlabel("rows seen", fontsize=9)
    else:
        _, (ax, below) = pyplot().subplots(
            2, sharex=True, figsize=(5, 4.6), layout="constrained", height_ratios=[3, 2]
        )
        _by_rows(fit, ax)
        _held_out(fit, below)
        below.set_xlabel("rows seen", fontsize=9)
    return ax


def _by_sweep(fit: Fit, ax: Axes) -> None:
    values = fit.history.elbo
    sweeps = np.arange(1, len(values) + 1)
    ends = [(r.sweeps, r.elbo) for r in fit.restarts if np.isfinite(r.elbo)]
    if len(ends) > 1:
        ax.plot(*zip(*ends, strict=True), "o", color=FAINT, ms=4, alpha=0.6, label="other restarts")
    ax.plot(sweeps, values, color=COLOURS[0], lw=1.8, label="kept restart")
    ax.plot(sweeps[-1], values[-1], "o", color=COLOURS[0], ms=5)
    if len(ends) > 1:
        ax.legend(frameon=False, fontsize=8, loc="lower right")
    ax.set_xlabel(fit.history.step, fontsize=9)
    ax.set_ylabel("ELBO (nats)", fontsize=9)
    bare(ax)


def _by_rows(fit: Fit, ax: Axes) -> None:
    """The history of a stochastic fit, and the ELBO of its result with two standard errors."""
    rows, values = fit.history.rows, fit.history.elbo
    if "Memoized" in fit.method:  # sums over all rows after every pass: nothing is noisy
        ax.plot(rows, values, ".-", color=COLOURS[0], lw=1.8, ms=8)
    else:
        if np.isfinite(values).any():  # collapsed topics have no bound on the way
            ax.plot(rows, values, ".-", color=FAINT, lw=1, ms=4, label="noisy, from minibatches")
        kind = "all rows" if fit.elbo_error == 0 else "rows drawn anew"
        ax.errorbar(
            rows[-1:],
            np.full(len(rows[-1:]), fit.elbo),
            yerr=2 * fit.elbo_error if fit.elbo_error > 0 else None,
            fmt="o",
            color=COLOURS[0],
            ms=6,
            capsize=3,
            label=f"the result, on {kind}",
        )
        # Above the panel: noise leaves no corner of it free.
        ax.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    ax.set_ylabel("ELBO (nats)", fontsize=9)
    _rows_axis(ax)


def _held_out(fit: Fit, ax: Axes) -> None:
    rows, values = fit.history.rows, fit.history.held_out
    ax.plot(rows, values, ".-", color=COLOURS[1], lw=1.8, ms=6)
    ax.set_ylabel(f"held-out log predictive\n({fit.history.unit})", fontsize=9)
    _rows_axis(ax)


def _rows_axis(ax: Axes) -> None:
    from matplotlib.ticker import EngFormatter, ScalarFormatter

    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    # Nats are read off the axis: no offset to add in the head.
    ax.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    ax.ticklabel_format(axis="y", style="plain")
    bare(ax)


def mixture(
    fits: Fit | Mapping[str, Fit],
    x: np.ndarray,
    labels: np.ndarray | None = None,
    *,
    mean: str = "mu",
    precision: str = "precision",
    weights: str | None = "pi",
    axes: Any = None,
) -> np.ndarray:
    """Two-dimensional data with the 2-sigma ellipse of every component (fig:gmm_2d).

    fits: a fit, or fits by title for one panel each. x: shape (n, 2), coloured by `labels` (n,).
    mean, precision, weights: the sites that hold the components' means (K, 2), precisions (K, 2, 2)
    or by axis (K, 2), and weights (K,). Components fade with their weight. The ellipses are those
    of E[mean] and E[precision]^-1. Returns the axes, shape (fits,).
    """
    panels: Mapping[str, Fit] = {"": fits} if isinstance(fits, Fit) else fits
    points = np.asarray(x)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ArgumentError(
            f"plot.mixture got x of shape {points.shape}.\nExpected two-dimensional points, (n, 2)."
        )
    if axes is None:
        _, axes = pyplot().subplots(
            1,
            len(panels),
            figsize=(3.2 * len(panels), 3.2),
            sharex=True,
            sharey=True,
            squeeze=False,
            layout="constrained",
        )
    flat = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    for ax, (title, fit) in zip(flat, panels.items(), strict=False):
        _points(ax, points, labels)
        share = None if weights is None else fit.mean(weights)
        _ellipses(ax, fit.mean(mean), _covariances(fit.mean(precision)), share)
        ax.set_title(title, fontsize=10, loc="left")
        ax.set_aspect("equal", adjustable="box")
        bare(ax)
    return flat[: len(panels)]


def _points(ax: Axes, x: np.ndarray, labels: np.ndarray | None) -> None:
    if labels is None:
        ax.scatter(x[:, 0], x[:, 1], s=5, color=FAINT, alpha=0.5, linewidths=0)
        return
    for number, label in enumerate(np.unique(labels)):
        own, colour = x[labels == label], COLOURS[number % len(COLOURS)]
        ax.scatter(own[:, 0], own[:, 1], s=5, color=colour, alpha=0.55, linewidths=0)


def _covariances(precision: np.ndarray) -> np.ndarray:
    """Covariances (K, 2, 2) of precision matrices (K, 2, 2) or of precisions by axis (K, 2)."""
    if precision.ndim == 2:
        precision = precision[:, :, None] * np.eye(2)
    return np.linalg.inv(precision)


def _ellipses(
    ax: Axes, means: np.ndarray, covariances: np.ndarray, weights: np.ndarray | None
) -> None:
    """Outlines at two standard deviations, fainter for components of little weight."""
    angle = np.linspace(0, 2 * np.pi, 100)
    circle = 2 * np.stack([np.cos(angle), np.sin(angle)])
    shares = np.ones(len(means)) if weights is None else weights / weights.max()
    for centre, covariance, share in zip(means, covariances, shares, strict=True):
        outline = centre[:, None] + np.linalg.cholesky(covariance) @ circle
        alpha = 0.12 + 0.88 * min(1.0, 2 * float(share))
        ax.fill(*outline, color=INK, alpha=0.07 * alpha, linewidth=0)
        ax.plot(*outline, color=INK, alpha=alpha, lw=1.4)
        ax.plot(*centre, "+", color=INK, alpha=alpha, ms=7, mew=1.4)
