"""The lines above a picture: how far its fit is to be trusted, and what the picture leaves out."""

from __future__ import annotations

import textwrap
from typing import Any

from lowerbound.plot.axes import FAINT, INK
from lowerbound.result.fitted import Fit
from lowerbound.result.verdicts import Verdict

# By trust, dark enough to be read on white.
TRUST_INK = {"all": "#00664B", "means": "#855800", "nothing": "#A33F00"}
VERDICT = "verdict: "  # what the text is known by
PER_INCH = 15.5  # letters of a line of 8 points


def trust_caption(figure: Any, fit: Fit | Verdict, note: str = "") -> None:
    """Write the verdict above a figure, and below it what else there is to say."""
    verdict = fit.verdict if isinstance(fit, Fit) else fit
    width = max(int(PER_INCH * figure.get_size_inches()[0]), 30)
    reason, _, cure = str(verdict).partition(" Do better by ")
    lines = textwrap.wrap(reason, width)
    if cure and len(lines[-1]) + len(cure) + 15 <= width:
        lines[-1] += f" Do better by {cure}"
    elif cure:
        lines.append(f"Do better by {cure}")
    lines += textwrap.wrap(note, width) if note else []
    figure.suptitle(
        "\n".join(lines),
        x=0.01,
        ha="left",
        fontsize=8,
        color=TRUST_INK[verdict.trust],
        linespacing=1.35,
        gid=f"{VERDICT}{note}",
    )


def without_verdict(figure: Any) -> None:
    """Leave what else the lines above a figure say: the page around it has the verdict."""
    for text in figure.texts:
        if (text.get_gid() or "").startswith(VERDICT):
            text.set_text(text.get_gid().removeprefix(VERDICT))
            text.set_color(FAINT)


def wrapped(text: str, ax: Any) -> str:
    """A text in lines that fit above a panel."""
    figure = ax.get_figure(root=True)
    box = ax.get_subplotspec()
    columns = box.get_gridspec().ncols if box is not None else 1
    width = PER_INCH * figure.get_size_inches()[0] / columns * (0.8 if columns > 1 else 0.9)
    return textwrap.fill(text, max(int(width), 24))


def faint_title(ax: Any, text: str) -> None:
    """What a panel shows, in small letters."""
    ax.set_title(wrapped(text, ax), fontsize=8, color=FAINT, loc="left")


def legend_below(figure: Any, marks: dict[str, Any]) -> None:
    """What the colours of all panels mean, once, under them."""
    figure.legend(
        list(marks.values()),
        list(marks),
        loc="outside lower left",
        ncols=len(marks),
        frameon=False,
        fontsize=8,
        labelcolor=INK,
    )
