"""Errors of the data handed to a model: found, where, and what was expected."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lowerbound.errors.roots import ArgumentError, Words, told
from lowerbound.errors.wording import counted, entry_of, quoted

Index = tuple[int, ...]  # of an entry
Shape = tuple[int, ...]


class DataTypeError(ArgumentError):
    """A data array is not numeric and real (text, objects, complex numbers, dates)."""

    def __init__(self, argument: str, dtype: str, shape: Shape) -> None:
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
        self, argument: str, index: Index, count: int, shape: Shape, site: str | None = None
    ) -> None:
        x = argument
        advice = (
            f"Mark missing entries with numpy.ma.masked_invalid({x}), or put any valid number "
            "there and exclude the entry with numpyro.handlers.mask."
        )
        if site is not None:
            advice = (
                f"The distribution of site '{site}' depends on them. Leave these rows out, or "
                "give the missing entries a prior with numpyro.sample and put its value there by "
                f"jnp.where(jnp.isnan({x}), ..., {x})."
            )
        found = _found(x, index, count, shape)
        super().__init__(f"{found}.\nExpected finite numbers. {advice}")


class NaNSlopeError(ArgumentError):
    """A program computes with NaN or infinity and leaves it out, but its slope is NaN.

    `value` is the first such entry.
    """

    def __init__(
        self,
        argument: str,
        index: Index,
        count: int,
        shape: Shape,
        site: str,
        value: float = math.nan,
    ) -> None:
        x, infinite = argument, math.isinf(value)
        what, product = (str(value), "0 * inf") if infinite else ("NaN", "0 * NaN")
        instead = math.copysign(1e30, value) if infinite else 0.0
        super().__init__(
            f"{_found(x, index, count, shape, what)}. The log density leaves them "
            f"out, but its slope in site '{site}' does not: there {product} is NaN.\n"
            f"Expected no {what} in what a latent site is computed with. Put numbers there before: "
            f"{x} = jnp.where(jnp.is{'inf' if infinite else 'nan'}({x}), {instead}, {x})."
        )


def _found(argument: str, index: Index, count: int, shape: Shape, what: str = "NaN") -> str:
    held = f"Argument '{argument}' holds {counted(count, what)}"
    return f"{held}, the first at {entry_of(argument, index)}, shape {shape}"


class InfiniteDataError(ArgumentError):
    """A data array holds an infinite value."""

    def __init__(self, argument: str, index: Index, value: float, shape: Shape) -> None:
        super().__init__(
            f"Argument '{argument}' holds an infinite value, {value} at "
            f"{entry_of(argument, index)}, shape {shape}.\n"
            "Expected finite numbers. Remove the entry, or mark it as missing with "
            f"numpy.ma.masked_invalid({argument})."
        )


class ExcludedError(ArgumentError):
    """Log potentials of -inf among the data leave no state that is possible."""

    def __init__(self, arguments: tuple[str, ...], site: str, index: Index) -> None:
        where = f"site '{site}'" + (f", {entry_of(site, index)}," if index else "")
        super().__init__(
            f"{where[0].upper()}{where[1:]} is impossible, log 0, at all values of the discrete "
            f"sites that were tried, because of -inf in {quoted(arguments)}.\n"
            "Expected a finite number for at least one value. Check which states the potentials "
            "exclude."
        )


class EmptyDataError(ArgumentError):
    """A data array has no entries."""

    def __init__(self, argument: str, shape: Shape) -> None:
        super().__init__(
            f"Argument '{argument}' is empty: shape {shape}.\n"
            "Expected at least one entry along every axis. Check the selection that made it."
        )


class MissingDataError(ArgumentError):
    """Missing entries of an argument are used for something other than being observed."""

    @told
    def not_observed(cls, argument: str, count: int, site: str, where: str) -> Words:
        """Argument '{argument}' has {entries} that the distribution of site '{site}' depends
        on   ({where}).

        Expected missing entries only in observed values. Model that variable as a latent site: give
        the missing entries of '{argument}' a prior with numpyro.sample.
        """
        return {"entries": counted(count, "missing entry", "missing entries")}

    @told
    def partial_event(
        cls, argument: str, site: str, where: str, index: Index, event: Shape
    ) -> None:
        """Site '{site}' has an observation that is partly missing: row {index:bare}, event shape
        {event}, argument '{argument}'   ({where}).

        Expected each event to be observed or missing as a whole. Mark the whole row as missing, or
        give the components independent distributions.
        """


class UnusedDataError(ArgumentError):
    """No site of the model depends on the values of any data argument."""

    def __init__(self, arguments: Sequence[str]) -> None:
        super().__init__(
            "The model ignores its data: no site depends on the values of "
            f"{quoted(arguments)}.\n"
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
        index: Index,
        value: str,
        count: int,
        *,
        negative_count: bool = False,
    ) -> None:
        source = "" if argument is None else f" (argument '{argument}')"
        entry = entry_of(argument or site, index)
        problem = "negative counts" if negative_count else "impossible values"
        super().__init__(
            f"Site '{site}'{source} observes {problem}: {entry} = {value}, "
            f"{counted(count, 'such entry', 'such entries')}   ({where}).\n"
            f"Expected values in the support of {distribution}: {support}. Correct the "
            "data, mask these entries, or choose another distribution."
        )


class ParameterValueError(ArgumentError):
    """A parameter of a distribution, decided by data alone, has a value that no such law has."""

    def __init__(
        self,
        site: str,
        where: str,
        distribution: str,
        parameter: str,
        index: Index,
        value: float,
        count: int,
        expected: str,
        argument: str | None,
    ) -> None:
        found = f"{entry_of(parameter, index)} = {value:g}"
        if index:
            found += f", {counted(count, 'such entry', 'such entries')}"
        source = "" if argument is None else f", which is argument '{argument}'"
        super().__init__(
            f"Site '{site}' has an impossible {distribution}: {found}{source}   ({where}).\n"
            f"Expected {expected}. Correct it, or see that arguments come in the "
            "order in which the program names them."
        )


class ZeroVarianceError(ArgumentError):
    """A column of the data is constant where its spread is needed."""

    def __init__(self, argument: str, column: int | None, value: float) -> None:
        part = "Argument" if column is None else f"Column {column} of"
        super().__init__(
            f"{part} '{argument}' has zero variance: every entry is {value:g}.\n"
            "Expected values that vary. Drop the column, or give its scale a fixed value."
        )


class TooManyComponentsError(ArgumentError):
    """More components are asked for than there are rows of data."""

    def __init__(self, argument: str, components: int, rows: int) -> None:
        super().__init__(
            f"{argument} = {components} components for {rows} rows of data.\n"
            f"Expected at most one component per row. Use {argument} <= {rows}."
        )


class CodeRangeError(ArgumentError):
    """Codes of groups, say, reach beyond the array that they index; JAX takes the last entry."""

    def __init__(self, sites: Sequence[str], length: int, found: int) -> None:
        of = quoted(sites) if sites else "data"
        super().__init__(
            f"An array of {of} has {length} entries along an axis that is indexed by "
            f"{found}.\nExpected indices from 0 to {length - 1}. Check the codes of the groups, "
            "and how many groups the plate has; of a series, whether a step reads one after the "
            "last. Rows that are masked may have any code within."
        )


class CodeTypeError(ArgumentError):
    """A site whose values are codes of categories observes numbers of another type."""

    def __init__(self, site: str, where: str, dtype: str) -> None:
        super().__init__(
            f"Site '{site}' observes categories of dtype {dtype}   ({where}).\n"
            "Expected integer codes from 0 on, which NumPyro looks probabilities up by. Pass "
            "them as integers, e.g. x.astype(int)."
        )
