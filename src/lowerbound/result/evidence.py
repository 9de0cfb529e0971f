"""What a verdict rests on: how far q is off by site, and what else was seen of a fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

MOST_SITES = 20  # that are printed
WAYS = {
    "weights": "importance weights",
    "proposals": "draws around the posterior",
    "chains": "short chains from q",
    "curvature": "the curvature of log p",
}


def k_threshold(draws: int) -> float:
    """The k-hat above which so many draws are too few: min(1 - 1 / log10(S), 0.7).

    Vehtari, Simpson, Gelman, Yao and Gabry (2024), equation 13.

    >>> k_threshold(100), k_threshold(1000), k_threshold(10_000)
    (0.5, 0.6666666666666667, 0.7)
    """
    return min(1.0 - 1.0 / math.log10(max(draws, 11)), 0.7)


@dataclass(frozen=True)
class Off:
    """How far q is off for one site, at its worst element: estimates, and their standard errors.

    shift: the mean of q less that of the posterior, in sds of the posterior. spread: the log of the
    ratio of the sd of q to that of the posterior; below 0, q is too narrow. k_hat, size: of the
    importance weights of q for the variance and for the mean of the element that they are worst
    for; size is a number of effective draws. middle: spread is that of the central interval, as the
    tail is too heavy for an sd to be known.
    """

    site: str
    shift: float
    spread: float
    shift_error: float = 0.0
    spread_error: float = 0.0
    k_hat: float = math.nan
    size: float = math.nan
    middle: bool = False

    @property
    def width(self) -> str:
        """What the spread is of, in words."""
        return "width of the middle" if self.middle else "sd"


@dataclass(frozen=True)
class Finding:
    """Something that was seen of a fit, in words. what: "restarts", "component", "boundary",
    "scale", "summit", "response", "prior", "predictive" or "rows"; value: its number, where it has
    one.
    """

    what: str
    text: str
    site: str = ""
    value: float = math.nan


@dataclass(frozen=True, repr=False)
class Evidence:
    """What was measured. by: "weights" of draws of q, "proposals" around it, "chains" that start
    at it, or "curvature".

    k_hat: that of the importance weights of q. efficiency: their effective size over their number.
    gap, gap_error: the importance-weighted bound less the ELBO, in nats. off: by site. response:
    the same by linear response, and drift: by short chains from q, whose way is the least that q
    can be off; `lb.check` has these two. findings: what else was seen. summits: of log p, where q
    is not: how many nats of mass below, and where on the unconstrained space.

    >>> one = Off("tau", 0.1, math.log(0.5), 0.02, 0.03, 0.4, 700.0)
    >>> print(Evidence("weights", 1000, 0.31, 0.8, 0.52, (one,), 0.01))
    By importance weights, from 1,000 draws of q: k-hat 0.31 (0.67 at most), effective size 80%.
    The importance-weighted bound is 0.52 (+- 0.01) nats above the ELBO.
    site  mean off, in sds  sd of q / true  k-hat  effective
    tau    +0.10 (+- 0.02)   0.50 (+- 3%)    0.40        700
    """

    by: str
    draws: int
    k_hat: float
    efficiency: float
    gap: float
    off: tuple[Off, ...] = ()
    gap_error: float = 0.0
    response: tuple[Off, ...] = ()
    drift: tuple[Off, ...] = ()
    findings: tuple[Finding, ...] = ()
    summits: tuple[tuple[float, np.ndarray], ...] = field(default=(), compare=False)

    @property
    def k_threshold(self) -> float:
        """The largest k-hat with which weights of so many draws tell."""
        return k_threshold(self.draws)

    @property
    def worst_mean(self) -> Off | None:
        """The site whose mean is farthest off."""
        return max(self.off, key=lambda one: abs(one.shift), default=None)

    @property
    def worst_sd(self) -> Off | None:
        """The site whose sd is farthest off."""
        return max(self.off, key=lambda one: abs(one.spread), default=None)

    def table(self) -> pd.DataFrame:
        """One row per site: how far q is off at its worst element, with standard errors.

        mean_off is in sds of the posterior, sd_ratio is q's over the posterior's; response_ratio is
        q's over that of linear response; drift_mean and drift_ratio are those of short chains.
        """
        import pandas as pd

        rows: dict[str, dict[str, float]] = {}
        for one in self.off:
            rows[one.site] = {
                "mean_off": one.shift,
                "mean_error": one.shift_error,
                "sd_ratio": math.exp(one.spread),
                "sd_error": one.spread_error,
                "k_hat": one.k_hat,
                "effective": one.size,
            }
        for one in self.response:
            rows.setdefault(one.site, {})["response_ratio"] = math.exp(one.spread)
        for one in self.drift:
            own = rows.setdefault(one.site, {})
            own |= {"drift_mean": one.shift, "drift_ratio": math.exp(one.spread)}
        return pd.DataFrame.from_dict(rows, orient="index")

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield (
            f"By {WAYS.get(self.by, self.by)}, from {self.draws:,} draws of q: k-hat "
            f"{self.k_hat:.2f} ({self.k_threshold:.2f} at most), effective size "
            f"{self.efficiency:.0%}."
        )
        if math.isfinite(self.gap):
            yield (
                f"The importance-weighted bound is {self.gap:.2f} (+- {self.gap_error:.2f}) nats "
                "above the ELBO."
            )
        yield from self._by_site()
        for finding in self.findings:
            yield finding.text

    def _by_site(self) -> Iterator[str]:
        head = ["site", "mean off, in sds", "sd of q / true", "k-hat", "effective"]
        response = {one.site: one for one in self.response}
        drift = {one.site: one for one in self.drift}
        head += ["/ linear response"] if response else []
        head += ["chains: mean, sd"] if drift else []
        rows = [head]
        for one in self.off[:MOST_SITES]:
            star = "*" if one.middle else ""
            row = [
                one.site,
                f"{one.shift:+.2f} (+- {one.shift_error:.2f})",
                f"{math.exp(one.spread):.2f} (+- {one.spread_error:.0%}){star}",
                f"{one.k_hat:.2f}",
                f"{one.size:,.0f}",
            ]
            if response:
                found = response.get(one.site)
                row.append("" if found is None else f"{math.exp(found.spread):.2f}")
            if drift:
                moved = drift.get(one.site)
                row.append("" if moved is None else f"{moved.shift:+.2f}, {_times(moved.spread)}")
            rows.append(row)
        if len(rows) > 1:
            widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
            for row in rows:
                cells = [row[0].ljust(widths[0])]
                cells += [
                    cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)
                ]
                yield "  ".join(cells)
        if any(one.middle for one in self.off[:MOST_SITES]):
            yield "* of the middle 80%, for the tail is too heavy for an sd."
        left = len(self.off) - MOST_SITES
        if left > 0:
            yield f"... and {left:,} more sites: see table()."


def _times(log_ratio: float) -> str:
    return f"x {math.exp(log_ratio):.2f}"
