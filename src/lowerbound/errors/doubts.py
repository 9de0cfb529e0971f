"""Doubts about a fit: it did not converge or go as planned, is off, or cannot be judged."""

from __future__ import annotations

from collections.abc import Sequence

from lowerbound.errors.roots import LowerboundError, LowerboundWarning
from lowerbound.errors.wording import quoted


class UnjudgedError(LowerboundError):
    """A fit cannot be compared with the posterior at draws of its q; `cure` is what can be."""

    def __init__(self, reason: str, cure: str = "") -> None:
        super().__init__(
            f"The fit cannot be judged at draws of its q: {reason}.\n"
            "Expected a fit whose q has a density of all continuous sites, with its data."
        )


class TrustWarning(LowerboundWarning):
    """A fit that is known to be wrong, or not known to be right; `fit.verdict` says the same."""

    def __init__(self, verdict: str) -> None:
        super().__init__(f"{verdict}   (fit.verdict has the evidence)")


class ReadBeyondWarning(LowerboundWarning):
    """A step of a loop reads data after the last entry, where JAX takes the last one again."""

    def __init__(self, length: int, found: int) -> None:
        super().__init__(
            f"A step reads entry {found} of an array of data that has {length}: JAX takes the "
            f"{'last' if found > 0 else 'first'} one instead.\nExpected reads from 0 to "
            f"{length - 1}. Let the loop end before, or pass what a step reads as its input."
        )


class NotIdentifiedWarning(LowerboundWarning):
    """Scales that the data cannot tell apart, so that their priors alone do."""

    def __init__(self, scales: Sequence[str], site: str) -> None:
        super().__init__(
            f"The data know one number of {quoted(scales)}: every element of '{site}' has one row, "
            "so that its variance and that of the noise are seen as a sum.\n"
            "Their priors alone tell them apart. Drop the effect or fix a scale, unless these "
            "priors are meant."
        )


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
