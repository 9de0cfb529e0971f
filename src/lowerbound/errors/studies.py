"""Studies of several fits, comparisons and calibrations: what makes their numbers meaningless."""

from __future__ import annotations

from lowerbound.errors.roots import ArgumentError


class DifferentDataError(ArgumentError):
    """Fits of different data were to be compared."""

    def __init__(self, first: str, second: str, found: str) -> None:
        super().__init__(
            f"The fits '{first}' and '{second}' are of different data: {found}.\n"
            "Expected one data set: bounds and predictive densities of different observations, or "
            "of the same on another scale, cannot be compared. Fit both models to the same arrays."
        )


class NotRepeatableError(ArgumentError):
    """A fit would have to be made again on some of its rows, and cannot be."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The fit '{name}' cannot be made again on some of its rows: {reason}.\n"
            'Expected a fit by lb.fit, of this process, with its data. Use by="loo" or by="elbo".'
        )


class NoRowsError(ArgumentError):
    """The densities of the rows of a fit cannot be had."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The fit '{name}' has no densities of its rows: {reason}.\n"
            'Expected a fit with its data and the factors of all rows. Use by="elbo", or new rows: '
            "test=..."
        )


class NotGenerativeError(ArgumentError):
    """Data cannot be drawn from a program, so that nothing can be calibrated on them."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(
            f"The model cannot simulate data: {reason}.\n"
            f"Expected proper priors and observed sites that can be drawn given them. {remedy}."
        )


class FailedSimulationsError(ArgumentError):
    """Most of the simulated data sets cannot be fitted."""

    def __init__(self, failed: int, simulations: int, first: str) -> None:
        super().__init__(
            f"{failed} of {simulations} simulated data sets could not be fitted; the first: "
            f"{first}.\nExpected priors under which most data sets are possible ones. Draw some "
            "by numpyro.infer.Predictive and look at them; narrower priors often cure it."
        )
