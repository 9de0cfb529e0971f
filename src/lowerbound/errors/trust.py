"""Judging a fit: what stands in the way of it, and what it has found."""

from __future__ import annotations

from lowerbound.errors.roots import LowerboundError, LowerboundWarning


class UnjudgedError(LowerboundError):
    """A fit cannot be compared with the posterior at draws of its q."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The fit cannot be judged at draws of its q: {reason}.\n"
            "Expected a fit whose q has a density of all continuous sites, with its data."
        )


class TrustWarning(LowerboundWarning):
    """A fit that is known to be wrong, or not known to be right; `fit.verdict` says the same."""

    def __init__(self, verdict: str) -> None:
        super().__init__(f"{verdict}   (fit.verdict has the evidence)")
