"""Errors of deriving log p(x, z) as a function of statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowerbound.errors.roots import LowerboundError
from lowerbound.errors.wording import quoted


@dataclass(frozen=True)
class Residual:
    """A term of log p that is not affine in the statistics of a latent site, and why.

    `site` is the site whose density holds the term, `latents` the latent sites it touches, the one
    that decides first; `operation` the printed operation, `where` its line in the model.
    """

    site: str
    latents: tuple[str, ...]
    operation: str
    reason: str
    where: str
    family: str = ""
    statistics: str = ""
    left_over: str = ""

    def lines(self) -> list[str]:
        """The residual in words."""
        verb = "Site {} enters" if len(self.latents) == 1 else "Sites {} enter"
        entering = verb.format(quoted(self.latents))
        lines = [f"  {entering} site '{self.site}' through {self.operation}   ({self.where})"]
        if self.statistics:
            left_over = self.left_over or self.operation
            lines.append(
                f"  statistics of {self.family}: {self.statistics};  left over: {left_over}"
            )
        elif self.reason:
            lines.append(f"  {self.reason}")
        return lines


class NotConjugateError(LowerboundError):
    """Exact coordinate updates were asked for where log p is not affine in the statistics."""

    remedy: str = (
        'Use method="auto": quadrature, a few scalars on a grid or a Gaussian, where no exact '
        "update exists. Or augment the site: lb.Augmented({site: ...}, lb.CAVI())."
    )

    def __init__(
        self, residuals: Sequence[Residual], method: str = "CAVI", remedy: str | None = None
    ) -> None:
        self.residuals, self.remedy = tuple(residuals), remedy or type(self).remedy
        first = f"{method} needs log p to be affine in the statistics of every latent site."
        residual_lines = [line for residual in self.residuals for line in residual.lines()]
        super().__init__("\n".join([first, *residual_lines, self.remedy]))

    def of_batches(self, method: str, streamed: bool) -> NotConjugateError:
        """The same of a fit that reads its rows in batches, of a stream where no other can."""
        augment = f"augment the site: lb.Augmented({{...}}, lb.{method}(...))."
        remedy = (
            "A stream is read in batches, and batches add up by such statistics alone. Pass all "
            f'rows as arrays, for which method="auto" has a Gaussian; or {augment}'
            if streamed
            else 'Use method="auto", which takes all rows at once: quadrature, a few scalars on a '
            f"grid or a Gaussian, where no exact update exists. Or {augment}"
        )
        return NotConjugateError(self.residuals, method, remedy)


class BlockError(LowerboundError):
    """The statistics of some sites match no factor q_j of the variational density."""

    @classmethod
    def together(cls, sites: Sequence[str], reason: str) -> BlockError:
        """Sites that were to share a factor."""
        return cls(sites, reason, remedy="Leave them in separate blocks.")

    def __init__(
        self,
        sites: Sequence[str],
        reason: str,
        where: str = "",
        remedy: str = "Rewrite the model so that each site has one conjugate role.",
    ) -> None:
        place = f"   ({where})" if where else ""
        super().__init__(f"No factor q for {quoted(sites)}: {reason}{place}.\n{remedy}")


class CertificateError(LowerboundError):
    """The derived form of log p differs from NumPyro's own log density."""

    def __init__(self, derived: float, expected: float, site: str | None = None) -> None:
        part = "log p(x, z)" if site is None else f"the log density of site '{site}'"
        super().__init__(
            f"The derived form of {part} is {derived!r} at a draw from the prior; "
            f"NumPyro's log density is {expected!r}.\n"
            "Expected equality up to rounding. This is a fault of the derivation, not of the "
            "model: please report it with the model."
        )


class UncertifiedError(LowerboundError):
    """No point was found at which the derived form of log p could be checked."""

    def __init__(self, tried: int, sites: Sequence[str] = (), rounded: int = 0) -> None:
        self.sites = tuple(sites)
        if rounded:
            super().__init__(
                f"The derived form of log p(x, z) could not be checked: at {rounded} of {tried} "
                "points the log density of the program itself is lost in rounding: it changes "
                "with the last digits of what it computes.\n"
                "Expected points where it can be computed, to compare it with NumPyro's own there. "
                "Look for a difference of nearly equal numbers. lb.fit(..., method=lb.Gaussian()) "
                "needs no derivation."
            )
            return
        last = f" Where it was tried last, {quoted(sites)} has density zero."
        super().__init__(
            f"The derived form of log p(x, z) could not be checked: the log density is not finite "
            f"at any of {tried} points, with the likeliest value of every discrete site at "
            f"each.{last if sites else ''}\n"
            "Expected points of positive density, to compare it with NumPyro's own there. Check "
            "the data against the model: an impossible value, or a scale that underflows. "
            "lb.fit(..., method=lb.Gaussian(init={site: value, ...})) needs no derivation."
        )
