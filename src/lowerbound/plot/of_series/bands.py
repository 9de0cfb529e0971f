"""Draws along the steps of a series, as bands of quantiles and as shares of states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.errors.wording import entry_of
from lowerbound.plot.axes import COLOURS, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MEDIAN, BANDS, DATA = "median", "50% and 90%", "the data"
PIXELS = 600  # columns of an image: more steps share one


def columns(name: str, values: np.ndarray, most: int) -> dict[str, np.ndarray]:
    """The series (draws, steps) of a site, one for each number that a step has; the first `most`.

    >>> list(columns("z", np.zeros((5, 9, 2)), 4))
    ['z[:, 0]', 'z[:, 1]']
    """
    flat = values.reshape(*values.shape[:2], -1)
    if flat.shape[2] == 1:
        return {name: flat[:, :, 0]}
    places = list(np.ndindex(values.shape[2:]))[:most]
    labels = [entry_of(name, place).replace("[", "[:, ") for place in places]
    return {label: flat[:, :, number] for number, label in enumerate(labels)}


def band(ax: Axes, drawn: np.ndarray, first: int = 0) -> dict[str, Any]:
    """Median and intervals of draws (draws, steps), from step `first` on."""
    steps = first + np.arange(drawn.shape[1])
    low, lower, middle, upper, high = np.quantile(drawn, QUANTILES, axis=0)
    ax.fill_between(steps, low, high, color=COLOURS[0], alpha=0.2, lw=0)
    shade = ax.fill_between(steps, lower, upper, color=COLOURS[0], alpha=0.35, lw=0)
    (line,) = ax.plot(steps, middle, color=COLOURS[0], lw=1.4)
    return {MEDIAN: line, BANDS: shade}


def points(ax: Axes, data: np.ndarray) -> dict[str, Any]:
    """The data, smaller where they are many."""
    size = 4.0 if len(data) <= 100 else 2.0
    (marks,) = ax.plot(np.arange(len(data)), data, "o", color=COLOURS[1], ms=size, mec="none")
    return {DATA: marks}


def shares(ax: Axes, drawn: np.ndarray) -> None:
    """The probability of every state in every step, white for 0 and dark for 1."""
    states = np.arange(int(drawn.min()), int(drawn.max()) + 1)
    table = np.stack([(drawn == state).mean(axis=0) for state in states], axis=1)
    steps = len(table)
    if steps > PIXELS:
        table = np.stack([part.mean(axis=0) for part in np.array_split(table, PIXELS)])
    extent = (-0.5, steps - 0.5, states[-1] + 0.5, states[0] - 0.5)
    ax.imshow(
        table.T, cmap="Blues", vmin=0, vmax=1, aspect="auto", extent=extent, interpolation="nearest"
    )
    ax.set_yticks(states[:: max(len(states) // 12, 1)])
    ax.set_ylabel("state", fontsize=9, color=INK)
