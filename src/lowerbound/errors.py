"""The errors and warnings of the library: expected, found, where, what to do.

Each class builds its own message from plain records, so that the text lives in one place and every
text is tested. All errors are `LowerboundError`, which is a `ValueError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

__all__ = [
    "ArgumentError",
    "BlockError",
    "CertificateError",
    "ConvergenceWarning",
    "DataTypeError",
    "DecreasingBoundError",
    "DecreasingBoundWarning",
    "DuplicateSiteError",
    "EmptyDataError",
    "InfiniteDataError",
    "LadderWarning",
    "LowerboundError",
    "MissingDataError",
    "NaNDataError",
    "NaNSlopeError",
    "NoLatentSiteError",
    "NoObservedSiteError",
    "NotConjugateError",
    "SubsampledPlateError",
    "ParameterSiteError",
    "ReservedNameError",
    "Residual",
    "ShapeError",
    "SupportError",
    "TooLargeError",
    "TooManyComponentsError",
    "TooLongToCompileError",
    "TooSlowError",
    "UncertifiedError",
    "UnsupportedModelError",
    "UnusedDataError",
    "ZeroDensityError",
    "ZeroVarianceError",
]


class LowerboundError(ValueError):
    """Base class of all errors that the library raises on purpose."""


# --- Arguments: the data handed to the model ---


class ArgumentError(LowerboundError):
    """An argument of the model cannot be used as it is."""


class DataTypeError(ArgumentError):
    """A data array is not numeric and real (text, objects, complex numbers, dates)."""

    def __init__(self, argument: str, dtype: str, shape: tuple[int, ...]) -> None:
        advice = "Convert it to numbers, e.g. categories to codes with pandas.factorize(x)[0]."
        if dtype.startswith("complex"):
            advice = "Pass real and imaginary parts as two real arrays."
        elif dtype.startswith(("datetime", "timedelta")):
            advice = "Pass times as numbers, counted from a reference date."
        super().__init__(
            f"Argument '{argument}' has dtype {dtype}, shape {shape}.\n"
            f"Expected a real array: float, int or bool. {advice}"
        )


class NaNDataError(ArgumentError):
    """NaN in a data array reaches the density of some site.

    `site` is one whose parameters depend on the argument, where there is one.
    """

    def __init__(
        self,
        argument: str,
        index: tuple[int, ...],
        count: int,
        shape: tuple[int, ...],
        site: str | None = None,
    ) -> None:
        advice = (
            f"Mark missing entries with numpy.ma.masked_invalid({argument}), or put any valid "
            "number there and exclude the entry with numpyro.handlers.mask."
        )
        if site is not None:
            advice = (
                f"The distribution of site '{site}' depends on them. Leave these rows out, or give "
                "the missing entries a prior with numpyro.sample and put its value there by "
                f"jnp.where(jnp.isnan({argument}), ..., {argument})."
            )
        super().__init__(
            f"Argument '{argument}' holds {_count(count, 'NaN')}, the first at "
            f"{_entry(argument, index)}, shape {shape}.\nExpected finite numbers. {advice}"
        )


class NaNSlopeError(ArgumentError):
    """A program computes with NaN and leaves the result out, but its slope stays NaN."""

    def __init__(
        self, argument: str, index: tuple[int, ...], count: int, shape: tuple[int, ...], site: str
    ) -> None:
        super().__init__(
            f"Argument '{argument}' holds {_count(count, 'NaN')}, the first at "
            f"{_entry(argument, index)}, shape {shape}. The log density leaves them out, but its "
            f"slope in site '{site}' does not: there 0 * NaN is NaN.\n"
            "Expected no NaN in what a latent site is computed with. Put numbers there before: "
            f"{argument} = jnp.where(jnp.isnan({argument}), 0.0, {argument})."
        )


class InfiniteDataError(ArgumentError):
    """A data array holds an infinite value."""

    def __init__(
        self, argument: str, index: tuple[int, ...], value: float, shape: tuple[int, ...]
    ) -> None:
        super().__init__(
            f"Argument '{argument}' holds an infinite value, {value} at "
            f"{_entry(argument, index)}, shape {shape}.\n"
            "Expected finite numbers. Remove the entry, or mark it as missing with "
            f"numpy.ma.masked_invalid({argument})."
        )


class EmptyDataError(ArgumentError):
    """A data array has no entries."""

    def __init__(self, argument: str, shape: tuple[int, ...]) -> None:
        super().__init__(
            f"Argument '{argument}' is empty: shape {shape}.\n"
            "Expected at least one entry along every axis. Check the selection that made it."
        )


class MissingDataError(ArgumentError):
    """Missing entries of an argument are used for something other than being observed."""

    @classmethod
    def not_observed(cls, argument: str, count: int, site: str, where: str) -> MissingDataError:
        """The missing entries reach the parameters of a site."""
        return cls(
            f"Argument '{argument}' has {_count(count, 'missing entry', 'missing entries')} that "
            f"the distribution of site '{site}' depends on   ({where}).\n"
            "Expected missing entries only in observed values. Model that variable as a latent "
            f"site: give the missing entries of '{argument}' a prior with numpyro.sample."
        )

    @classmethod
    def partial_event(
        cls, argument: str, site: str, where: str, index: tuple[int, ...], event: tuple[int, ...]
    ) -> MissingDataError:
        """Part of one multivariate observation is missing."""
        return cls(
            f"Site '{site}' has an observation that is partly missing: row {_bare(index)}, "
            f"event shape {event}, argument '{argument}'   ({where}).\n"
            "Expected each event to be observed or missing as a whole. Mark the whole row as "
            "missing, or give the components independent distributions."
        )


class UnusedDataError(ArgumentError):
    """No site of the model depends on the values of any data argument."""

    def __init__(self, arguments: Sequence[str]) -> None:
        super().__init__(
            f"The model ignores its data: no site depends on the values of {_names(arguments)}.\n"
            "Expected some site to be observed (obs=...) or to depend on them. Check that the "
            "model uses its arguments."
        )


class SupportError(ArgumentError):
    """An observation is impossible under its distribution."""

    def __init__(
        self,
        site: str,
        where: str,
        distribution: str,
        support: str,
        argument: str | None,
        index: tuple[int, ...],
        value: str,
        count: int,
        *,
        negative_count: bool = False,
    ) -> None:
        source = "" if argument is None else f" (argument '{argument}')"
        entry = _entry(argument or site, index)
        problem = "negative counts" if negative_count else "impossible values"
        super().__init__(
            f"Site '{site}'{source} observes {problem}: {entry} = {value}, "
            f"{_count(count, 'such entry', 'such entries')}   ({where}).\n"
            f"Expected values in the support of {distribution}: {support}. Correct the data, mask "
            "these entries, or choose another distribution."
        )


class ZeroVarianceError(ArgumentError):
    """A column of the data is constant where its spread is needed."""

    def __init__(self, argument: str, column: int | None, value: float) -> None:
        part = f"Argument '{argument}'" if column is None else f"Column {column} of '{argument}'"
        super().__init__(
            f"{part} has zero variance: every entry is {value:g}.\n"
            "Expected values that vary. Drop the column, or give its scale a fixed value."
        )


class TooManyComponentsError(ArgumentError):
    """More components are asked for than there are rows of data."""

    def __init__(self, argument: str, components: int, rows: int) -> None:
        super().__init__(
            f"{argument} = {components} components for {rows} rows of data.\n"
            f"Expected at most one component per row. Use {argument} <= {rows}."
        )


class ReservedNameError(ArgumentError):
    """The model has an argument whose name `fit` keeps for itself."""

    def __init__(self, argument: str, model: str) -> None:
        super().__init__(
            f"The model {model} has an argument '{argument}', a name that fit keeps for itself.\n"
            "Fix it beforehand, functools.partial(model, "
            f"{argument}=...), or rename the argument."
        )


# --- Models: what the NumPyro program says ---


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
            f"The model has no latent site; its observed sites are {_names(observed)}.\n"
            "Expected at least one numpyro.sample without obs."
        )


class NoObservedSiteError(LowerboundError):
    """Data are to be predicted or scored, and the model conditions on none."""

    def __init__(self, latent: Sequence[str], none: Sequence[str]) -> None:
        hint = f" {_names(none)} {'is' if len(none) == 1 else 'are'} None." if none else ""
        super().__init__(
            f"The model has no observed site; its latent sites are {_names(latent)}.{hint}\n"
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


# --- Derivation and fitting ---


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
        "update exists. Or augment the site: lb.CAVI(augment={...})."
    )

    def __init__(
        self, residuals: Sequence[Residual], method: str = "CAVI", remedy: str | None = None
    ) -> None:
        self.residuals = tuple(residuals)
        lines = [f"{method} needs log p to be affine in the statistics of every latent site."]
        for residual in self.residuals:
            lines += _residual_lines(residual)
        super().__init__("\n".join([*lines, remedy or self.remedy]))

    def of_batches(self, streamed: bool) -> NotConjugateError:
        """The same of a fit that reads its rows in batches, of a stream where no other can."""
        augment = "augment the site: lb.SVI(augment={...})."
        remedy = (
            "A stream is read in batches, and batches add up by such statistics alone. Pass all "
            f'rows as arrays, for which method="auto" has a Gaussian; or {augment}'
            if streamed
            else 'Use method="auto", which takes all rows at once: quadrature, a few scalars on a '
            f"grid or a Gaussian, where no exact update exists. Or {augment}"
        )
        return NotConjugateError(self.residuals, "SVI", remedy)


def _residual_lines(residual: Residual) -> list[str]:
    latents = residual.latents
    sites = (
        f"Site {_names(latents)} enters" if len(latents) == 1 else f"Sites {_names(latents)} enter"
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
        super().__init__(f"No factor q for {_names(sites)}: {reason}{place}.\n{advice}")


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
        where = f" Where it was tried last, {_names(sites)} has density zero." if sites else ""
        super().__init__(
            f"The derived form of log p(x, z) could not be checked: the log density is not finite "
            f"at any of {tried} points, with the likeliest value of every discrete site at each."
            f"{where}\n"
            "Expected points of positive density, to compare it with NumPyro's own there. Check "
            "the data against the model: an impossible value, or a scale that underflows. "
            "lb.fit(..., method=lb.Gaussian(init={site: value, ...})) needs no derivation."
        )


def _decrease(before: float, after: float, sweep: int, sites: Sequence[str]) -> str:
    cause = f", when the block of {_names(sites)} was updated" if sites else ""
    return (
        f"The ELBO fell from {before!r} to {after!r} nats in sweep {sweep}{cause}.\n"
        "Expected a coordinate sweep never to lower it. This is a fault or a loss of precision: "
        "the fit is not reported as converged."
    )


class ZeroDensityError(LowerboundError):
    """A fit reaches where the density is zero, so that its bound is not finite."""

    def __init__(self, share: float, draws: int, sites: Sequence[str] = ()) -> None:
        self.share = share
        super().__init__(
            "\n".join(
                [
                    f"The ELBO is not finite: the density is zero, or no number, at {share:.1%} of "
                    f"{draws} draws of q.",
                    *(f"  {site}" for site in sites),
                    "Expected a density that is positive nearly everywhere that q reaches. Give "
                    "the sites supports that leave out what is impossible (a truncated prior, "
                    "bounds of a Uniform), write the program so that it is finite there, or use "
                    "method=lb.Gaussian(init={site: value, ...}) to start well inside.",
                ]
            )
        )


class TooLargeError(LowerboundError):
    """Some work needs more memory than there is, even in its smallest parts."""

    def __init__(self, what: str, needed: float, free: float) -> None:
        super().__init__(
            f"Not enough memory: {what} needs about {needed:,.0f} MB, and {free:,.0f} MB are "
            "free.\n"
            "Expected work that fits; nothing was allocated. Use less at once (fewer rows with "
            "method=lb.SVI(batch_size=...), fewer draws), a coarser model, or a machine with more "
            "memory."
        )


class TooSlowError(LowerboundError):
    """One step of an automatic fit would take longer than all of it may."""

    def __init__(self, points: int, seconds: float, most: float) -> None:
        super().__init__(
            f"The log density and its gradient at {points} points, one step of the fit, take about "
            f"{seconds:,.0f} s on this machine.\n"
            f"Expected a step within the {most:g} s that an automatic fit may take. Compute what "
            "all rows share once, not in every row; use fewer rows; or name the method, e.g. "
            "method=lb.Gaussian(starts=1), and it takes as long as it needs."
        )


class TooLongToCompileError(LowerboundError):
    """The compilation of a program would take longer than all of an automatic fit may."""

    def __init__(self, operations: int, seconds: float, most: float) -> None:
        super().__init__(
            f"The log density has {operations:,} operations, which take about {seconds:,.0f} s to "
            "compile on this machine.\n"
            f"Expected a program that compiles within the {most:g} s that an automatic fit may "
            "take. Write a Python loop over steps or rows as jax.lax.scan (with sites inside, "
            "numpyro.contrib.control_flow.scan) or as arrays; or name the method, e.g. "
            "method=lb.Gaussian(starts=1), and it takes as long as it needs."
        )


class DecreasingBoundError(LowerboundError):
    """A coordinate sweep lowered the ELBO beyond rounding."""

    def __init__(self, before: float, after: float, sweep: int, sites: Sequence[str] = ()) -> None:
        super().__init__(_decrease(before, after, sweep, sites))


class DecreasingBoundWarning(UserWarning):
    """A coordinate sweep lowered the ELBO beyond rounding (at run time a warning)."""

    def __init__(self, before: float, after: float, sweep: int, sites: Sequence[str] = ()) -> None:
        super().__init__(_decrease(before, after, sweep, sites))


class LadderWarning(UserWarning):
    """A rung of the ladder did not hold when it was tried, and the next one was taken."""

    def __init__(self, tried: str, reason: str, taken: str) -> None:
        super().__init__(
            f"The rung '{tried}', which lb.explain names, was given up: {reason} The fit is that "
            f"of the rung '{taken}' instead; fit.plan says what it did."
        )


class ConvergenceWarning(UserWarning):
    """A fit stopped before it converged."""

    def __init__(self, reason: str, remedy: str = "Raise the limit, or loosen tolerance.") -> None:
        super().__init__(f"The fit stopped before it converged: {reason}.\n{remedy}")


# --- Wording ---


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) if names else "none"


def _count(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 or many is None else many}"


def _bare(index: tuple[int, ...]) -> str:
    return str(index[0]) if len(index) == 1 else str(tuple(index))


def _entry(name: str, index: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(str(i) for i in index)}]" if index else name
