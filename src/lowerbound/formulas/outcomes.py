"""The response: what its family takes, which numbers it becomes, and its distribution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.errors import NewLevelError, ResponseError, SettingError
from lowerbound.formulas.encodings import computed

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Family:
    """A family of responses: its distribution as code, and the values that it takes.

    link: how the mean depends on the predictor. extras: sites beside those of the predictor.
    takes: the values, in words.
    """

    name: str
    aliases: tuple[str, ...]
    link: str
    law: str
    extras: tuple[str, ...]
    takes: str


FAMILIES = (
    Family("gaussian", ("normal",), "identity", "dist.Normal(predictor, sigma)", ("sigma",),
           "numbers that vary"),
    Family("student", ("student_t", "t"), "identity", "dist.StudentT(nu, predictor, sigma)",
           ("nu", "sigma"), "numbers that vary"),
    Family("bernoulli", ("binary",), "logit", "dist.Bernoulli(logits=predictor)", (),
           "0 and 1, truth values, or two categories"),
    Family("binomial", (), "logit", "dist.Binomial({trials}, logits=predictor)", (),
           "whole numbers from 0 to the number of trials"),
    Family("poisson", (), "log", "dist.Poisson(jnp.exp(predictor))", (),
           "counts: whole numbers from 0 on"),
    Family("negative binomial", ("negbinomial", "negative_binomial", "negativebinomial"), "log",
           "dist.NegativeBinomial2(jnp.exp(predictor), concentration)", ("concentration",),
           "counts: whole numbers from 0 on"),
    Family("ordinal", ("cumulative", "ordered"), "cumulative logit",
           "dist.OrderedLogistic(predictor, cutpoints)", ("cutpoints",),
           "three ordered categories or more, or whole numbers for them"),
    Family("gamma", (), "log", "dist.Gamma(shape, shape * jnp.exp(-predictor))", ("shape",),
           "positive numbers"),
)  # fmt: skip


def family_named(name: Any) -> Family:
    """The family of a name."""
    for family in FAMILIES:
        if name == family.name or name in family.aliases:
            return family
    known = ", ".join(repr(family.name) for family in FAMILIES)
    raise SettingError("formula", "family", name, f"one of {known}")


@dataclass(frozen=True, eq=False)
class Outcome:
    """The response of a formula: its numbers, and how to read them from new rows.

    levels: its categories, in the order of their numbers, where it has some.
    """

    argument: str
    term: Any
    family: Family
    levels: tuple[Any, ...]
    values: np.ndarray

    @property
    def name(self) -> str:
        """As it is written in the formula."""
        return str(self.term.name)

    @property
    def note(self) -> str:
        """Which numbers stand for which categories."""
        shown = [f"{number} is {level!r}" for number, level in enumerate(self.levels)]
        return f"{self.argument}: {', '.join(shown)}" if shown else ""

    def new(self, formula: str, frame: pd.DataFrame, trials: Any) -> np.ndarray:
        """The numbers of new rows, whose categories have to be known."""
        values = _raw(self.term, frame, formula)
        if self.levels:
            unseen = sorted(set(values) - set(self.levels), key=str)
            if unseen:
                raise NewLevelError(self.name, unseen, self.levels)
            return np.array([self.levels.index(value) for value in values])
        return _checked(self.name, self.family, values, trials, new=True)[0]


def outcome_of(
    term: Any,
    argument: str,
    family: Family,
    frame: pd.DataFrame,
    trials: Any,
    named: tuple[str, Any],
) -> Outcome:
    """Read the response; `named` has the text of the formula, and its functions."""
    formula, namespace = named
    part = term.components[0]
    if hasattr(part, "call"):
        with computed(formula, term.name):
            part.set_type(frame, namespace)
    if family.name == "binomial" and trials is None:
        raise ResponseError(
            str(term.name), family.name, "has no number of trials",
            f"{term.name} | trials(n), or p({term.name}, n) (and family='bernoulli' for 0 and 1)",
        )  # fmt: skip
    if family.name != "binomial" and trials is not None:
        raise ResponseError(
            str(term.name), family.name, "has a number of trials", "a response without"
        )
    values, levels = _checked(
        str(term.name), family, _raw(term, frame, formula), trials, _order(part, frame)
    )
    return Outcome(argument, term, family, levels, values)


def _order(part: Any, frame: pd.DataFrame) -> tuple[Any, ...]:
    """The categories of a column that has an order of its own."""
    categories = getattr(frame.get(part.name), "cat", None)
    return () if categories is None else tuple(categories.categories)


def _raw(term: Any, frame: pd.DataFrame, formula: str) -> np.ndarray:
    """The column, or what is computed from columns; y["yes"] is whether it is "yes"."""
    part = term.components[0]
    if hasattr(part, "call"):
        with computed(formula, term.name):
            return np.asarray(part.call.eval(frame, part.env))
    values = np.asarray(frame[part.name])
    if part.reference is None:
        return values
    if part.reference not in set(values):
        raise NewLevelError(str(part.name), [part.reference], sorted(set(values), key=str))
    return np.asarray(values == part.reference)


def _checked(
    name: str,
    family: Family,
    values: np.ndarray,
    trials: Any,
    order: tuple[Any, ...] = (),
    new: bool = False,
) -> tuple[np.ndarray, tuple[Any, ...]]:
    """The response as numbers, and its categories; an error where the family has no such values.

    That of new rows need not vary.
    """

    def refuse(found: str) -> ResponseError:
        return ResponseError(name, family.name, found, family.takes)

    text = values.dtype.kind not in "biuf"
    if family.name == "bernoulli" and (text or order):
        levels = _sorted(values, order)
        if len(levels) != 2:
            raise refuse(f"has {len(levels)} categories")
        return np.array([levels.index(value) for value in values]), levels
    if family.name == "ordinal":
        if values.dtype.kind == "f" and (values % 1 != 0).any():
            raise refuse(f"is {values[values % 1 != 0][0]:g} in some row")
        whole = values.astype(np.int64) if values.dtype.kind == "f" else values
        levels = _sorted(whole, order)
        if len(levels) < 3:
            raise refuse(f"has {len(levels)} categories")
        return np.array([levels.index(value) for value in whole.tolist()]), levels
    if text:
        raise refuse(f"holds {type(values.tolist()[0]).__name__}, not numbers")
    range_fault = _RANGES[family.name]
    fault = range_fault(values.astype(float), trials)
    if fault and not (new and family.link == "identity"):
        raise refuse(fault)
    return values.astype(np.int64 if range_fault in _WHOLE else float), ()


def _sorted(values: np.ndarray, order: tuple[Any, ...]) -> tuple[Any, ...]:
    """The categories that occur, in their own order or else the usual one."""
    occurring = set(values.tolist())
    return tuple(level for level in order if level in occurring) or tuple(sorted(occurring))


def _first(values: np.ndarray, wrong: np.ndarray) -> str:
    return f"is {values[wrong][0]:g} in some row" if wrong.any() else ""


def _varies(values: np.ndarray, trials: Any) -> str:
    return f"is {values[0]:g} in every row" if len(values) and np.ptp(values) == 0 else ""


def _binary(values: np.ndarray, trials: Any) -> str:
    return _first(values, (values != 0) & (values != 1))


def _counted(values: np.ndarray, trials: Any) -> str:
    return _first(values, (values < 0) | (values % 1 != 0))


def _of_trials(values: np.ndarray, trials: Any) -> str:
    return _counted(values, trials) or (
        "exceeds its number of trials in some row" if (values > trials).any() else ""
    )


def _positive(values: np.ndarray, trials: Any) -> str:
    return _first(values, values <= 0)


_RANGES: dict[str, Callable[[np.ndarray, Any], str]] = {
    "gaussian": _varies,
    "student": _varies,
    "bernoulli": _binary,
    "binomial": _of_trials,
    "poisson": _counted,
    "negative binomial": _counted,
    "gamma": _positive,
}
_WHOLE = (_binary, _counted, _of_trials)  # ranges of whole numbers
