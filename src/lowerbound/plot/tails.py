"""How heavy the tails of importance weights are: k-hat of a fit, or of every row left out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.choosing.compared import Comparison
from lowerbound.errors import ArgumentError, NotAFitError
from lowerbound.family.numerics.pareto import smoothed_weights
from lowerbound.plot.axes import COLOURS, FAINT, INK, PALE, bare, pyplot, small_panels
from lowerbound.plot.captions import faint_title, trust_caption
from lowerbound.plot.elements import check_least
from lowerbound.result.evidence import k_threshold
from lowerbound.result.fitted import Fit
from lowerbound.trust.against import against

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = 5  # rows whose number is written


def k_hat(result: Fit | Comparison, draws: int = 1000, seed: int = 0) -> np.ndarray:
    """The importance weights of a fit by size, with k-hat; or the k-hat of every row left out.

    Of a fit: the shares that single draws of q have in a weighted average, p / q, the largest
    first. A horizontal line is perfect: all draws count alike. The steeper the left end, the fewer
    draws carry all; above the threshold (Vehtari et al. 2024) an average over them means nothing.
    Of a comparison by leave-one-out, `lb.compare(fits, by="loo")`: the k-hat of every row, a panel
    a fit; rows above the threshold are orange, the largest with their numbers. Returns the axes,
    shape (panels,).

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> (ax,) = lb.plot.k_hat(lb.fit(coin, y))
    >>> ax.get_title(loc="left")
    'k-hat 0.00, good below 0.67; 1,000 draws are worth 1,000'
    """
    check_least("plot.k_hat", 100, draws=draws)
    if isinstance(result, Comparison):
        return _of_rows(result)
    if not isinstance(result, Fit):
        raise NotAFitError("plot.k_hat", result)
    with np.errstate(all="ignore"):
        ratios = against(result).drawn(draws, seed).log_ratios
    fine = ratios[np.isfinite(ratios)]
    if len(fine) < 25:
        raise ArgumentError(
            f"plot.k_hat got a fit of whose {draws} draws {len(fine)} have a density under p.\n"
            "Expected 25 or more. The support of q is not that of the posterior."
        )
    figure, ax = pyplot().subplots(figsize=(5, 3.2), layout="constrained")
    _weights(ax, fine)
    trust_caption(figure, result)
    found = np.empty(1, object)
    found[0] = ax
    return found


def _weights(ax: Axes, ratios: np.ndarray) -> None:
    raw = np.sort(np.exp(ratios - ratios.max()))[::-1]
    raw /= raw.sum()
    log_weights, shape = smoothed_weights(ratios)
    smooth = np.sort(np.exp(log_weights))[::-1]
    count, most = len(raw), k_threshold(len(ratios))
    size = 1 / float((smooth**2).sum())
    ranks = np.arange(1, count + 1)
    colour = COLOURS[0] if shape < most else COLOURS[1]
    ax.axhline(1 / count, color=FAINT, lw=1, ls=":", zorder=1)
    ax.text(1, 1 / count, "even weights", fontsize=7, color=FAINT, va="bottom")
    tail = min(count // 5, math.ceil(3 * math.sqrt(count)))
    ax.plot(ranks, raw, color=colour, lw=1.8, gid="weights", label="draws")
    if shape:
        style: Any = {"color": INK, "lw": 1, "ls": "--"}
        ax.plot(ranks[:tail], smooth[:tail], **style, label="Pareto tail")
        ax.legend(frameon=False, fontsize=8, loc="lower left", labelcolor=INK)
    ax.set(xscale="log", yscale="log")
    top = max(float(raw[0]), 3 / count)
    ax.set_ylim(max(float(raw[-1]), 1e-2 / count) * 0.7, min(2 * top, 1.3))
    ax.set_xlabel("draws of q, the heaviest first", fontsize=9, color=INK)
    ax.set_ylabel("share of all weight", fontsize=9, color=INK)
    text = f"k-hat {shape:.2f}, good below {most:.2f}; {count:,} draws are worth {size:,.0f}"
    faint_title(ax, text)
    bare(ax)


def _of_rows(found: Comparison) -> np.ndarray:
    if not found.k_hats:
        raise ArgumentError(
            f'plot.k_hat got a comparison by "{found.by}", which has no k-hats.\n'
            'Expected lb.compare(fits, by="loo"), or a fit.'
        )
    figure, axes = small_panels(len(found.k_hats), 2, (4.2, 2.4), sharey=True)
    for ax, (name, values) in zip(axes, found.k_hats.items(), strict=True):
        _rows(ax, name, np.asarray(values, float))
    figure.supylabel("k-hat", fontsize=9, color=INK)
    figure.supxlabel("row left out", fontsize=9, color=INK)
    return axes


def _rows(ax: Axes, name: str, values: np.ndarray) -> None:
    most = 0.7
    shown = np.clip(np.where(np.isfinite(values), values, 2.0), -0.5, 2.0)
    bad = ~(values <= most)
    at = np.arange(len(values))
    ax.axhspan(most, 2.1, color=PALE, lw=0, zorder=0)
    small = 3.5 if len(values) < 2000 else 1.5
    ax.plot(at[~bad], shown[~bad], "o", color=COLOURS[0], ms=small, mew=0, alpha=0.7, gid=name)
    ax.plot(at[bad], shown[bad], "o", color=COLOURS[1], ms=small + 1, mew=0)
    for row in np.argsort(-np.where(bad, shown, -np.inf))[: min(NAMED, int(bad.sum()))]:
        place = (4, -2)
        ax.annotate(
            str(row), (row, shown[row]), place, textcoords="offset points", fontsize=7, color=INK
        )
    ax.set_ylim(min(-0.1, float(shown.min()) - 0.05), max(1.0, float(shown.max()) + 0.1))
    faint_title(ax, f"{name}: {int(bad.sum())} of {len(values):,} rows above {most}")
    bare(ax)
