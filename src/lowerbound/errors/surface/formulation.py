"""Errors of formulas: their text, the columns that they name, and the response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from lowerbound.errors.roots import ArgumentError, LowerboundWarning, Words, case, told
from lowerbound.errors.wording import counted, listed, short


class FormulaError(ArgumentError):
    """The text of a formula cannot be read, or a term of it has no meaning."""

    @told
    def syntax(cls, formula: str, said: str) -> None:
        """The formula {formula!r} cannot be read: {said}.

        Expected one like "y ~ x + s(z) + (1 + x | g)".
        """

    @told
    def response(cls, formula: str, found: str) -> None:
        """The formula {formula!r} has {found} where its response belongs.

        Expected a column, or one with more about it, before "~": y, y | trials(n), y | weights(w),
        p(y, n).
        """

    @told
    def term(cls, formula: str, term: str, why: str, remedy: str) -> None:
        """The term '{term}' of the formula {formula!r} {why}.

        {remedy}
        """


class UnknownColumnError(ArgumentError):
    """A formula, or a call of the command line, names a column that the data do not have."""

    def __init__(self, column: str, known: Sequence[str], wanted: str) -> None:
        close = get_close_matches(column, known, 1)
        guess = f" Did you mean '{close[0]}'?" if close else ""
        super().__init__(
            f"{wanted} names '{column}', which is no column of the data.\n"
            f"Expected names among {listed(known)}.{guess}"
        )


class ColumnKindError(ArgumentError):
    """A column holds something else than its place in a formula needs."""

    @told
    def text(cls, column: str, row: int, value: Any, numbers: int, count: int) -> None:
        """Column '{column}' holds text where {numbers} of {count} entries are numbers: row {row} is
        {value:short}.

        Expected numbers, or categories. Correct the entry, read it as missing, or write C({column})
        for a category of every value.
        """

    @told
    def written(cls, column: str) -> None:
        """Column '{column}' holds numbers that are written as text.

        Expected numbers, or categories. Convert it, data['{column}'].astype(float), or write
        C({column}) for a category of every value.
        """

    @told
    def infinite(cls, column: str, row: int, value: float) -> None:
        """Column '{column}' is {value} in row {row}.

        Expected finite numbers. Correct the entry, or make it missing (NaN): its row is then left
        out.
        """

    @told
    def unreadable(cls, column: str, kind: str) -> None:
        """Column '{column}' holds {kind}.

        Expected numbers, texts, truth values or categories.
        """


class ResponseError(ArgumentError):
    """The response is of another kind than the family of the formula has."""

    def __init__(self, response: str, family: str, found: str, expected: str) -> None:
        super().__init__(
            f"The response '{response}' {found}.\nExpected {expected}, for family={family!r}."
        )


class GroupLevelsError(ArgumentError):
    """A grouping column has one group, so that nothing varies between groups."""

    def __init__(self, term: str, column: str, level: Any) -> None:
        super().__init__(
            f"The term '{term}' has one group: '{column}' is {short(level)} in every row.\n"
            "Expected two groups at least. Leave the term out."
        )


class NewLevelError(ArgumentError):
    """New data have a category that the data of the formula did not have."""

    def __init__(self, column: str, levels: Sequence[Any], known: Sequence[Any]) -> None:
        super().__init__(
            f"The new data have '{column}' = {listed(levels)}, which the formula's data did not "
            f"have.\nExpected categories among {listed(known)}: a coefficient cannot be foretold. "
            f"A group can: (1 | {column})."
        )


class MissingRowsError(ArgumentError):
    """Missing values leave no row, or are among rows that all have to be predicted."""

    @told
    def all(cls, columns: Mapping[str, int], rows: int) -> Words:
        """None of {rows} is complete: missing are {held}.

        Expected rows in which every column of the formula has a value.
        """
        return {
            "held": ", ".join(f"{name} {count}" for name, count in columns.items()),
            "rows": counted(rows, "row", "rows"),
        }

    @case
    def new(cls, column: str, row: int, count: int) -> str:
        """A row of new data is incomplete."""
        return (
            f"Column '{column}' of the new data has {counted(count, 'missing value', 'missing')}"
            f"{'' if count == 1 else ' values'}, the first in row {row}.\n"
            "Expected a value in every row: each of them is predicted. Leave these rows out."
        )


class PriorError(ArgumentError):
    """A prior of a formula is for nothing, or is no distribution that can be written down."""

    @told
    def unknown(cls, name: str, sites: Sequence[str], kinds: Sequence[str]) -> None:
        """priors has {name!r}, which is nothing in the formula.

        Expected a site, {sites:joined}, or a kind of site, {kinds:quoted}.
        """

    @told
    def law(cls, name: str, value: Any, why: str) -> None:
        """priors has {name!r}: {value:short}, {why}.

        Expected a NumPyro distribution of one number, as a value or as its text: dist.Normal(0.0,
        10.0) or 'Normal(0, 10)'.
        """

    @told
    def correlation(cls, name: str, value: Any) -> None:
        """priors has {name!r}: {value:short}.

        Expected the concentration of LKJCholesky, a positive number: 1 for all correlations alike,
        more for small ones.
        """


class DroppedRowsWarning(LowerboundWarning):
    """Rows with missing values were left out of the data of a formula."""

    def __init__(self, dropped: int, rows: int, columns: Mapping[str, int]) -> None:
        held = ", ".join(f"{name} {count}" for name, count in columns.items())
        super().__init__(
            f"{dropped} of {rows} rows have missing values and are left out (missing: {held})."
        )
