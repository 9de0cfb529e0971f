"""Warnings of fits that are not what was planned."""

from __future__ import annotations

from lowerbound.errors.roots import LowerboundWarning


class ConvergenceWarning(LowerboundWarning):
    """A fit stopped before it converged."""

    def __init__(self, reason: str, remedy: str = "Raise the limit, or loosen tolerance.") -> None:
        super().__init__(f"The fit stopped before it converged: {reason}.\n{remedy}")


class LadderWarning(LowerboundWarning):
    """A rung of the ladder did not hold when it was tried, and the next one was taken."""

    def __init__(self, tried: str, reason: str, taken: str) -> None:
        super().__init__(
            f"The rung '{tried}', which lb.explain names, was given up: {reason} The fit "
            f"is that of the rung '{taken}' instead; fit.plan says what it did."
        )
