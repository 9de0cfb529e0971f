"""Errors of the NumPyro program itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lowerbound.errors.roots import LowerboundError, record
from lowerbound.errors.wording import first_line, prior_or_fixed, quoted


class UnsupportedModelError(LowerboundError):
    """The program uses something that cannot be analysed; the text names it and the way out."""


@record
class SubsampledPlateError(UnsupportedModelError):
    """A plate of which the program takes some rows, in a program that does not run with all."""

    plate: str
    taken: int
    size: int
    where: str
    error: Exception

    def __str__(self) -> str:
        return (
            f"Plate '{self.plate}' takes {self.taken} of {self.size} rows at random   "
            f"({self.where}), and the program does not run with all of them: "
            f"{first_line(self.error)}.\n"
            "Expected arrays that follow the rows of the plate, since a fit takes all of them: "
            "give the program all data and no subsample_size. With method=lb.SVI(batch_size=...) "
            "the library makes the batches."
        )


@record
class ParameterSiteError(UnsupportedModelError):
    """The program has parameters (`numpyro.param`), which have no posterior but are maximised.

    `parameters` maps their names to their lines.
    """

    parameters: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return tuple(self.parameters)

    def __str__(self) -> str:
        sites = [
            f"Site '{name}' is a numpyro.param   ({where})."
            for name, where in self.parameters.items()
        ]
        return "\n".join(sites) + (
            "\nExpected latent variables with priors; parameters are maximised by variational EM, "
            f"with method=lb.CAVI() or lb.EM(). {prior_or_fixed(self.names)}"
        )


@record
class DiscreteSiteError(UnsupportedModelError):
    """A discrete site, or one that is discrete and infinite, where it cannot be treated."""

    site: str
    distribution: str
    where: str
    expected: str
    reason: str = ""

    def __str__(self) -> str:
        reason = f" and {self.reason}" if self.reason else ""
        return (
            f"Site '{self.site}' is discrete{reason}: {self.distribution}   ({self.where}).\n"
            f"Expected {self.expected}"
        )


@record
class NoMarginalError(UnsupportedModelError):
    """The marginal of some sites has no closed form, or one that is too large to hold."""

    found: str
    expected: str
    more: str = ""

    def __str__(self) -> str:
        draws = f"Use draws{',' if self.more else ':'} fit.sample(1000){self.more}."
        return f"{self.found}.\nExpected {self.expected}. {draws}"


@record
class NoLatentSiteError(LowerboundError):
    """The model has nothing to infer."""

    observed: Sequence[str]

    def __str__(self) -> str:
        return (
            f"The model has no latent site; its observed sites are {quoted(self.observed)}.\n"
            "Expected at least one numpyro.sample without obs."
        )


@record
class NoObservedSiteError(LowerboundError):
    """Data are to be predicted or scored, and the model conditions on none.

    `none` are arguments that are None.
    """

    latent: Sequence[str]
    none: Sequence[str]

    def __str__(self) -> str:
        verb = "is" if len(self.none) == 1 else "are"
        hint = f" {quoted(self.none)} {verb} None." if self.none else ""
        return (
            f"The model has no observed site; its latent sites are {quoted(self.latent)}.{hint}\n"
            "Expected at least one numpyro.sample with obs=...: without data there is no density "
            "of data. fit.sample() draws from the fit."
        )


@record
class DuplicateSiteError(LowerboundError):
    """Two sites have the same name; `first` and `second` are their lines."""

    site: str
    first: str
    second: str

    def __str__(self) -> str:
        return (
            f"Site name '{self.site}' is used twice: at {self.first} and at {self.second}.\n"
            "Expected unique names. Rename one; in a Python loop put the index into the name, "
            'f"..._{i}".'
        )


class ShapeError(LowerboundError):
    """Shapes inside the model do not fit together."""

    @classmethod
    def of_site(
        cls,
        site: str,
        where: str,
        expected: tuple[int, ...],
        found: tuple[int, ...],
        observed: bool = True,
    ) -> ShapeError:
        """The value of a site does not fit the shape of its distribution."""
        kind = "observes a value" if observed else "has a value"
        return cls(
            f"Site '{site}' {kind} of shape {found}, its distribution has shape {expected}   "
            f"({where}).\n"
            "Expected one to broadcast to the other. Check the plates and the orientation of the "
            "arguments (a column (n, 1) is not a vector (n,))."
        )

    @classmethod
    def of_line(
        cls, where: str, source: str, site: str | None, message: str, shapes: Sequence[str]
    ) -> ShapeError:
        """An operation inside the model met arrays that do not fit together."""
        inside = "" if site is None else f" in site '{site}'"
        known = f"\n  Shapes: {'; '.join(shapes)}." if shapes else ""
        return cls(
            f"Shapes do not fit together{inside}   ({where})\n"
            f"  {source}\n"
            f"  {message}{known}\n"
            "Check the plates and the shapes of the arguments."
        )
