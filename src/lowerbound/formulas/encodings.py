"""The arrays that terms become, with encodings that are kept for new tables."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lowerbound.errors import FormulaError, GroupLevelsError, LowerboundError, NewLevelError
from lowerbound.errors.wording import first_line
from lowerbound.formulas.grammar import SMOOTH, Bar

if TYPE_CHECKING:
    import pandas as pd

# What a formula may compute: functions of numbers alone, so that a formula runs no other code.
FUNCTIONS = (
    "abs", "arcsin", "arcsinh", "arctan", "cbrt", "ceil", "clip", "cos", "exp", "expm1", "floor",
    "log", "log10", "log1p", "log2", "maximum", "minimum", "power", "sign", "sin", "sinh", "sqrt",
    "square", "tan", "tanh", "where",
)  # fmt: skip
CATEGORIES = ("C", "S", "T", "B", "binary")  # of formulae, for columns of any kind


def environment() -> Any:
    """The functions of formulas."""
    from formulae.environment import Environment

    functions = {name: getattr(np, name) for name in FUNCTIONS}
    return Environment([functions | {"np": Functions(), SMOOTH: SmoothBasis}])


class Functions:
    """NumPy as formulas know it: functions of numbers, by name."""

    def __getattr__(self, name: str) -> Any:
        if name not in FUNCTIONS:
            raise KeyError(f"np.{name}")
        return getattr(np, name)


class SmoothBasis:
    """The basis of a curve s(z, df=10): a line, then bends with independent, equal penalties.

    A natural cubic spline, which keeps its knots; formulae makes one for every term. The squares of
    a row's bends sum to one on average, so that their scale is the standard deviation of the curve
    about its line.
    """

    __stateful_transform__ = True

    def __init__(self) -> None:
        from formulae.transforms import NaturalCubicSpline

        self.spline = NaturalCubicSpline()
        self.size = 0.0

    def __call__(self, z: Any, df: int = 10) -> np.ndarray:
        """The line, then the bends; the first call sets the knots."""
        values = np.asarray(z, float)
        if not self.size:
            self.spline(values, df=df)
            bends = self.spline.to_random()[:, 1:]
            self.size = float(np.sqrt(np.mean(np.sum(bends**2, axis=1))))
        found = np.array(self.spline.to_random(self.spline.eval(values)))
        found[:, 1:] /= self.size
        return found


@contextlib.contextmanager
def computed(formula: str, term: str) -> Iterator[None]:
    """Whatever formulae raises for a term is an error of that term; what it prints is dropped."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    except LowerboundError:
        raise
    except KeyError as error:
        name = str(error).strip("'")
        remedy = f"Expected functions among {', '.join(FUNCTIONS)}, center, scale, poly, bs, C."
        raise FormulaError.term(formula, term, f"calls {name}", remedy) from error
    except Exception as error:
        why = f"cannot be computed ({first_line(error)})"
        raise FormulaError.term(
            formula, term, why, "Correct the term, or compute the column beforehand."
        ) from error


@dataclass(frozen=True, eq=False)
class Columns:
    """The array of one term: its name as an argument, and the labels of its columns.

    whole: it has whole numbers; otherwise they are floating.
    """

    argument: str
    term: Any
    labels: tuple[str, ...]
    values: np.ndarray
    whole: bool = False

    @property
    def width(self) -> int:
        """The number of columns; an array of one axis has one."""
        return len(self.labels)

    def new(self, formula: str, frame: pd.DataFrame) -> np.ndarray:
        """The same array of new rows."""
        check_levels(self.term, frame)
        with computed(formula, self.term.name):
            found = shaped(self.term.eval_new_data(frame))
        return found.astype(np.int64) if self.whole else found


def check_levels(term: Any, frame: pd.DataFrame) -> None:
    """New rows may have no category that the old rows did not have."""
    for part in getattr(term, "components", ()):
        if part.kind == "categoric" and not hasattr(part, "call"):
            unseen = sorted(set(frame[part.name]) - set(part.levels), key=str)
            if unseen:
                raise NewLevelError(str(part.name), unseen, part.levels)


def shaped(values: Any) -> np.ndarray:
    """Floating numbers, on one axis where there is one column."""
    array = np.asarray(values, dtype=float)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


