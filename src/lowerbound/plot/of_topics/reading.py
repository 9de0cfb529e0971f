"""One document as the topics read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.errors import SettingError
from lowerbound.plot.axes import COLOURS, FAINT, INK, bare, empty, percent, pyplot
from lowerbound.topics.documents import Documents
from lowerbound.topics.fitted_topics import (
    TopicModel,
    check_fitted,
    empty_documents_accepted,
    opened,
    word_names,
)
from lowerbound.topics.looks.divergence import means
from lowerbound.topics.looks.quality import top_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HUES = COLOURS[:-1]  # grey is for the topics that are not shown
WORDS = 80  # distinct words that are written out
SIZES = (8.5, 15.0)  # points, of the rarest and the most frequent word
BATCH = 8192


def document(model: TopicModel, X: Any, index: int = 0, n_topics: int = 5) -> np.ndarray:
    """Document `index` of X: its proportions E[theta], and the most likely topic of each word.

    A word w gets the colour of the k with the largest phi_wk ∝ E[theta_k] E[beta_kw], grey if that
    is none of the `n_topics` largest; words are in the order and the size of their counts. Returns
    the two axes.
    """
    check_fitted("plot.document", model, "transform")
    if not 1 <= n_topics <= len(HUES):
        expected = f"a number from 1 to {len(HUES)}, as many as there are distinct colours"
        raise SettingError("plot.document", "n_topics", n_topics, expected)
    with empty_documents_accepted():
        one = _find(model, X, index)
        theta = np.asarray(model.transform(one))[0]
    order = np.argsort(-theta, kind="stable")[:n_topics]
    figure, (left, right) = pyplot().subplots(
        1, 2, figsize=(8.5, 3.4), width_ratios=[1, 1.7], layout="constrained"
    )
    names = word_names(model)
    _proportions(left, model, theta, order, names)
    left.set_title(f"document {index}  ·  {one.tokens:,.0f} words", fontsize=9, loc="left")
    figure.draw_without_rendering()  # the layout settles here, and widths are known
    figure.set_layout_engine("none")
    hue = {int(k): colour for k, colour in zip(order, HUES, strict=False)}
    ranked = np.argsort(-one.counts, kind="stable")
    words, counts = one.words[ranked], one.counts[ranked]
    phi = theta[:, None] * means(model.components_)[:, words]
    colours = [hue.get(int(k), FAINT) for k in phi.argmax(axis=0)]
    _flow(right, names[words], counts, colours)
    return np.array([left, right], dtype=object)


def _find(model: TopicModel, X: Any, index: int) -> Documents:
    """Document `index`, alone; a stream is read up to it."""
    corpus = opened(model, X)
    first = 0
    for batch in [corpus.held] if corpus.held is not None else corpus.batches(BATCH):
        if 0 <= index - first < len(batch):
            return batch.between(index - first, index - first + 1)
        first += len(batch)
    expected = f"a number from 0 to {first - 1}"
    raise SettingError("plot.document", "index", index, expected, f" of {first} documents")


def _proportions(
    ax: Axes, model: TopicModel, theta: np.ndarray, order: np.ndarray, names: np.ndarray
) -> None:
    tops = top_words(model.components_[order], min(3, len(names)))
    labels = [f"topic {k}\n{', '.join(names[row])}" for k, row in zip(order, tops, strict=True)]
    shares, colours = list(theta[order]), list(HUES[: len(order)])
    others = len(theta) - len(order)
    if others:
        shares.append(1 - sum(shares))
        colours.append(FAINT)
        labels.append(f"{others} other{'s' if others > 1 else ''}")
    places = np.arange(len(shares))
    bars = ax.barh(places, shares, height=0.62, color=colours)
    ax.bar_label(bars, [f"{share:.0%}" for share in shares], padding=3, fontsize=8, color=INK)
    ax.set_yticks(places, labels)
    ax.set_ylim(len(shares) - 0.5, -0.5)
    ax.set_xlim(0, max(shares) * 1.15)
    percent(ax.xaxis)
    ax.set_xlabel("share of the document", fontsize=9)
    bare(ax)
    ax.tick_params(axis="y", length=0)


def _flow(ax: Axes, names: np.ndarray, counts: np.ndarray, colours: list[str]) -> None:
    """Words in lines from left to right; a text that would not fit below the last line is cut."""
    empty(ax)
    ax.set(xlim=(0, 1), ylim=(1, 0))
    if not len(names):
        ax.text(0, 0.05, "no words: the proportions are the prior's", fontsize=9, color=FAINT)
        return
    figure: Any = ax.get_figure(root=True)
    frame = ax.get_window_extent()
    pixels = figure.dpi / 72
    largest = np.log(counts.max()) or 1.0
    sizes = SIZES[0] + (SIZES[1] - SIZES[0]) * np.log(counts) / largest
    x, top = 0.0, 0.0
    line = 1.45 * sizes[0] * pixels  # words come by count: the first of a line is its largest
    for number, (name, count, size, colour) in enumerate(
        zip(names, counts, sizes, colours, strict=True)
    ):
        text = f"{name} ×{count:.0f}" if count > 1 else str(name)
        word = ax.text(0, 0, text, fontsize=size, color=colour, va="baseline")
        width = word.get_window_extent().width
        if x > 0 and x + width > frame.width:
            x, top = 0.0, top + line
            line = 1.45 * size * pixels
        if number == WORDS or top + line > frame.height - 1.45 * SIZES[0] * pixels:
            word.remove()
            ax.text(0, 1, f"and {len(names) - number} more", fontsize=8, color=FAINT)
            return
        word.set_position((x / frame.width, (top + 0.75 * line) / frame.height))
        x += width + 0.8 * size * pixels
