"""Labels that do not cover each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.plot.axes import FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Where a label may stand: right, left, above, below its circle, then the corners, then farther.
SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (0.8, 0.8), (-0.8, 0.8), (0.8, -0.8), (-0.8, -0.8))
GAPS = (2.5, 12.0)  # points
NUMBER = np.array([7.0, 4.0])  # points: half of the width and the height of a number


def label(
    ax: Axes, points: np.ndarray, radii: np.ndarray, numbers: Sequence[str], texts: Sequence[str]
) -> None:
    """A number in each of the first circles and a text beside it, or both beside a small circle.

    points (K, 2): the centres, in data coordinates. radii (K,): in points of the page. Texts are
    placed in turn; one without a free place in the axes is left out.
    """
    from matplotlib.patheffects import withStroke

    figure: Any = ax.get_figure(root=True)
    figure.draw_without_rendering()  # the layout settles here, and places are known
    scale = 72 / figure.dpi
    centres = ax.transData.transform(points) * scale
    frame = ax.get_window_extent().extents * scale
    halo = [withStroke(linewidth=1.5, foreground="white", alpha=0.8)]
    style: Any = {"ha": "center", "va": "center", "fontsize": 7, "color": INK, "zorder": 5}
    taken = np.zeros((0, 4))  # left, bottom, right, top in points
    inside = []
    for point, centre, radius, number in zip(points, centres, radii, numbers, strict=False):
        box = np.concatenate([centre - NUMBER, centre + NUMBER])
        fits = radius > NUMBER.max() and not _meets(box, taken)
        if fits:
            ax.text(point[0], point[1], number, **style)
            taken = np.vstack([taken, box])
        inside.append(fits)
    for own, text in enumerate(texts):
        written = ax.annotate(
            text if inside[own] else f"{numbers[own]} {text}",
            points[own],
            (0, 0),
            textcoords="offset points",
            path_effects=halo,
            **style,
        )
        extent = written.get_window_extent()
        half = np.array([extent.width, extent.height]) * scale / 2
        place = _best_place(own, centres, radii, half, frame, taken)
        if place is None:
            written.remove()
            continue
        written.set_position(tuple(place))
        middle = centres[own] + place
        taken = np.vstack([taken, np.concatenate([middle - half, middle + half])])
        if (np.abs(place) - half).max() > radii[own] + 2 * GAPS[0]:
            end = np.clip(0, place - half, place + half)
            plain = {"arrowstyle": "-", "lw": 0.5, "color": FAINT, "shrinkA": 0, "shrinkB": 0}
            ax.annotate(
                "", points[own], tuple(end), textcoords="offset points", arrowprops=plain, zorder=4
            )


def _meets(box: np.ndarray, taken: np.ndarray) -> bool:
    """Whether a box (left, bottom, right, top) overlaps one of those taken."""
    return bool(((box[:2] < taken[:, 2:]) & (box[2:] > taken[:, :2])).all(axis=1).any())


def _best_place(
    own: int,
    centres: np.ndarray,
    radii: np.ndarray,
    half: np.ndarray,
    frame: np.ndarray,
    taken: np.ndarray,
) -> np.ndarray | None:
    """Where the label of circle `own` covers no label and the fewest circles, then the nearest.

    An offset of the label's centre from that of the circle; None where there is no room.
    """
    best, least = None, np.inf
    others = np.arange(len(centres)) != own
    for gap in GAPS:
        for side in SIDES:
            place = np.array(side) * (radii[own] + gap + half)
            low, high = centres[own] + place - half, centres[own] + place + half
            inside = (low >= frame[:2]).all() and (high <= frame[2:]).all()
            nearest = np.clip(centres, low, high)  # the point of the label nearest to each circle
            covered = np.hypot(*(centres - nearest).T) < radii
            cost = float(np.count_nonzero(covered & others))
            free = inside and not _meets(np.concatenate([low, high]), taken)
            if free and cost < least:
                best, least = place, cost
    return best
