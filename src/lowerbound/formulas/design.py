"""Everything of a formula that becomes an array: arguments of the program, by name."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.errors import FormulaError, ResponseError
from lowerbound.formulas.encodings import (
    CATEGORIES,
    Columns,
    Factor,
    Group,
    Smooth,
    computed,
    environment,
    evaluated,
    factor_of,
    offset_and_columns,
    shaped,
)
from lowerbound.formulas.grammar import Parsed
from lowerbound.formulas.outcomes import Family, Outcome, outcome_of
from lowerbound.formulas.tables import Rows, check_texts, column_names, is_table, new_rows

if TYPE_CHECKING:
    import pandas as pd

# Names that the program, or `fit` and `predictive`, keep for themselves.
TAKEN = (
    "checkpoint", "cutpoints", "concentration", "dist", "draws", "effects", "intercept", "jnp",
    "len", "method", "model", "new", "nu", "numpyro", "predictor", "progress", "rows", "seed",
    "shape", "sigma", "until",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Design:
    """The parsed formula on the complete rows of its table: what each term becomes.

    `trials` and `weights` are arrays of the rows, numbers that hold for all of them, or None.
    """

    parsed: Parsed
    rows: Rows
    outcome: Outcome
    intercept: bool
    common: tuple[Columns, ...]
    offsets: tuple[Columns, ...]
    smooths: tuple[Smooth, ...]
    groups: tuple[Group, ...]
    about: dict[str, Columns | float]

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.rows.frame)

    @property
    def factors(self) -> dict[str, Factor]:
        """The groupings, each once."""
        return {group.factor.argument: group.factor for group in self.groups}

    @property
    def blocks(self) -> dict[str, Columns]:
        """Arrays of terms, each once: coefficients, slopes, offsets, trials and weights."""
        slopes = [s for group in self.groups for s in group.slopes if s is not None]
        about = [c for c in self.about.values() if isinstance(c, Columns)]
        return {c.argument: c for c in (*self.common, *slopes, *self.offsets, *about)}

    def row_arrays(self) -> dict[str, Any]:
        """The arguments of the program for the rows of the formula, in order; no response."""
        found: dict[str, Any] = {name: c.values for name, c in self.blocks.items()}
        for smooth in self.smooths:
            found |= smooth.arrays(smooth.values)
        for name, factor in self.factors.items():
            found[name] = factor.codes(self.rows.frame)[0]
        return found or {"rows": self.count}

    def data(self, table: Any) -> dict[str, Any]:
        """The arguments of the program for new rows, by name; the response where it is there."""
        parsed, weights = self.parsed, self.about.get("weights")
        given = set(column_names(table)) if is_table(table) else set()
        known = parsed.response_columns <= given
        # What is drawn has no weight.
        weighed = not isinstance(weights, Columns) or set(weights.term.var_names) <= given
        wanted = parsed.columns(known, weighed)
        frame = new_rows(table, wanted, f"The formula {parsed.text!r}")
        found: dict[str, Any] = {
            name: columns.new(parsed.text, frame) if weighed or columns is not weights
            else np.ones(len(frame))
            for name, columns in self.blocks.items()
        }  # fmt: skip
        for smooth in self.smooths:
            found |= smooth.new(parsed.text, frame)
        unseen: dict[str, int] = {}
        for name, factor in self.factors.items():
            found[name], unseen[f"{name}_new"] = factor.codes(frame)
        found = found or {"rows": len(frame) if wanted else len(next(iter(_columns(table))))}
        if known:
            trials = self.about.get("trials")
            number = found[trials.argument] if isinstance(trials, Columns) else trials
            found[self.outcome.argument] = self.outcome.new(parsed.text, frame, number)
        return found | unseen

    def new_arguments(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A table among the arguments of a call, turned into the arrays of the program."""
        if len(args) == 1 and is_table(args[0]):
            return (), {**self.data(args[0]), **kwargs}
        return args, dict(kwargs)


def _columns(table: Any) -> list[Any]:
    return [table[name] for name in (table if isinstance(table, Mapping) else table.columns)]


class Names:
    """Identifiers for the terms of a formula: each a valid name, and none of them twice."""

    def __init__(self) -> None:
        self.used: set[str] = set(TAKEN)

    def new(self, text: str) -> str:
        """A name like the text that is not in use."""
        plain = re.sub(r"\W+", "_", text).strip("_") or "x"
        if not plain[0].isalpha():
            plain = f"x_{plain}"
        name = f"{plain}_" if keyword.iskeyword(plain) else plain
        number = 2
        while name in self.used:
            name, number = f"{plain}_{number}", number + 1
        self.used.add(name)
        return name


