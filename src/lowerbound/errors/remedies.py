"""Correcting a fit: what stands in the way of it, and how far the correction can be trusted."""

from __future__ import annotations

from lowerbound.errors.roots import LowerboundError, LowerboundWarning


class UncorrectableError(LowerboundError):
    """A fit cannot be corrected in the way that was asked for."""

    def __init__(self, how: str, reason: str, remedy: str) -> None:
        super().__init__(f"lb.correct(fit, {how!r}) cannot be had: {reason}.\n{remedy}")


class NotAtOptimumError(LowerboundError):
    """Linear response is asked for where the ELBO still has a slope."""

    def __init__(self, gradient: float, entry: str, distance: float) -> None:
        super().__init__(
            f"The fit is not at an optimum, gradient norm {gradient:.2g}: a Newton step would move "
            f"'{entry}' by {distance:.2g} of its standard deviation.\n"
            "Expected a maximum of the ELBO, whose curvature linear response reads. Fit with more "
            "sweeps or steps, or a smaller tolerance; or use lb.correct(fit, 'nuts')."
        )


class FlatDirectionError(LowerboundError):
    """The ELBO does not fall along a direction, so that no covariance can be read off it."""

    def __init__(self, entries: str, curvature: float) -> None:
        bends = "is flat" if abs(curvature) < 1e-6 else "rises"
        super().__init__(
            f"The ELBO {bends} along {entries}: its curvature there is {curvature:.2g}, where q "
            "alone would have 1.\n"
            "Expected a maximum. Give what is not identified a prior, or fit again from other "
            "starts (restarts=10); or use lb.correct(fit, 'nuts')."
        )


class FewWeightsError(LowerboundError):
    """Too few importance weights are positive and finite."""

    def __init__(self, finite: int, draws: int, fewest: int) -> None:
        super().__init__(
            f"Of {draws:,} draws of q only {finite:,} have a finite density under the model.\n"
            f"Expected at least {fewest:,}: q lies where the posterior does not. Use "
            "lb.correct(fit, 'nuts'), or another method of fitting."
        )


class NoDensityError(LowerboundError):
    """A density is asked for where there are draws alone."""

    def __init__(self, what: str = "The corrected fit") -> None:
        super().__init__(
            f"{what} is made of draws, which have no density.\n"
            "Expected a question that draws can answer: moments, quantiles, sample(), icdf(). The "
            'fit that was corrected has a density, as lb.fit(..., until="fitted") gives it.'
        )


class CorrectionWarning(LowerboundWarning):
    """A correction that should not be trusted as it is."""

    def __init__(self, how: str, reason: str, remedy: str) -> None:
        super().__init__(f"lb.correct(fit, {how!r}) is unreliable: {reason}.\n{remedy}")
