"""K-fold cross-validation: a fit made again without the rows of each fold, which it then scores."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from lowerbound.api import fit as fit_again
from lowerbound.choosing.compared import Score
from lowerbound.errors import (
    ConvergenceWarning,
    LowerboundError,
    NoRowsError,
    NotRepeatableError,
    TrustWarning,
)
from lowerbound.result.fitted import Fit
from lowerbound.result.unseen.new_rows import row_axes, rows_in
from lowerbound.result.unseen.predictive import row_densities
from lowerbound.source.call import ArraySource, Call, open_call


def folds_of(rows: int, folds: int, seed: int) -> tuple[np.ndarray, ...]:
    """The rows of each fold, at random; their numbers differ by one at most, so that programs of
    two shapes serve all folds.

    >>> [len(fold) for fold in folds_of(10, 3, seed=0)]
    [4, 3, 3]
    """
    order = np.random.default_rng(seed).permutation(rows)
    return tuple(np.sort(part) for part in np.array_split(order, folds))


def repeatable(name: str, fit: Fit) -> int:
    """The number of rows of a fit that can be made again on some of them; raises otherwise."""
    if not fit.whole or fit.call.args is None:
        raise NoRowsError(name, "it does not hold all of them")
    if fit.call.value is None:
        raise NotRepeatableError(name, f"it is by {fit.method}, as which no call of lb.fit returns")
    model = fit.own_model()
    row_axes(model)  # raises where rows are not defined
    rows = rows_in(model)
    call = open_call(fit.call.function, fit.call.args, fit.call.kwargs)
    if rows not in call.lengths.values():
        raise NotRepeatableError(name, f"no argument has one entry for each of its {rows} rows")
    return rows


def refitted(
    name: str,
    fit: Fit,
    folds: tuple[np.ndarray, ...],
    draws: int,
    seed: int,
    done: Callable[[], None],
) -> Score:
    """The log predictive density of every row under the fit of the other folds."""
    rows = sum(len(fold) for fold in folds)
    assert fit.call.args is not None
    call = open_call(fit.call.function, fit.call.args, fit.call.kwargs)
    found = np.full(rows, np.nan)
    doubted = 0
    for number, fold in enumerate(folds):
        others = np.setdiff1d(np.arange(rows), fold)
        try:
            again = _of_rows(fit, *_rows(call, others, rows))
            found[fold] = row_densities(again, *_rows(call, fold, rows), draws, seed)
        except LowerboundError as error:
            error.add_note(f"In fold {number + 1} of {len(folds)} of the fit '{name}'.")
            raise
        doubted += again.verdict.trust != "all" and fit.verdict.trust == "all"
        done()
    score = Score.of_rows(found)
    notes = (
        (f"{doubted} of the {len(folds)} fits of folds of '{name}' are not to be trusted.",)
        if doubted
        else ()
    )
    return Score(score.value, score.error, found, notes=notes)


def _of_rows(fit: Fit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Fit:
    """The fit of some rows, as the whole was made."""
    with warnings.catch_warnings():
        for kind in (TrustWarning, ConvergenceWarning):  # the note says it
            warnings.simplefilter("ignore", kind)
        method, seed = fit.call.value, fit.seed
        return fit_again(
            fit.call.function, *args, method=method, seed=seed, progress=False, **kwargs
        )


def _rows(call: Call, index: np.ndarray, rows: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with these rows of every argument that has them."""
    names = [name for name, length in call.lengths.items() if length == rows]
    source = call.source(names)
    assert isinstance(source, ArraySource)
    return call.put(source.take(index))
