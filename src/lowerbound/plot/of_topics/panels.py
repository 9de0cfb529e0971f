"""The words of the topics, as small multiples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lowerbound.plot.axes import COLOURS, INK, PALE, bare, percent, pyplot
from lowerbound.plot.elements import check_least
from lowerbound.topics.fitted_topics import TopicModel, check_fitted, word_names
from lowerbound.topics.looks.divergence import means
from lowerbound.topics.looks.quality import top_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def topics(model: TopicModel, n_words: int = 8, n_topics: int = 12, columns: int = 4) -> np.ndarray:
    """The `n_topics` largest topics, the largest first: E[beta] of their most probable words.

    The strip above a panel is as long as the topic's share of the tokens, relative to the largest.
    All panels have one scale. Returns the axes, shape (topics,).
    """
    check_fitted("plot.topics", model)
    check_least("plot.topics", 1, n_words=n_words, n_topics=n_topics, columns=columns)
    weights = np.asarray(model.topic_weights_)
    order = np.argsort(-weights, kind="stable")[:n_topics]
    beta, names = means(model.components_[order]), word_names(model)
    words = top_words(beta, min(n_words, beta.shape[1]))
    columns = min(columns, len(order))
    rows = -(-len(order) // columns)
    _, axes = pyplot().subplots(
        rows,
        columns,
        figsize=(2.3 * columns, rows * (0.17 * words.shape[1] + 0.55) + 0.2),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    drawn: np.ndarray = axes.ravel()[: len(order)]
    for ax, k, row, shown in zip(drawn, order, beta, words, strict=True):
        _bars(ax, row[shown], names[shown])
        ax.set_title(f"topic {k}  ·  {weights[k]:.1%}", fontsize=9, loc="left", color=INK, pad=9)
        _strip(ax, weights[k] / weights[order[0]])
    drawn[0].set_xlim(0, 1.03 * beta.max())
    for ax in axes.ravel()[len(order) :]:
        ax.remove()
    for ax in drawn[-columns:]:  # the lowest of each column
        ax.tick_params(labelbottom=True)
    drawn[-1].get_figure().supxlabel("probability of the word in the topic", fontsize=9, color=INK)
    return drawn


def _bars(ax: Axes, probabilities: np.ndarray, names: np.ndarray) -> None:
    from matplotlib.ticker import MaxNLocator

    places = np.arange(len(names))
    ax.barh(places, probabilities, height=0.7, color=COLOURS[0])
    ax.set_yticks(places, names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.xaxis.set_major_locator(MaxNLocator(3))
    percent(ax.xaxis)
    bare(ax)
    ax.tick_params(axis="y", length=0)


def _strip(ax: Axes, share: float) -> None:
    """A strip over the panel, filled up to `share`."""
    for length, colour in ((1.0, PALE), (share, COLOURS[1])):
        ax.plot(
            [0, length],
            [1.03, 1.03],
            color=colour,
            lw=2.5,
            solid_capstyle="butt",
            transform=ax.transAxes,
            clip_on=False,
            gid="weight" if colour != PALE else None,
        )
