"""What is known of one model of one program, and the summary of many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.foretold import FACTOR, is_near
from benchmarks.posteriordb import WITHIN

MIXED = 1.05  # the R-hat up to which NUTS counts as a reference
LEAST = 200  # megabytes, below which the noise of a peak is as large as what is measured
OUTCOMES = ("result", "refusal", "exception", "time-out", "hang", "crash", "no memory", "not run")


@dataclass(frozen=True)
class Row:
    """One model with its data: what `lb.fit` made of it, and how far that is from NUTS."""

    program: str
    ordinal: int
    model: str = ""
    through: str = ""  # the call of NumPyro that was replaced
    outcome: str = "not run"
    reason: str = ""
    rung: str = ""
    trust: str = ""
    converged: bool = False
    elbo: float = math.nan
    seconds: float = math.nan
    cpu: float = math.nan
    expected: float = math.nan  # the seconds of the processor, and megabytes, of the plan
    expected_mb: float = math.nan
    megabytes: float = math.nan  # the peak above what the process held before
    explained: float = math.nan  # seconds of `lb.explain`, after the fit
    nuts: float = math.nan
    rhat: float = math.nan
    mean_max: float = math.nan
    mean_rms: float = math.nan
    sd_rms: float = math.nan
    worst: str = ""
    unjudged: str = ""  # why there is no score
    warned: tuple[str, ...] = ()
    where: str = ""  # the end of the traceback, or the stack at the limit
    plan: str = ""

    @property
    def score(self) -> float:
        """The larger of the RMS error of the means and of the log ratios of sds."""
        return float(np.maximum(self.mean_rms, self.sd_rms))

    @property
    def judged(self) -> bool:
        """Whether there is a reference whose chains agree."""
        return self.rhat <= MIXED and math.isfinite(self.score)

    def __str__(self) -> str:
        text = f"{f'{self.program}:{self.model}'[:58]:58s} {self.outcome:9s} {self.seconds:7.1f}"
        text += f" {self.nuts:7.1f} {self.score:7.3f} {self.rhat:5.2f} {self.rung[:34]:34s}"
        return f"{text} {self.reason or self.unjudged or '; '.join(self.warned)}"[:230]


NUMBERS = f"{'s':>7s} {'NUTS s':>7s} {'score':>7s} {'R-hat':>5s}"
HEADING = f"{'program:model':58s} {'outcome':9s} {NUMBERS} rung"


def summary(rows: Sequence[Row]) -> str:
    """Counts of outcomes, medians, and what is to be looked at."""
    counts = {o: sum(row.outcome == o for row in rows) for o in OUTCOMES}
    ended = [row for row in rows if row.outcome == "result"]
    lines = [f"{len(rows)} rows: " + ", ".join(f"{n} {o}" for o, n in counts.items() if n)]
    if ended:
        lines.append(f"seconds of a cold fit: median {np.median([r.seconds for r in ended]):.2f}")
        lines[-1] += f", most {max(r.seconds for r in ended):.1f}"
    ratios = [row.seconds / row.nuts for row in ended if math.isfinite(row.nuts)]
    if ratios:
        lines.append(f"seconds / NUTS's in the same process: median {np.median(ratios):.3f}")
    known = [row for row in ended if math.isfinite(row.expected)]
    if known:
        lines.append(f"within a factor of {FACTOR:g} of what was expected, of {len(known)} rows: ")
        lines[-1] += f"{sum(is_near(r.cpu, r.expected) for r in known)} by processor seconds, "
        memory = [is_near(max(r.megabytes, LEAST), max(r.expected_mb, LEAST)) for r in known]
        lines[-1] += f"{sum(memory)} by megabytes (those below {LEAST} count as {LEAST})"
    judged = [row for row in ended if row.judged]
    if judged:
        near = sum(row.score <= WITHIN for row in judged)
        lines.append(f"score <= {WITHIN:g}: {near} of {len(judged)} rows that NUTS can judge")
    for row in rows:
        if row.outcome != "result" or (row.judged and row.score > WITHIN):
            lines.append(f"  {row}")
    return "\n".join(lines)
