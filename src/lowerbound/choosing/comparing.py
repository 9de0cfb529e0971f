"""`compare`: fits of the same data, best first, by one criterion and with its error."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from lowerbound.choosing.compared import TITLES, Comparison, Score, ranked
from lowerbound.choosing.folds import folds_of, refitted, repeatable
from lowerbound.choosing.left_out import leave_one_out
from lowerbound.choosing.same_data import check_same_data
from lowerbound.compiled import heard
from lowerbound.errors import ArgumentError, DifferentDataError, LowerboundError, SettingError
from lowerbound.errors.wording import quoted
from lowerbound.result.fitted import Fit
from lowerbound.result.unseen.predictive import row_densities
from lowerbound.run.bar import Bar

Call = tuple[tuple[Any, ...], dict[str, Any]]


def compare(
    fits: Mapping[str, Fit],
    by: str | None = None,
    *,
    test: Any = None,
    folds: int = 10,
    draws: int = 1000,
    seed: int = 0,
    progress: bool | None = None,
) -> Comparison:
    """Fits of the same data, best first, each with its difference to the best and its trust.

    "elbo" (the default): a bound on the log evidence, all constants kept, so that numbers of
    components, priors and methods can be compared. Of a fit that was corrected by "psis" it is the
    importance-weighted bound, which is tighter.
    "held-out" (the default where there are `test` data): `fit.log_predictive` of new rows. `test`
    is the new argument, a tuple of them, or a dict by name, of which each model gets its own.
    "loo": leave-one-out log predictive densities by Pareto smoothed importance weights of `draws`
    draws of q; every row has a k-hat. Sites of a row are summed or integrated out of its density
    where the library can do that.
    "k-fold": the same by fitting again, as often as there are `folds`, without the rows of each.

    A fit whose verdict is not "all" is marked: its number may be wrong.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> flat = lb.fit(coin, y)
    >>> gaussian = lb.fit(coin, y, method=lb.Laplace())
    >>> print(lb.compare({"Beta": flat, "Gaussian": gaussian}))
    Comparison of 2 fits by ELBO, in nats with all constants
                 value ...
      Beta       -2.996 ...
      Gaussian   -3.0...
    """
    by = _checked(fits, by, test, folds, draws)
    with heard():
        notes = () if by == "held-out" else check_same_data(fits, in_order=by != "elbo")
        if by == "elbo":
            scores = {name: Score(fit.elbo, fit.elbo_error) for name, fit in fits.items()}
            notes = (*notes, *_other_bounds(fits))
        elif by == "held-out":
            scores = _held_out(fits, test, draws, seed)
        else:
            steps = len(fits) * (folds if by == "k-fold" else 1)
            unit = "fold" if by == "k-fold" else "fit"
            with Bar(progress, steps, f"compare by {by}", unit) as bar:
                scores = _by_rows(fits, by, folds, draws, seed, bar)
    found = ranked(by, fits, scores)
    return Comparison(by, found.rows, found.pointwise, found.k_hats, (*found.notes, *notes))


def _checked(fits: Any, by: str | None, test: Any, folds: int, draws: int) -> str:
    """The criterion, where the arguments can be used."""
    if not isinstance(fits, Mapping) or not fits:
        found = "nothing" if isinstance(fits, Mapping) else type(fits).__name__
        raise ArgumentError(
            f'compare got {found}.\nExpected fits by name, such as {{"K=3": fit3, "K=5": fit5}}.'
        )
    for name, fit in fits.items():
        if not isinstance(fit, Fit):
            raise ArgumentError(
                f"compare got {type(fit).__name__} as '{name}'.\n"
                "Expected fits, as lb.fit(model, ...) returns."
            )
    if by is None:
        by = "elbo" if test is None else "held-out"
    if by not in TITLES:
        raise SettingError("compare", "by", by, f"one of {', '.join(map(repr, TITLES))}")
    if (test is not None) != (by == "held-out"):
        expected = "new rows, test=..." if by == "held-out" else 'by="held-out" with test=...'
        raise ArgumentError(
            f"compare got by={by!r} {'without' if test is None else 'with'} test data.\n"
            f"Expected {expected}."
        )
    if not isinstance(folds, int) or isinstance(folds, bool) or folds < 2:
        raise SettingError("compare", "folds", folds, "an integer of at least 2")
    if not isinstance(draws, int) or isinstance(draws, bool) or draws < 100:
        raise SettingError("compare", "draws", draws, "an integer of at least 100")
    return by


def _other_bounds(fits: Mapping[str, Fit]) -> tuple[str, ...]:
    """What to know where the bounds of some fits are importance-weighted, and those of others not.

    The weighted ones are nearer to the evidence.
    """
    weighted = [name for name, fit in fits.items() if "psis" in fit.method]
    if not weighted or len(weighted) == len(fits):
        return ()
    return (
        f"The bounds of {quoted(weighted)} are importance-weighted, and so higher than ELBOs by "
        'what q lacks: compare fits with until="fitted", or by another criterion.',
    )


def _by_rows(
    fits: Mapping[str, Fit], by: str, folds: int, draws: int, seed: int, bar: Bar
) -> dict[str, Score]:
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        bar.update(done, "")

    scores = {}
    if by == "loo":
        for name, fit in fits.items():
            scores[name] = leave_one_out(name, fit, draws, seed)
            step()
    else:
        counts = {name: repeatable(name, fit) for name, fit in fits.items()}
        rows = next(iter(counts.values()))
        if folds > rows:
            raise SettingError(
                "compare", "folds", folds, "one row in each fold", f" of {rows} rows"
            )
        parts = folds_of(rows, folds, seed)
        _check_counts(counts)
        for name, fit in fits.items():
            scores[name] = refitted(name, fit, parts, draws, seed, step)
    _check_counts({name: len(_rows(score)) for name, score in scores.items()})
    return scores


def _held_out(fits: Mapping[str, Fit], test: Any, draws: int, seed: int) -> dict[str, Score]:
    calls = _test_calls(fits, test)
    scores = {}
    for name, fit in fits.items():
        try:
            scores[name] = Score.of_rows(row_densities(fit, *calls[name], draws, seed))
        except LowerboundError as error:
            error.add_note(f"In the test data of the fit '{name}'.")
            raise
    _check_counts({name: len(_rows(score)) for name, score in scores.items()})
    return scores


def _test_calls(fits: Mapping[str, Fit], test: Any) -> dict[str, Call]:
    """The new arguments of each fit: of a dict those that its model has."""
    if not isinstance(test, Mapping):
        args = test if isinstance(test, tuple) else (test,)
        return {name: (args, {}) for name in fits}
    taken: set[str] = set()
    calls: dict[str, Call] = {}
    for name, fit in fits.items():
        parameters = inspect.signature(fit.call.function).parameters.values()
        open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
        own = {p.name for p in parameters}
        chosen = {key: value for key, value in test.items() if open_ended or key in own}
        calls[name] = (), chosen
        taken |= set(chosen)
    unknown = [str(key) for key in test if key not in taken]
    if unknown:
        raise ArgumentError(
            f"compare got test data for {quoted(unknown)}, which no model of the fits takes.\n"
            "Expected arguments of the models by name."
        )
    return calls


def _rows(score: Score) -> np.ndarray:
    assert score.rows is not None
    return score.rows


def _check_counts(counts: Mapping[str, int]) -> None:
    """Fits of one data set have the same rows."""
    (first, rows), *others = counts.items()
    for name, count in others:
        if count != rows:
            raise DifferentDataError(first, name, f"{rows} rows beside {count}")
