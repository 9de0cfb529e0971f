"""Errors of numbers: a bound that falls or is not finite, no start, no mode, no mass found."""

from __future__ import annotations

from collections.abc import Sequence

from lowerbound.errors.roots import ArgumentError, LowerboundError, LowerboundWarning, record
from lowerbound.errors.wording import quoted


@record
class _Decrease:
    """The ELBO before and after a sweep, and the sites of the block that was updated."""

    before: float
    after: float
    sweep: int
    sites: Sequence[str] = ()

    def __str__(self) -> str:
        cause = f", when the block of {quoted(self.sites)} was updated" if self.sites else ""
        return (
            f"The ELBO fell from {self.before!r} to {self.after!r} nats in sweep {self.sweep}"
            f"{cause}.\n"
            "Expected a coordinate sweep never to lower it. This is a fault or a loss of "
            "precision: the fit is not reported as converged."
        )


class DecreasingBoundError(_Decrease, LowerboundError):
    """A coordinate sweep lowered the ELBO beyond rounding."""


class DecreasingBoundWarning(_Decrease, LowerboundWarning):
    """A coordinate sweep lowered the ELBO beyond rounding (at run time a warning)."""


@record
class ZeroDensityError(LowerboundError):
    """A fit reaches where the density is zero, so that its bound is not finite.

    `share` of its draws have density zero; `sites` says in lines which sites are to blame.
    """

    share: float
    draws: int
    sites: Sequence[str] = ()

    def __str__(self) -> str:
        found = (
            f"The ELBO is not finite: the density is zero, or no number, at {self.share:.1%} of "
            f"{self.draws} draws of q."
        )
        return _with_lines(
            found,
            self.sites,
            "Expected a density that is positive nearly everywhere that q reaches. Give the sites "
            "supports that leave out what is impossible (a truncated prior, bounds of a Uniform), "
            "write the program so that it is finite there, or use "
            "method=lb.Gaussian(init={site: value, ...}) to start well inside.",
        )


@record
class NoFiniteStartError(LowerboundError):
    """The log density is not finite at any point tried."""

    tried: int
    sites: Sequence[str]
    what: str = "log density"

    def __str__(self) -> str:
        found = (
            f"The {self.what} is not finite at any of {self.tried} starting points: the median of "
            "the prior, zero, and points around them."
        )
        return _with_lines(
            found,
            self.sites,
            "Expected a point where it is finite. Give one with lb.Gaussian(init={site: value, "
            "...}), or correct the data or the prior of that site.",
        )


def _with_lines(found: str, lines: Sequence[str], expected: str) -> str:
    return "\n".join([found, *(f"  {line}" for line in lines), expected])


@record
class NoFiniteBoundError(LowerboundError):
    """The ELBO is finite at no start."""

    tried: int

    def __str__(self) -> str:
        return (
            f"The ELBO is finite at none of {self.tried} starting points of the Gaussian.\n"
            "Expected a point where it is. Give one with lb.Over(..., lb.Gaussian(init={site: "
            "value, ...}))."
        )


@record
class ImproperFactorError(ArgumentError):
    """The optimal factor of some sites has no finite integral."""

    sites: Sequence[str]

    def __str__(self) -> str:
        sites = quoted(self.sites)
        return (
            f"The optimal factor of {sites} is improper: the data and the prior leave a direction "
            f"of it undetermined.\nExpected a proper posterior. Give {sites} a proper prior."
        )


@record
class ImproperPosteriorError(LowerboundError):
    """The posterior has a flat direction; `shown` where its priors are flat along it too."""

    entries: Sequence[str]
    shown: bool = True

    def __str__(self) -> str:
        names = quoted(self.entries)
        if self.shown:
            return (
                "The posterior is improper: its log density is flat, or rises for ever, along "
                f"{names} on the unconstrained space.\n"
                f"Expected a posterior that integrates to one. Give {names} a proper prior, or "
                "drop what the data cannot tell apart."
            )
        return (
            f"The Gaussian runs off along {names} on the unconstrained space: as far as it was "
            "followed, the log density is flat there, or rises.\n"
            "Expected a posterior that ends. Start near its mass with lb.Gaussian(init={site: "
            f"value, ...}}), give {names} a narrower prior, or drop what the data cannot tell "
            "apart."
        )


@record
class NoModeError(LowerboundError):
    """The log density has no maximum."""

    entries: Sequence[str]

    def __str__(self) -> str:
        return (
            f"The log density has no mode: it goes on rising along {quoted(self.entries)} on the "
            "unconstrained space, as that of a hierarchy does where its scale goes to zero.\n"
            "Expected a maximum for Laplace's approximation. Use lb.Gaussian(), which averages "
            "over the density instead."
        )


class LostPosteriorError(ArgumentError):
    """A search over scalars did not find where their posterior begins and ends."""
