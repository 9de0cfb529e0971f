"""`lb.formula`: a formula and a table become a NumPyro program, its arguments, and a fit."""

from __future__ import annotations

import linecache
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lowerbound.api import fit as fit_program
from lowerbound.errors import DroppedRowsWarning, SettingError
from lowerbound.formulas.design import Design, design_of
from lowerbound.formulas.grammar import parse
from lowerbound.formulas.outcomes import family_named
from lowerbound.formulas.program_text import program_text
from lowerbound.formulas.tables import complete_rows
from lowerbound.result.fitted import Fit

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Formula:
    """A formula on a table: the text of a NumPyro program, and the arguments that it takes.

    text: the formula. source: the program, which is what runs; `print(f)` shows it, `f.save(path)`
    writes it, and `dataclasses.replace(f, source=...)` is the formula with another program of the
    same arguments. design: what every term has become. `lb.fit(*f)` and `f.fit()` fit it, and
    `fit.predictive(table)` reads new tables by the encodings of the first, new groups included.

    >>> table = {"y": [1.0, 2.1, 2.9, 4.2, 5.1, 5.8], "x": [0, 1, 2, 3, 4, 5]}
    >>> f = lb.formula("y ~ x", table)
    >>> f
    Formula('y ~ x', family='gaussian', 6 rows)
    >>> fit = lb.fit(*f)
    >>> f.coefficients(fit).round(1)
               mean   sd
    Intercept   1.1  0.2
    x           1.0  0.1
    >>> fit.predictive({"x": [6, 7]}, draws=200)["y"].shape
    (200, 2)
    """

    text: str
    family: str
    source: str
    design: Design
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def model(self) -> Callable[..., Any]:
        """The program: the function `model` of the text."""
        name = f"<formula {self.text}>"
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(True), name)
        names: dict[str, Any] = {}
        exec(compile(self.source, name, "exec"), names)
        model: Callable[..., Any] = names["model"]
        # Tables in calls of fit.predictive and its kind become arrays by this.
        model.new_arguments = self.design.new_arguments  # type: ignore[attr-defined]
        return model

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the program is called with, in order: arrays of the rows, then the response."""
        return (*self.design.row_arrays().values(), self.design.outcome.values)

    def __iter__(self) -> Iterator[Any]:
        """The program and its arguments: `lb.fit(*f)`, `lb.explain(*f)`."""
        yield self.model
        yield from self.arguments

    def data(self, table: Any = None) -> dict[str, Any]:
        """The arguments by name: of the formula's own rows, or of a new table's.

        A new table needs no response, nor have its groups to be known. A category that has a
        coefficient has to be.
        """
        if table is not None:
            return self.design.data(table)
        own = self.design.row_arrays()
        return {**own, self.design.outcome.argument: self.design.outcome.values}

    def fit(self, *, method: Any = "auto", seed: int = 0, **settings: Any) -> Fit:
        """`lb.fit(*f, ...)`."""
        return fit_program(*self, method=method, seed=seed, **settings)

    def coefficients(self, fit: Fit) -> pd.DataFrame:
        """Mean and sd of every coefficient, under the names that its columns have."""
        import numpy as np
        import pandas as pd

        rows = {
            label: {"mean": float(mean), "sd": float(sd)}
            for site, labels in self.labels.items()
            for label, mean, sd in zip(
                labels, np.ravel(fit.mean(site)), np.ravel(fit.sd(site)), strict=True
            )
        }
        return pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "sd"])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the program to a file."""
        target = Path(path)
        target.write_text(self.source, encoding="utf-8")
        return target

    def __str__(self) -> str:
        return self.source.rstrip("\n")

    def __repr__(self) -> str:
        return f"Formula({self.text!r}, family={self.family!r}, {self.design.count:,} rows)"


def formula(
    text: str, data: Any, *, family: str = "gaussian", priors: Mapping[str, Any] | None = None
) -> Formula:
    """Write the NumPyro program that a formula stands for.

    text: "y ~ x + s(z) + (1 + x | g) + (1 | h)", as in lme4 and brms: coefficients, interactions
    x:f and x*f, curves s(z), groups g, crossed or nested (1 | g/h), offset(v), y | trials(n),
    y | weights(w). Texts and categories are coded against their first level.
    data: a pandas or polars frame, or a dict of arrays. Rows that lack a value are left out, with
    a warning. family: gaussian, student, bernoulli, binomial, poisson, negative binomial, ordinal
    or gamma. priors: site, or kind of site ("b", "intercept", "sd", "cor", ...), -> distribution,
    as a value or as text; the default is weak, and stated in the program.

    >>> table = {"y": [1.0, 2.1, 2.9, 4.2], "x": [0, 1, 2, 3]}
    >>> print(lb.formula("y ~ x", table, priors={"b": "Normal(0, 10)"}))
    \"\"\"y ~ x, family gaussian, link identity.
    ...
    def model(x, y=None):
        intercept = numpyro.sample("intercept", dist.Normal(2.55, 4.88))
        b_x = numpyro.sample("b_x", dist.Normal(0, 10))
    <BLANKLINE>
        predictor = intercept + b_x * x
        sigma = numpyro.sample("sigma", dist.HalfNormal(2.92))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Normal(predictor, sigma), obs=y)
    """
    kind = family_named(family)
    given: Any = {} if priors is None else priors
    if not isinstance(given, Mapping):
        expected = "a dict of sites, or kinds of sites, and their distributions"
        raise SettingError("formula", "priors", given, expected)
    parsed = parse(text)
    rows = complete_rows(data, parsed.columns(), f"The formula {text!r}")
    design = design_of(parsed, rows, kind)
    source, labels = program_text(design, given)
    if rows.dropped:
        warnings.warn(DroppedRowsWarning(rows.dropped, rows.total, rows.missing), stacklevel=2)
    return Formula(text, kind.name, source, design, labels)
