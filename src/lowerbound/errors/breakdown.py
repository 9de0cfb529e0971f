"""Errors of numbers: a bound that falls or is not finite, no start, no mode, no mass found."""

from __future__ import annotations

from collections.abc import Sequence

from lowerbound.errors.roots import ArgumentError, LowerboundError, LowerboundWarning
from lowerbound.errors.wording import quoted


class DecreasingBoundError(LowerboundError):
    """A coordinate sweep lowered the ELBO beyond rounding."""

    def __init__(self, before: float, after: float, sweep: int, sites: Sequence[str] = ()) -> None:
        super().__init__(_decrease(before, after, sweep, sites))


class DecreasingBoundWarning(LowerboundWarning):
    """A coordinate sweep lowered the ELBO beyond rounding (at run time a warning)."""

    def __init__(self, before: float, after: float, sweep: int, sites: Sequence[str] = ()) -> None:
        super().__init__(_decrease(before, after, sweep, sites))


def _decrease(before: float, after: float, sweep: int, sites: Sequence[str]) -> str:
    cause = f", when the block of {quoted(sites)} was updated" if sites else ""
    return (
        f"The ELBO fell from {before!r} to {after!r} nats in sweep {sweep}{cause}.\n"
        "Expected a coordinate sweep never to lower it. This is a fault or a loss of precision: "
        "the fit is not reported as converged."
    )


class ZeroDensityError(LowerboundError):
    """A fit reaches where the density is zero, so that its bound is not finite.

    `share` of its draws have density zero; `sites` says in lines which sites are to blame.
    """

    def __init__(self, share: float, draws: int, sites: Sequence[str] = ()) -> None:
        super().__init__(
            f"The ELBO is not finite: the density is zero, or no number, at {share:.1%} of "
            f"{draws} draws of q.\n{_lines(sites)}"
            "Expected a density that is positive nearly everywhere that q reaches. Give the sites "
            "supports that leave out what is impossible (a truncated prior, bounds of a Uniform), "
            "write the program so that it is finite there, or use "
            "method=lb.Gaussian(init={site: value, ...}) to start well inside."
        )


class NoFiniteStartError(LowerboundError):
    """The log density, or `what` is named, is not finite at any point tried.

    `sites` says in lines which sites are to blame.
    """

    def __init__(self, tried: int, sites: Sequence[str], what: str = "log density") -> None:
        super().__init__(
            f"The {what} is not finite at any of {tried} starting points: the median of the "
            f"prior, zero, and points around them.\n{_lines(sites)}"
            "Expected a point where it is finite. Give one with lb.Gaussian(init={site: value, "
            "...}), or correct the data or the prior of that site."
        )


def _lines(sites: Sequence[str]) -> str:
    return "".join(f"  {site}\n" for site in sites)


class ImpossibleDataError(LowerboundError):
    """The data have density zero whatever the values of the latent `sites`, which are discrete.

    zero: the sites whose density was zero where they were looked at last, if that is known.
    """

    def __init__(self, sites: Sequence[str], zero: Sequence[str] = ()) -> None:
        last = f" At the likeliest of them, {quoted(zero)} has density zero." if zero else ""
        super().__init__(
            f"The density of the data is zero, or no number, at every value of {quoted(sites)}."
            f"{last}\n"
            "Expected values at which the data are possible. Correct the data, or the zeros and "
            "bounds in the densities of the program."
        )


class CutCountsError(LowerboundError):
    """A count without an upper end has mass at the last of the values that were summed over."""

    def __init__(self, site: str, count: int, mass: float) -> None:
        super().__init__(
            f"Site '{site}' was summed over 0, ..., {count - 1}, and the last of these values has "
            f"a probability of {mass:.1g}.\n"
            "Expected counts of the size of those in the data. Bound the site, or use "
            "method=lb.ScoreFunctions(), which takes as many values as it needs."
        )


class NoFiniteBoundError(LowerboundError):
    """The ELBO is finite at no start."""

    def __init__(self, tried: int) -> None:
        super().__init__(
            f"The ELBO is finite at none of {tried} starting points of the Gaussian.\n"
            "Expected a point where it is. Give one with lb.Over(..., lb.Gaussian(init={site: "
            "value, ...}))."
        )


