"""Warnings of fits that are not what was planned."""

from __future__ import annotations

from lowerbound.errors.roots import LowerboundWarning, record


@record
class ConvergenceWarning(LowerboundWarning):
    """A fit stopped before it converged."""

    reason: str
    remedy: str = "Raise the limit, or loosen tolerance."

    def __str__(self) -> str:
        return f"The fit stopped before it converged: {self.reason}.\n{self.remedy}"


@record
class LadderWarning(LowerboundWarning):
    """A rung of the ladder did not hold when it was tried, and the next one was taken."""

    tried: str
    reason: str
    taken: str

    def __str__(self) -> str:
        return (
            f"The rung '{self.tried}', which lb.explain names, was given up: {self.reason} The fit "
            f"is that of the rung '{self.taken}' instead; fit.plan says what it did."
        )
