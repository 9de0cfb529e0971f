"""How far a fit can be trusted: the verdict, and the evidence that it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LEVELS = ("all", "means", "nothing")
ADVICE = {
    "all": "Trust means and intervals",
    "means": "Trust means, not intervals",
    "nothing": "Do not trust the fit",
}


@dataclass(frozen=True, eq=False)
class Drawn:
    """Draws of q with both densities: S rows of d numbers on the unconstrained space.

    vectors: (S, d). log_p: (S,), with the volume of the map in it; gradients: (S, d), of log p.
    log_q: (S,), of the same numbers.
    """

    vectors: np.ndarray
    log_p: np.ndarray
    gradients: np.ndarray
    log_q: np.ndarray

    @property
    def log_ratios(self) -> np.ndarray:
        """Log p(x, z) - log q(z), whose average is the ELBO."""
        ratios: np.ndarray = self.log_p - self.log_q
        return ratios


@dataclass(frozen=True)
class Off:
    """How far q is off for one site, at its worst element: estimates, and their standard errors.

    shift: the mean of q less that of the posterior, in sds of the posterior. spread: the log of the
    ratio of the sd of q to that of the posterior; below 0, q is too narrow.
    """

    site: str
    shift: float
    spread: float
    shift_error: float = 0.0
    spread_error: float = 0.0


@dataclass(frozen=True)
class Evidence:
    """What was measured. by: "weights" of draws of q, "proposals" around it, "chains" that start
    at it, or "curvature".

    k_hat: that of the importance weights of q. efficiency: their effective size over their number.
    gap: the importance-weighted bound less the ELBO, in nats. off: by site.
    """

    by: str
    draws: int
    k_hat: float
    efficiency: float
    gap: float
    off: tuple[Off, ...] = ()

    @property
    def worst_mean(self) -> Off | None:
        """The site whose mean is farthest off."""
        return max(self.off, key=lambda one: abs(one.shift), default=None)

    @property
    def worst_sd(self) -> Off | None:
        """The site whose sd is farthest off."""
        return max(self.off, key=lambda one: abs(one.spread), default=None)


@dataclass(frozen=True)
class Verdict:
    """How far to trust a fit: `trust` is "all", "means" or "nothing".

    reason: why, in words. cure: a line of code that does better, where one is known. evidence:
    what was measured, where something was.

    >>> print(Verdict("means", "q is narrow in tau", "lb.Integrated()"))
    Trust means, not intervals: q is narrow in tau. Do better by lb.Integrated().
    """

    trust: str
    reason: str
    cure: str = ""
    evidence: Evidence | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        assert self.trust in LEVELS, self.trust

    def __str__(self) -> str:
        cure = f" Do better by {self.cure}." if self.cure else ""
        return f"{ADVICE[self.trust]}: {self.reason}.{cure}"

    def record(self) -> dict[str, Any]:
        """As plain values, for files."""
        return {"trust": self.trust, "reason": self.reason, "cure": self.cure}


UNKNOWN = Verdict("means", "how near q is to the posterior was not measured", "lb.check(fit)")


def times(log_ratio: float) -> str:
    """A log ratio of sds in words.

    >>> times(math.log(0.5)), times(math.log(1.25))
    ('0.50 times', '1.25 times')
    """
    return f"{math.exp(log_ratio):.2f} times"