def design_of(parsed: Parsed, rows: Rows, family: Family) -> Design:
    """Evaluate the terms of a formula."""
    frame, namespace, names = rows.frame, environment(), Names()
    check_texts(frame, _numeric_columns(parsed))
    about = {
        name: term if isinstance(term, int | float) else _row_numbers(parsed, name, term, frame,
                                                                      (namespace, names))
        for name, term in parsed.about.items()
    }  # fmt: skip
    _check_about(parsed, family, about)
    trials = about.get("trials")
    outcome = outcome_of(
        parsed.response,
        names.new(str(parsed.response.components[0].name)),
        family,
        frame,
        trials.values if isinstance(trials, Columns) else trials,
        (parsed.text, namespace),
    )
    blocks: dict[tuple[str, tuple[str, ...]], Columns] = {}

    def block(term: Any, values: np.ndarray) -> Columns:
        labels = tuple(str(label) for label in term.labels)
        if (term.name, labels) not in blocks:
            blocks[term.name, labels] = Columns(names.new(term.name), term, labels, values)
        return blocks[term.name, labels]

    found = evaluated(parsed.text, parsed.common, frame, namespace)
    offsets, columns = offset_and_columns(found)
    common = tuple(block(*one) for one in columns)
    for one in common:
        _check_varies(parsed.text, one, any(t.kind == "intercept" for t, _ in found))
    groups = []
    factors: dict[str, Factor] = {}
    for bar in parsed.bars:
        name = bar.factor.name
        if name not in factors:
            factors[name] = factor_of(bar.factor, names.new(name), frame, parsed.text)
        slopes = tuple(
            None if term.kind == "intercept" else block(term, values)
            for term, values in evaluated(parsed.text, bar.terms, frame, namespace)
        )
        groups.append(Group(bar, factors[name], slopes))
        groups[-1].check()
    return Design(
        parsed,
        rows,
        outcome,
        any(term.kind == "intercept" for term, _ in found),
        common,
        tuple(block(*one) for one in offsets),
        tuple(_smooth(parsed.text, term, frame, (namespace, names)) for term in parsed.smooths),
        tuple(groups),
        about,
    )


def _numeric_columns(parsed: Parsed) -> set[str]:
    """Columns of coefficients, slopes and curves that no function makes categories of."""
    terms = [*parsed.common, *parsed.smooths, *(t for bar in parsed.bars for t in bar.terms)]
    parts = [part for term in terms for part in getattr(term, "components", ())]
    wanted = [p for p in parts if not hasattr(p, "call") or p.call.callee not in CATEGORIES]
    return {str(name) for part in wanted for name in part.var_names if name}


def _row_numbers(
    parsed: Parsed, name: str, term: Any, frame: pd.DataFrame, named: tuple[Any, Names]
) -> Columns:
    """Trials or weights: a number a row."""
    namespace, names = named
    with computed(parsed.text, f"{name}({term.name})"):
        term.set_type(frame, namespace)
        term.set_data(False)
        values = shaped(term.data)
    whole = name == "trials" and not (values % 1).any()
    values = values.astype(np.int64) if whole else values
    return Columns(names.new(str(term.name)), term, (str(term.name),), values, whole)


def _check_about(parsed: Parsed, family: Family, about: Mapping[str, Any]) -> None:
    """Trials are whole numbers, weights are not negative."""
    for name, given in about.items():
        values = given.values if isinstance(given, Columns) else np.asarray(float(given))
        wrong = (values < 0) | ((values % 1 != 0) if name == "trials" else False)
        if wrong.any():
            expected = "whole numbers from 0 on" if name == "trials" else "numbers from 0 on"
            raise ResponseError(
                str(parsed.response.name), family.name,
                f"has {name} of {np.atleast_1d(values)[np.atleast_1d(wrong)][0]:g}",
                f"{name} that are {expected}",
            )  # fmt: skip


def _check_varies(formula: str, columns: Columns, intercept: bool) -> None:
    """A coefficient of a constant column cannot be told from the intercept."""
    spread = np.ptp(columns.values.reshape(len(columns.values), -1), axis=0)
    if intercept and not spread.all():
        label = columns.labels[int(np.argmin(spread))]
        raise FormulaError.term(
            formula, columns.term.name, f"has the same value of '{label}' in every row",
            "Expected values that vary. Leave the term out.",
        )  # fmt: skip


def _smooth(formula: str, term: Any, frame: pd.DataFrame, named: tuple[Any, Names]) -> Smooth:
    """The arrays of a curve."""
    namespace, names = named
    with computed(formula, term.name):
        term.set_type(frame, namespace)
        term.set_data(False)
        values = np.asarray(term.data, float)
    column = str(term.components[0].call.args[0])
    name = names.new(f"s_{column}")
    return Smooth(name, term, names.new(f"{column}_line"), names.new(f"{column}_bends"), values)