class InfiniteBoundError(ArgumentError):
    """The ELBO of coordinate ascent is `found` after `sweep` sweeps of the best of its starts."""

    def __init__(self, found: str, starts: int, sweep: int) -> None:
        many = f", the best of {starts} starts" if starts > 1 else ""
        super().__init__(
            f"The ELBO is {found} in sweep {sweep}{many}.\n"
            "Expected a finite bound. Try more starts, lb.CAVI(restarts=20), start elsewhere with "
            "lb.CAVI(init={site: value, ...}), or rescale the data to unit variance."
        )


class ImproperFactorError(ArgumentError):
    """The optimal factor of some sites has no finite integral.

    `rounded`: as far as single precision can tell, in which sums of many rows lose what decides.
    """

    def __init__(self, sites: Sequence[str], rounded: bool = False) -> None:
        names = quoted(sites)
        text = (
            f"The optimal factor of {names} is improper: the data and the prior leave a direction "
            f"of it undetermined.\nExpected a proper posterior. Give {names} a proper prior."
        )
        single = (
            f"In single precision the optimal factor of {names} has no finite integral.\n"
            "Expected a density. Compute in double precision, with "
            f'lb.computing(precision="float64"); if that says so too, give {names} a proper prior.'
        )
        super().__init__(single if rounded else text)


class ImproperPosteriorError(LowerboundError):
    """The posterior has a flat direction; `shown` where its priors are flat along it too."""

    def __init__(self, entries: Sequence[str], shown: bool = True) -> None:
        names = quoted(entries)
        text = (
            f"The posterior is improper: its log density is flat, or rises for ever, along {names} "
            "on the unconstrained space.\n"
            f"Expected a posterior that integrates to one. Give {names} a proper prior, or drop "
            "what the data cannot tell apart."
        )
        unknown = (
            f"The Gaussian runs off along {names} on the unconstrained space: as far as it was "
            "followed, the log density is flat there, or rises.\n"
            "Expected a posterior that ends. Start near its mass with lb.Gaussian(init={site: "
            f"value, ...}}), give {names} a narrower prior, or drop what the data cannot tell "
            "apart."
        )
        super().__init__(text if shown else unknown)


class IllConditionedError(LowerboundError):
    """Equations of many effects that conjugate gradients do not solve.

    After `steps` steps the residual of `size` equations is `residual` of what it was.
    """

    def __init__(self, size: int, steps: int, residual: float) -> None:
        self.size, self.steps, self.residual = size, steps, residual
        super().__init__(
            f"{size:,} effects that meet each other, too many for a dense covariance, were not "
            f"solved for: after {steps:,} steps of conjugate gradients a residual of "
            f"{residual:.1g} is left.\n"
            "Expected effects that the data tell apart about equally well. Drop what is collinear, "
            "give effects narrower priors, or use a method without a joint covariance, e.g. "
            "method=lb.CAVI()."
        )


class NoModeError(LowerboundError):
    """The log density has no maximum."""

    def __init__(self, entries: Sequence[str]) -> None:
        super().__init__(
            f"The log density has no mode: it goes on rising along {quoted(entries)} on the "
            "unconstrained space, as that of a hierarchy does where its scale goes to zero.\n"
            "Expected a maximum for Laplace's approximation. Use lb.Gaussian(), which averages "
            "over the density instead."
        )


class LostPosteriorError(ArgumentError):
    """A search over scalars did not find where their posterior begins and ends."""


class PoorIntegralError(LowerboundError):
    """The points of an integral over hyperparameters do not carry it."""

    def __init__(self, sites: Sequence[str], found: str) -> None:
        super().__init__(
            f"The integral over {quoted(sites)} is not to be trusted: {found}.\n"
            "Expected points of which many count. Give these sites narrower priors, or take a "
            "Gaussian of all sites, lb.Gaussian()."
        )


class BoundReachedError(LowerboundError):
    """A coefficient with bounds, taken for a Gaussian, is close to one of them."""

    def __init__(self, sites: Sequence[str]) -> None:
        names = ", ".join(f'"{name}"' for name in sites)
        super().__init__(
            f"{quoted(sites)} {'is' if len(sites) == 1 else 'are'} taken for Gaussian, and the "
            "data leave some probability beyond the bounds of the prior.\nExpected data that keep "
            f"coefficients away from their bounds. Integrate them, lb.Integrated(sites=[{names}]), "
            'or use method="auto".'
        )
