"""Topics during training: their shares, and the words of one."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.errors import ArgumentError, SettingError
from lowerbound.plot.axes import COLOURS, FAINT, INK, PALE, bare, empty, percent, pyplot
from lowerbound.topics.fitted_topics import TopicModel, check_fitted, word_names
from lowerbound.topics.snapshots import Snapshots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = 8  # topics with a colour and a label
COLUMNS = 7  # snapshots of one topic side by side
LINES = (*COLOURS[:-1], INK, "#7A4B00")  # as many as are named


def topic_history(
    model: TopicModel, topic: int | None = None, n_words: int = 8, ax: Axes | None = None
) -> Axes:
    """The topics' shares of the tokens by documents seen, the largest by name.

    With `topic`, the most probable words of that topic in the order of their probability, a column
    per snapshot (at most 7 of them, evenly chosen), a line along each word.
    """
    check_fitted("plot.topic_history", model, "snapshots_")
    snapshots = model.snapshots_
    if len(snapshots) == 0:
        raise ArgumentError(
            "plot.topic_history got a model with no snapshots of its training.\n"
            "Expected at least one. Fit it again for longer, or with snapshots more often."
        )
    names = word_names(model)
    if topic is None:
        return _shares(snapshots, names, ax)
    K, kept = snapshots.words.shape[1:]
    if not 0 <= topic < K:
        expected, of = f"a number from 0 to {K - 1}", f" of a model with {K} topics"
        raise SettingError("plot.topic_history", "topic", topic, expected, of)
    if not 1 <= n_words <= kept:
        of = f"; snapshots keep {kept} words of a topic"
        raise SettingError(
            "plot.topic_history", "n_words", n_words, f"a number from 1 to {kept}", of
        )
    chosen = np.unique(np.linspace(0, len(snapshots) - 1, COLUMNS).round().astype(int))
    return _ranks(snapshots, chosen, topic, n_words, names, ax)


def _shares(snapshots: Snapshots, names: np.ndarray, ax: Axes | None) -> Axes:
    if ax is None:
        ax = pyplot().subplots(figsize=(6.5, 3.4), layout="constrained")[1]
    seen, weights = snapshots.documents, snapshots.weights
    order = np.argsort(-weights[-1], kind="stable")
    for k in order[NAMED:]:
        ax.plot(seen, weights[:, k], color=PALE, lw=0.8, zorder=1)
    labels = []
    for k, colour in zip(order[:NAMED], LINES, strict=False):
        ax.plot(seen, weights[:, k], ".-", color=colour, lw=1.6, ms=4, label=f"topic {k}")
        labels.append((f"{k} {', '.join(names[snapshots.words[-1, k, :3]])}", colour))
    others = len(order) - len(labels)
    if others:
        ax.set_title(
            f"the {len(labels)} largest of {len(order)} topics; the others in grey",
            fontsize=8,
            color=FAINT,
            loc="left",
        )
    ax.set_ylim(bottom=0)
    percent(ax.yaxis)
    ax.set_xlabel("documents seen", fontsize=9)
    ax.set_ylabel("share of tokens", fontsize=9)
    _documents_axis(ax, seen)
    bare(ax)
    _label_ends(ax, weights[-1, order[: len(labels)]], labels)
    return ax


def _documents_axis(ax: Axes, seen: np.ndarray) -> None:
    from matplotlib.ticker import EngFormatter

    if 0 < 100 * seen[0] <= seen[-1]:  # snapshots that thin out as training goes on
        ax.set_xscale("log")
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    if seen[-1] > seen[0]:
        ax.set_xlim(right=seen[-1])  # the labels of the lines begin here


def _label_ends(ax: Axes, ends: np.ndarray, labels: list[tuple[str, str]]) -> None:
    """Labels to the right of lines that end at `ends` (descending), pushed apart."""
    figure: Any = ax.get_figure(root=True)
    height = 72 * figure.get_figheight() * ax.get_position().height
    step = 12 / height  # a line of text, in heights of the axes
    low, high = ax.get_ylim()
    wanted = (ends - low) / (high - low)
    places = wanted.copy()
    for i in range(1, len(places)):
        places[i] = min(places[i], places[i - 1] - step)
    # What was pushed below the axes goes back up, and takes those above it along.
    for i in range(len(places) - 1, -1, -1):
        places[i] = max(places[i], step * (len(places) - 1 - i))
    for place, end, (text, colour) in zip(places, wanted, labels, strict=True):
        ax.annotate(
            text,
            (1.0, end),
            (1.05, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            fontsize=8,
            color=colour,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "relpos": (0, 0.5)}
            | {"shrinkA": 0, "shrinkB": 0},
        )


def _ranks(
    snapshots: Snapshots,
    chosen: np.ndarray,
    topic: int,
    n_words: int,
    names: np.ndarray,
    ax: Axes | None,
) -> Axes:
    words = snapshots.words[chosen, topic, :n_words]
    if ax is None:
        size = (1.25 * len(chosen) + 0.6, 0.27 * n_words + 0.8)
        ax = pyplot().subplots(figsize=size, layout="constrained")[1]
    colours = dict(zip(words[-1].tolist(), (*LINES, *COLOURS[:2]), strict=False))
    for column, (before, after) in enumerate(pairwise(words)):
        for rank, word in enumerate(before):
            for later in np.flatnonzero(after == word).tolist():
                ax.plot(
                    [column, column + 1],
                    [rank, later],
                    color=colours.get(int(word), FAINT),
                    lw=1.2,
                    alpha=0.6,
                    zorder=1,
                )
    for column, row in enumerate(words):
        for rank, word in enumerate(row):
            ax.text(
                column,
                rank,
                names[word],
                ha="center",
                va="center",
                fontsize=8,
                color=colours.get(int(word), FAINT),
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
                zorder=2,
            )
    empty(ax)
    ax.set_xlim(-0.5, len(chosen) - 0.5)
    ax.set_ylim(n_words - 0.4, -0.6)
    ax.set_xticks(range(len(chosen)), [_short(int(d)) for d in snapshots.documents[chosen]])
    ax.set_yticks(range(n_words), [str(rank + 1) for rank in range(n_words)])
    ax.tick_params(length=0, labelsize=8, colors=INK)
    ax.set_xlabel("documents seen", fontsize=9)
    share = snapshots.weights[-1, topic]
    ax.set_title(f"topic {topic}  ·  {share:.1%}", fontsize=9, loc="left", color=INK)
    return ax


def _short(number: int) -> str:
    from matplotlib.ticker import EngFormatter

    return EngFormatter(sep="").format_eng(float(f"{number:.3g}"))
