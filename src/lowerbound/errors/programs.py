"""Errors of the NumPyro program itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lowerbound.errors.roots import LowerboundError, Words, case, told
from lowerbound.errors.wording import prior_or_fixed, quoted, rounded


class UnsupportedModelError(LowerboundError):
    """The program uses something that cannot be analysed; the text names it and the way out."""


class SubsampledPlateError(UnsupportedModelError):
    """A plate of which the program takes some rows, in a program that does not run with all."""

    def __init__(self, plate: str, taken: int, size: int, where: str, reason: str) -> None:
        super().__init__(
            f"Plate '{plate}' takes {taken} of {size} rows at random   ({where}), and the program "
            f"does not run with all of them: {reason}.\n"
            "Expected arrays that follow the rows of the plate, since a fit takes all of them: "
            "give the program all data and no subsample_size. With method=lb.SVI(batch_size=...) "
            "the library makes the batches."
        )


class LongSumError(UnsupportedModelError):
    """Discrete sites whose sum has more densities than are tried, or than there is time for."""

    def __init__(
        self, term: str, where: str, row: int, sites: str, back: int, windows: int, rows: int,
        most: float,
    ) -> None:  # fmt: skip
        before = "row before" if back == 1 else f"{back} rows before"
        super().__init__(
            f"Row {row} of site '{term}' depends on {sites} in other rows   ({where}).\n"
            f"If these are the {before}, there are {rounded(windows)} windows of states, and "
            f"{rounded(windows * rows)} densities in the {rounded(rows)} rows. Expected at most "
            f"{rounded(int(most))} to sum over. Let the sites have fewer states, or sum over them "
            "by the forward algorithm (jax.lax.scan), and state the result by numpyro.factor."
        )


class ParameterSiteError(UnsupportedModelError):
    """The program has parameters (`numpyro.param`), which have no posterior but are maximised.

    `parameters` maps their names, which are `names`, to their lines.
    """

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self.names = tuple(parameters)
        lines = [f"Site '{n}' is a numpyro.param   ({where}).\n" for n, where in parameters.items()]
        super().__init__(
            f"{''.join(lines)}Expected latent variables with priors; parameters are maximised by "
            f"variational EM, with method=lb.CAVI() or lb.EM(). {prior_or_fixed(self.names)}"
        )


class UncompiledCheckError(UnsupportedModelError):
    """The program has a check of values as it runs, which JAX does not compile."""

    def __init__(self) -> None:
        super().__init__(
            "The program, or a package that it calls, checks traced values by checkify.check, "
            "which jax.jit does not compile: NumPyro's samplers cannot run it either.\n"
            "Expected a program that jax.jit takes. Leave the check out, or build what checks its "
            "values (a kernel with its parameters, say) without a check."
        )


class DiscreteSiteError(UnsupportedModelError):
    """A discrete site, or one that is discrete and infinite, where it cannot be treated."""

    def __init__(
        self, site: str, distribution: str, where: str, expected: str, reason: str = ""
    ) -> None:
        found = f"is discrete and {reason}" if reason else "is discrete"
        super().__init__(f"Site '{site}' {found}: {distribution}   ({where}).\nExpected {expected}")


class UnsteadyProgramError(UnsupportedModelError):
    """The program has another density each time that it runs."""

    def __init__(self) -> None:
        super().__init__(
            "The program has another log density each time that it runs with the same data and the "
            "same values of its sites.\n"
            "Expected one that depends on these alone. Look for numbers that it draws or counts "
            "itself (np.random, a generator, a counter): draw them before, and pass them as data."
        )


class NoCoordinatesError(UnsupportedModelError):
    """The values of a site have no map from real numbers."""

    def __init__(self, site: str, distribution: str, where: str, support: str) -> None:
        super().__init__(
            f"Site '{site}' is {distribution}, and NumPyro has no map from real numbers to its "
            f"support, {support}   ({where}). Its samplers cannot run it either.\n"
            "Expected a support that numpyro.distributions.biject_to knows. For directions: "
            "numpyro.handlers.reparam(model, "
            f"config={{'{site}': numpyro.infer.reparam.ProjectedNormalReparam()}}); else write the "
            "site as a function of real ones."
        )


class NoDrawsError(UnsupportedModelError):
    """The distribution of a site states a density and cannot be drawn from."""

    def __init__(self, site: str, distribution: str, where: str, said: str = "") -> None:
        because = f": {said}" if said else ""
        super().__init__(
            f"Site '{site}' cannot be drawn: {distribution} states a density and no draws{because}"
            f"   ({where}).\n"
            "Expected a distribution with a `sample` method, for what the data or a prior would "
            "give anew. Give it one; the posterior itself is fit.sample()."
        )


class NoMarginalError(UnsupportedModelError):
    """The marginal of some sites has no closed form, or one that is too large to hold."""

    def __init__(self, found: str, expected: str, more: str = "") -> None:
        draws = f"Use draws{',' if more else ':'} fit.sample(1000){more}."
        super().__init__(f"{found}.\nExpected {expected}. {draws}")


class NoLatentSiteError(LowerboundError):
    """The model has nothing to infer."""

    def __init__(self, observed: Sequence[str]) -> None:
        super().__init__(
            f"The model has no latent site; its observed sites are {quoted(observed)}.\n"
            "Expected at least one numpyro.sample without obs."
        )


class NoObservedSiteError(LowerboundError):
    """Data are to be predicted or scored, and the model conditions on none.

    `none` are arguments that are None.
    """

    def __init__(self, latent: Sequence[str], none: Sequence[str]) -> None:
        verb = "is" if len(none) == 1 else "are"
        hint = f" {quoted(none)} {verb} None." if none else ""
        super().__init__(
            f"The model has no observed site; its latent sites are {quoted(latent)}.{hint}\n"
            "Expected at least one numpyro.sample with obs=...: without data there is no density "
            "of data. fit.sample() draws from the fit."
        )


class DuplicateSiteError(LowerboundError):
    """Two sites have the same name; `first` and `second` are their lines."""

    def __init__(self, site: str, first: str, second: str) -> None:
        super().__init__(
            f"Site name '{site}' is used twice: at {first} and at {second}.\n"
            "Expected unique names. Rename one; in a Python loop put the index into the name, "
            'f"..._{i}".'
        )


class ShapeError(LowerboundError):
    """Shapes inside the model do not fit together."""

    @told
    def of_site(
        cls,
        site: str,
        where: str,
        expected: tuple[int, ...],
        found: tuple[int, ...],
        observed: bool = True,
    ) -> Words:
        """Site '{site}' {kind} of shape {found}, its distribution has shape {expected}   ({where}).

        Expected one to broadcast to the other. Check the plates and the orientation of the
        arguments (a column (n, 1) is not a vector (n,)).
        """
        return {"kind": "observes a value" if observed else "has a value"}

    @told
    def of_new_data(
        cls, site: str, where: str, expected: tuple[int, ...], found: tuple[int, ...]
    ) -> None:
        """Site '{site}' has shape {found} with the new data, and {expected} in the fit   ({where}).

        Expected sites that all rows share to be those of the fit. Where the model counts groups in
        its data, pass their number instead, or rows of all groups.
        """

    @told
    def of_longer_series(cls, site: str, fitted: tuple[int, ...], asked: tuple[int, ...]) -> None:
        """Site '{site}' has shape {fitted} in the fit, and the new arguments ask for {asked}.

        Expected a series that can go on: write its steps with numpyro.contrib.control_flow.scan,
        whose later steps follow from the earlier ones; or fit it at the longer length, with the
        steps to be predicted missing (numpy.ma.masked).
        """

    @case
    def of_line(
        cls, where: str, source: str, site: str | None, message: str, shapes: Sequence[str]
    ) -> str:
        """An operation inside the model met arrays that do not fit together."""
        inside = "" if site is None else f" in site '{site}'"
        known = f"\n  Shapes: {'; '.join(shapes)}." if shapes else ""
        return (
            f"Shapes do not fit together{inside}   ({where})\n"
            f"  {source}\n"
            f"  {message}{known}\n"
            "Check the plates and the shapes of the arguments."
        )
