"""Errors of deriving log p(x, z) as a function of statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

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


class NotConjugateError(LowerboundError):
    """Exact coordinate updates were asked for where log p is not affine in the statistics."""

    remedy: ClassVar[str] = (
        'Use method="auto": quadrature, a few scalars on a grid or a Gaussian, where no exact '
        "update exists. Or augment the site: lb.Augmented({site: ...}, lb.CAVI())."
    )

    def __init__(
        self, residuals: Sequence[Residual], method: str = "CAVI", remedy: str | None = None
    ) -> None:
        self.residuals = tuple(residuals)
        lines = [f"{method} needs log p to be affine in the statistics of every latent site."]
        for residual in self.residuals:
            lines += _residual_lines(residual)
        super().__init__("\n".join([*lines, remedy or self.remedy]))

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


def _residual_lines(residual: Residual) -> list[str]:
    latents = residual.latents
    sites = (
        f"Site {quoted(latents)} enters" if len(latents) == 1 else f"Sites {quoted(latents)} enter"
    )
    lines = [f"  {sites} site '{residual.site}' through {residual.operation}   ({residual.where})"]
    left_over = residual.left_over or residual.operation
    if residual.statistics:
        lines.append(
            f"  statistics of {residual.family}: {residual.statistics};  left over: {left_over}"
        )
    elif residual.reason:
        lines.append(f"  {residual.reason}")
    return lines


class BlockError(LowerboundError):
    """The statistics of some sites match no factor q_j of the variational density."""

    def __init__(
        self, sites: Sequence[str], reason: str, where: str = "", remedy: str = ""
    ) -> None:
        place = f"   ({where})" if where else ""
        advice = remedy or "Rewrite the model so that each site has one conjugate role."
        super().__init__(f"No factor q for {quoted(sites)}: {reason}{place}.\n{advice}")


class CertificateError(LowerboundError):
    """The derived form of log p differs from NumPyro's own log density."""

    def __init__(self, derived: float, expected: float, site: str | None = None) -> None:
        self.derived, self.expected, self.site = derived, expected, site
        part = "log p(x, z)" if site is None else f"the log density of site '{site}'"
        super().__init__(
            f"The derived form of {part} is {derived!r} at a draw from the prior; "
            f"NumPyro's log density is {expected!r}.\n"
            "Expected equality up to rounding. This is a fault of the derivation, not of the "
            "model: please report it with the model."
        )


class UncertifiedError(LowerboundError):
    """No point was found at which the derived form of log p could be checked."""

    def __init__(self, tried: int, sites: Sequence[str] = ()) -> None:
        self.tried, self.sites = tried, tuple(sites)
        where = f" Where it was tried last, {quoted(sites)} has density zero." if sites else ""
        super().__init__(
            f"The derived form of log p(x, z) could not be checked: the log density is not finite "
            f"at any of {tried} points, with the likeliest value of every discrete site at each."
            f"{where}\n"
            "Expected points of positive density, to compare it with NumPyro's own there. Check "
            "the data against the model: an impossible value, or a scale that underflows. "
            "lb.fit(..., method=lb.Gaussian(init={site: value, ...})) needs no derivation."
        )
