"""Topics as points in the plane: near ones use the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.plot.axes import COLOURS, FAINT, empty, pyplot
from lowerbound.plot.elements import check_least
from lowerbound.plot.of_topics.labels import label
from lowerbound.topics.fitted_topics import TopicModel, check_fitted, word_names
from lowerbound.topics.looks.divergence import divergences, means
from lowerbound.topics.looks.quality import DUPLICATE, IDLE, top_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGEST = 0.018  # of the picture's area, covered by the largest circle


def topic_map(
    model: TopicModel, n_words: int = 3, n_topics: int = 200, ax: Axes | None = None
) -> Axes:
    """The topics in the plane, by classical scaling of their distances sqrt(JS).

    A circle's area is the topic's share of the tokens. Labels are the most probable words, for as
    many topics as have room, the largest first; a line joins topics that say the same
    (`quality.duplicates`). Topics with less than a tenth of an equal share have neither; those with
    less than an equal share count for less in the choice of the plane, so that idle ones do not
    turn it. Of more than `n_topics` topics, the largest.
    """
    check_fitted("plot.topic_map", model)
    check_least("plot.topic_map", 1, n_words=n_words, n_topics=n_topics)
    every = np.asarray(model.topic_weights_)
    order = np.argsort(-every, kind="stable")[:n_topics]
    beta, weights = means(model.components_[order]), every[order]
    squared = divergences(beta)
    points, kept = scaled(squared, np.minimum(weights, 1 / len(every)))
    if ax is None:
        ax = pyplot().subplots(figsize=(7, 6), layout="constrained")[1]
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.12)
    empty(ax)
    radii = _circles(ax, points, weights)
    used = np.count_nonzero(weights >= IDLE / len(every))  # the first ones
    same = np.argwhere(np.triu(squared[:used, :used] < DUPLICATE, 1))
    for pair in same:
        ax.plot(*points[pair].T, color=COLOURS[1], lw=1.6, zorder=3, gid="duplicates")
    few = f"the {len(order)} largest of {len(every)} topics; " if len(order) < len(every) else ""
    joined = "; lines join topics that say the same" if len(same) else ""
    note = f"{few}the plane holds {kept:.0%} of the squared distances{joined}"
    ax.set_title(note, fontsize=8, color=FAINT, loc="left")
    names = word_names(model)
    words = top_words(beta[:used], min(n_words, beta.shape[1]))
    texts = [", ".join(names[row]) for row in words]
    label(ax, points, radii, [str(k) for k in order[:used]], texts)
    return ax


def scaled(squared: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Classical scaling (Torgerson 1952): points (K, 2), and their share of the squared distances.

    The two leading principal coordinates of squared distances D (K, K), each topic counted by its
    weight (K,): with equal weights those of -J D J / 2.
    """
    share = weights / weights.sum()
    centred = squared - share @ squared
    inner = -(centred - (centred @ share)[:, None]) / 2
    root = np.sqrt(np.maximum(share, 1e-12))
    values, vectors = np.linalg.eigh(root[:, None] * (inner + inner.T) / 2 * root)
    vectors = vectors / root[:, None]
    lengths = np.clip(values[::-1][:2], 0, None)
    points = np.zeros((len(squared), 2))
    points[:, : len(lengths)] = vectors[:, ::-1][:, :2] * np.sqrt(lengths)
    # Signs are free: the entry of the largest size is made positive.
    leading = np.abs(points).argmax(axis=0)
    points *= np.where(points[leading, [0, 1]] < 0, -1.0, 1.0)
    total = np.clip(values, 0, None).sum()
    return points, float(lengths.sum() / total) if total > 0 else 1.0


def _circles(ax: Axes, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Circles with areas proportional to the weights; their radii in points of the page (K,)."""
    figure: Any = ax.get_figure(root=True)
    width, height = figure.get_size_inches() * 72
    sizes = LARGEST * width * height * weights / weights.max()
    x, y = points.T
    ax.scatter(x, y, s=sizes, color=COLOURS[0], alpha=0.35, edgecolors="white", lw=0.8, zorder=2)
    radii: np.ndarray = np.sqrt(sizes) / 2
    return radii
