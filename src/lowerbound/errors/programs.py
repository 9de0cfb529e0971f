"""Errors of the NumPyro program itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lowerbound.errors.roots import LowerboundError
from lowerbound.errors.wording import quoted


class UnsupportedModelError(LowerboundError):
    """The program uses something that cannot be analysed; the text names it and the way out."""


class SubsampledPlateError(UnsupportedModelError):
    """A plate of which the program takes some rows, in a program that does not run with all."""

    def __init__(self, plate: str, taken: int, size: int, where: str, error: Exception) -> None:
        found = str(error).strip().splitlines()[0].rstrip(".")
        super().__init__(
            f"Plate '{plate}' takes {taken} of {size} rows at random   ({where}), and the program "
            f"does not run with all of them: {found}.\n"
            "Expected arrays that follow the rows of the plate, since a fit takes all of them: "
            "give the program all data and no subsample_size. With method=lb.SVI(batch_size=...) "
            "the library makes the batches."
        )


class ParameterSiteError(UnsupportedModelError):
    """The program has parameters (`numpyro.param`), which have no posterior but are maximised.

    `names` are those of the parameters.
    """

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self.names = tuple(parameters)
        lines = [f"Site '{n}' is a numpyro.param   ({where})." for n, where in parameters.items()]
        values = ", ".join(f"'{name}': value" for name in self.names)
        each = "it" if len(self.names) == 1 else "each"
        super().__init__(
            "\n".join(lines) + "\nExpected latent variables with priors; parameters are maximised "
            f"by variational EM, with method=lb.CAVI() or lb.EM(). Give {each} a prior with "
            f"numpyro.sample, or fix {each}: numpyro.handlers.substitute(model, data="
            f"{{{values}}})."
        )


class NoLatentSiteError(LowerboundError):
    """The model has nothing to infer."""

    def __init__(self, observed: Sequence[str]) -> None:
        super().__init__(
            f"The model has no latent site; its observed sites are {quoted(observed)}.\n"
            "Expected at least one numpyro.sample without obs."
        )


class NoObservedSiteError(LowerboundError):
    """Data are to be predicted or scored, and the model conditions on none."""

    def __init__(self, latent: Sequence[str], none: Sequence[str]) -> None:
        hint = f" {quoted(none)} {'is' if len(none) == 1 else 'are'} None." if none else ""
        super().__init__(
            f"The model has no observed site; its latent sites are {quoted(latent)}.{hint}\n"
            "Expected at least one numpyro.sample with obs=...: without data there is no density "
            "of data. fit.sample() draws from the fit."
        )


class DuplicateSiteError(LowerboundError):
    """Two sites have the same name."""

    def __init__(self, site: str, first: str, second: str) -> None:
        super().__init__(
            f"Site name '{site}' is used twice: at {first} and at {second}.\n"
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
