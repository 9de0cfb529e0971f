"""An estimator whose model is a NumPyro program: `lb.fit` learns it, and its `Fit` answers."""

from __future__ import annotations

import functools
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lowerbound.api import fit
from lowerbound.compute.computing import current, without_verdicts
from lowerbound.cost import Stopwatch
from lowerbound.errors import ConvergenceWarning, NotFittedError, SettingError
from lowerbound.errors.storage import needed
from lowerbound.estimators.base import Estimator
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.result.fitted import Fit
from lowerbound.result.saving import load
from lowerbound.result.verdicts import UNKNOWN
from lowerbound.run.loop import callers
from lowerbound.run.method import COUNT, Rule, is_count, is_size
from lowerbound.trust.judging import with_verdict
from lowerbound.updating import update

SMALLEST = 1e-9  # relative change of an ELBO that sums over rows in float64 can still tell
ROWS = 8  # the fewest that a compiled program for new rows is made for


class Programmed(Estimator):
    """What estimators over a program share: reading, learning, the `Fit`, its verdict, its file.

    Programs are functions of modules with data as arguments, so that a second fit of equal shapes
    compiles nothing. The verdict is measured when `result_` is first read: those who only predict
    do not pay for it.
    """

    random_state: Any
    max_iter: int
    tol: float

    # -- reading ----------------------------------------------------------------------------------

    def _read(self, X: Any, *, reset: bool, **rules: Any) -> Any:
        """X (and y, where it is given) as arrays of float64, checked as scikit-learn does."""
        with needed("Estimators need scikit-learn", "sklearn"):
            from sklearn.utils.validation import validate_data

        return validate_data(self, X, reset=reset, **{"dtype": np.float64, **rules})

    def _missing_allowed(self, X: Any, *, reset: bool) -> Any:
        """X with its missing entries masked, where it has some."""
        rules = {"ensure_min_samples": 2 if reset else 1, "ensure_all_finite": "allow-nan"}
        found = self._read(X, reset=reset, **rules)
        holes = np.isnan(found)
        return np.ma.masked_array(np.where(holes, 0.0, found), holes) if holes.any() else found

    def _check(self, *rules: Rule) -> None:
        """Raise for the first setting that is not valid; those of every estimator come first."""
        shared: tuple[Rule, ...] = (
            ("max_iter", is_count(_plain(getattr(self, "max_iter", 1))), COUNT),
            ("n_components", is_count(getattr(self, "n_components", 1)), COUNT),
            ("n_init", is_count(getattr(self, "n_init", 1)), COUNT),
            ("tol", is_size(_plain(getattr(self, "tol", 1))), "a number of at least 0"),
        )
        for name, valid, expected in (*shared, *rules):
            if not valid:
                raise SettingError(type(self).__name__, name, getattr(self, name), expected)

    def _seed(self) -> int:
        """random_state as a seed: nothing comes from the clock, so None is 0."""
        state = getattr(self, "random_state", None)
        if state is None:
            return 0
        if isinstance(state, np.random.RandomState):
            return int(state.randint(2**31 - 1))
        if isinstance(state, np.random.Generator):
            return int(state.integers(2**31 - 1))
        if not isinstance(state, int | np.integer) or isinstance(state, bool) or state < 0:
            expected = "a whole number of at least 0, a numpy generator, or None"
            raise SettingError(type(self).__name__, "random_state", state, expected)
        return int(state)

    # -- learning ---------------------------------------------------------------------------------

    def _sweeps(self, size: int, restarts: int = 1, init: str = "auto") -> CAVI:
        """Coordinate ascent until a sweep changes the ELBO by about `tol` nats.

        Stopping is relative: the ELBO of `size` observed numbers is of that order.
        """
        tolerance = max(float(self.tol) / max(size, 1), SMALLEST if self.tol else 0.0)
        most = int(self.max_iter)
        return CAVI(restarts=int(restarts), tolerance=tolerance, max_sweeps=most, init=init)

    def _learn(
        self, program: Callable[..., Any], *args: Any, method: Any = "auto", **kwargs: Any
    ) -> Fit:
        """Fit the program, warn where it has not converged, and keep the result."""
        seed, watch = self._seed(), Stopwatch()
        with without_verdicts(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the remedy has another name here
            found = fit(program, *args, method=method, seed=seed, progress=False, **kwargs)
        return self._keep(found, watch.own_seconds)

    def _learn_more(self, *args: Any, **kwargs: Any) -> Fit:
        """Bayes' rule: what was learned is the prior of new rows."""
        seed, watch = self._seed(), Stopwatch()
        with without_verdicts(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = update(self._fitted("fit"), *args, seed=seed, progress=False, **kwargs)
        return self._keep(found, self._took + watch.own_seconds)

    def _keep(self, found: Fit, took: float) -> Fit:
        if not found.converged and getattr(self, "tol", True):
            remedy = "Give more with max_iter, or raise tol."
            warnings.warn(ConvergenceWarning(found.stop.text, remedy), stacklevel=callers())
        self._result, self._took = found, took
        self.converged_ = bool(found.converged)
        self.n_iter_ = max(len(found.history.elbo), 1)
        self.lower_bound_ = float(found.elbo)
        return found

    # -- using ------------------------------------------------------------------------------------

    @property
    def result_(self) -> Fit:
        """The `Fit` behind the estimator, with its verdict, plots, corrections and files."""
        found = self._fitted("result_")
        if found.verdict is UNKNOWN and found.has_data and current().verdicts:
            found = self._result = with_verdict(found, self._took)
        return found

    def _fitted(self, wanted: str) -> Fit:
        found: Fit | None = getattr(self, "_result", None)
        if found is None:
            raise _unfitted()(type(self).__name__, wanted)
        return found

    def _global_draws(self, n_samples: int) -> tuple[dict[str, np.ndarray], np.random.Generator]:
        """The global sites, drawn anew for each row of `sample`, and what draws the rest of it."""
        if not is_count(n_samples):
            raise SettingError("sample", "n_samples", n_samples, COUNT)
        found, random = self._fitted("sample"), np.random.default_rng(self._seed())
        sites = [s for s, record in found.sites.items() if record["scope"] == "global"]
        drawn = found.sample(len(padded(np.zeros(n_samples))), self._seed(), sites)
        return {s: a[:n_samples] for s, a in drawn.items()}, random

    def _densities(self, *rows: Any) -> np.ndarray:
        """Log p(row | data) of new rows; equal numbers of rows, up to padding, compile once."""
        found = self._fitted("score_samples")
        return found.log_predictive(*map(padded, rows))[: count_of(rows[0])]

    def __getstate__(self) -> dict[str, Any]:
        """What was learned, as `fit.save` writes it: without the rows of the data."""
        state = dict(vars(self))
        found: Fit | None = state.pop("_result", None)
        if found is not None:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "fit.lb"
                found.save(path)
                state["_stored"] = (found.call.function, path.read_bytes())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        stored = state.pop("_stored", None)
        vars(self).update(state)
        if stored is not None:
            program, content = stored
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "fit.lb"
                path.write_bytes(content)
                self._result = load(path, program)


@dataclass(eq=False, repr=False)
class Restarted(Programmed):
    """Settings of estimators of components, which are climbed to from several starts."""

    n_components: int = 2
    _: KW_ONLY
    tol: float = 1e-3
    max_iter: int = 1000
    n_init: int = 1
    random_state: Any = 0


@functools.cache
def _unfitted() -> type[NotFittedError]:
    """The error of both libraries."""
    with needed("Estimators need scikit-learn", "sklearn"):
        from sklearn.exceptions import NotFittedError as Theirs

    return type("NotFittedError", (NotFittedError, Theirs), {})


def padded(rows: Any) -> Any:
    """Rows up to the next power of two, the last one repeated.

    Rows do not touch each other's predictions, and few shapes are compiled for.

    >>> padded(np.arange(5)).tolist(), len(padded(np.zeros((9, 2))))
    ([0, 1, 2, 3, 4, 4, 4, 4], 16)
    """
    if isinstance(rows, dict):
        return {name: padded(part) for name, part in rows.items()}
    count = max(ROWS, 1 << (len(rows) - 1).bit_length())
    concatenate = np.ma.concatenate if np.ma.isMaskedArray(rows) else np.concatenate
    return concatenate([rows, np.repeat(rows[-1:], count - len(rows), axis=0)])


def count_of(rows: Any) -> int:
    """The number of rows, of an array or of several by name."""
    return len(next(iter(rows.values())) if isinstance(rows, dict) else rows)


def _plain(value: Any) -> Any:
    """NumPy's numbers, which grids of settings hold, as Python's."""
    return value.item() if isinstance(value, np.generic) else value
