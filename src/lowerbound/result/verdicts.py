"""How far a fit can be trusted: the verdict, and the evidence that it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lowerbound.result.evidence import Evidence

LEVELS = ("all", "means", "nothing")
ADVICE = {
    "all": "Trust means and intervals",
    "means": "Trust means, not intervals",
    "nothing": "Do not trust the fit",
}
NOT_COMPARED = "How far to trust the fit is not known"


@dataclass(frozen=True, eq=False)
class Drawn:
    """Draws of q with both densities: S rows of d numbers on the unconstrained space.

    vectors: (S, d). log_p: (S,), with the volume of the map in it; gradients: (S, d), of log p.
    log_q: (S,), of the same numbers. spare: (R, d), more draws of q, without densities.
    """

    vectors: np.ndarray
    log_p: np.ndarray
    gradients: np.ndarray
    log_q: np.ndarray
    spare: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def log_ratios(self) -> np.ndarray:
        """Log p(x, z) - log q(z), whose average is the ELBO."""
        ratios: np.ndarray = self.log_p - self.log_q
        return ratios


@dataclass(frozen=True)
class Verdict:
    """How far to trust a fit: `trust` is "all", "means" or "nothing".

    reason: why, in words. cure: a line of code that does better, where one is known; a fit that is
    trusted has one where its means or sds are off by more than a tenth. evidence:
    what was measured, where something was. compared: whether q was compared with the posterior, or
    is it by construction; where it was not, "means" is what a converged fit mostly has right.

    >>> print(Verdict("means", "q is narrow in tau", "lb.Integrated()"))
    Trust means, not intervals: q is narrow in tau. Do better by lb.Integrated().
    """

    trust: str
    reason: str
    cure: str = ""
    evidence: Evidence | None = field(default=None, compare=False)
    compared: bool = True

    def __post_init__(self) -> None:
        assert self.trust in LEVELS, self.trust

    def __str__(self) -> str:
        cure = f" Do better by {self.cure}." if self.cure else ""
        return f"{self.advice}: {self.reason}.{cure}"

    @property
    def advice(self) -> str:
        """What to trust, in a few words."""
        known = self.compared or self.trust != "means"
        return ADVICE[self.trust] if known else NOT_COMPARED

    def record(self) -> dict[str, Any]:
        """As plain values, for files."""
        return {
            "trust": self.trust,
            "reason": self.reason,
            "cure": self.cure,
            "compared": self.compared,
        }


UNKNOWN = Verdict("means", "q was not compared with the posterior", "lb.check(fit)", compared=False)


def times(log_ratio: float) -> str:
    """A log ratio of sds in words.

    >>> times(math.log(0.5)), times(math.log(1.25))
    ('0.50 times', '1.25 times')
    """
    return f"{math.exp(log_ratio):.2f} times"