@dataclass(frozen=True, eq=False)
class Smooth:
    """The arrays of a curve: its line, and its bends, which have a scale."""

    name: str
    term: Any
    line: str
    bends: str
    values: np.ndarray

    @property
    def width(self) -> int:
        """The number of bends."""
        return int(self.values.shape[1]) - 1

    def arrays(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Both arrays, by argument."""
        return {self.line: values[:, 0], self.bends: values[:, 1:]}

    def new(self, formula: str, frame: pd.DataFrame) -> dict[str, np.ndarray]:
        """The same arrays of new rows."""
        with computed(formula, self.term.name):
            return self.arrays(np.asarray(self.term.eval_new_data(frame), float))


@dataclass(frozen=True, eq=False)
class Factor:
    """A grouping: the levels of one column, or of several crossed as they occur."""

    argument: str
    names: tuple[str, ...]
    levels: Any  # a pandas Index

    @property
    def labels(self) -> list[str]:
        """The levels as text."""
        if len(self.names) == 1:
            return [str(level) for level in self.levels]
        return [":".join(str(part) for part in level) for level in self.levels]

    def codes(self, frame: pd.DataFrame) -> tuple[np.ndarray, int]:
        """The number of each row's level, and how many levels are new: those come last."""
        found = _index(frame, self.names)
        codes = self.levels.get_indexer(found)
        unseen = found[codes < 0].unique()
        if len(unseen):
            codes = np.where(codes < 0, unseen.get_indexer(found) + len(self.levels), codes)
        return np.asarray(codes, np.int64), len(unseen)


def factor_of(term: Any, argument: str, frame: pd.DataFrame, formula: str) -> Factor:
    """The grouping of a term g, or g:h."""
    for part in term.components:
        if hasattr(part, "call"):
            raise FormulaError.term(
                formula, term.name, "computes its groups", "Expected columns: (1 | g), (1 | g:h)."
            )
    names = tuple(str(part.name) for part in term.components)
    levels = _index(frame, names).unique()
    with contextlib.suppress(TypeError):  # levels of several kinds have no order
        levels = levels.sort_values()
    return Factor(argument, names, levels)


def _index(frame: pd.DataFrame, names: tuple[str, ...]) -> Any:
    import pandas as pd

    arrays = [np.asarray(frame[name].astype(object)) for name in names]
    return pd.Index(arrays[0]) if len(names) == 1 else pd.MultiIndex.from_arrays(arrays)


@dataclass(frozen=True, eq=False)
class Group:
    """Effects that vary with the levels of a factor; a slope of None is the intercept."""

    bar: Bar
    factor: Factor
    slopes: tuple[Columns | None, ...]

    @property
    def labels(self) -> list[str]:
        """A label for every effect of one level."""
        return [label for s in self.slopes for label in (s.labels if s else ("Intercept",))]

    @property
    def width(self) -> int:
        """The number of effects of one level."""
        return len(self.labels)

    def check(self) -> None:
        """There have to be two groups at least."""
        if len(self.factor.levels) < 2:
            raise GroupLevelsError(
                self.bar.text, ":".join(self.factor.names), self.factor.levels[0]
            )


def evaluated(
    formula: str, terms: tuple[Any, ...], frame: pd.DataFrame, namespace: Any
) -> list[tuple[Any, np.ndarray]]:
    """Terms of one sum with their values, coded together so that no column is superfluous."""
    from formulae.terms.terms import Model

    if not terms:
        return []
    model = Model(*terms)
    for term in terms:  # by itself first, so that an error names it
        with computed(formula, term.name):
            term.set_type(frame, namespace)
    with computed(formula, " + ".join(term.name for term in terms)):
        model.eval(frame, namespace)
    return [(term, shaped(term.data)) for term in model.common_terms]


def offset_and_columns(
    found: list[tuple[Any, np.ndarray]],
) -> tuple[list[tuple[Any, np.ndarray]], list[tuple[Any, np.ndarray]]]:
    """Terms whose coefficient is one, and those that have a coefficient."""
    offsets = [one for one in found if one[0].kind == "offset"]
    return offsets, [one for one in found if one[0].kind not in ("offset", "intercept")]
