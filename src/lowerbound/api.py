"""`fit` and `resume`: what a user calls, whatever the method."""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from lowerbound.compiled import heard
from lowerbound.compute.computing import current
from lowerbound.cost import AFFORDABLE, Stopwatch, Work, at_most
from lowerbound.errors import (
    BoundReachedError,
    CutCountsError,
    InfiniteBoundError,
    LadderWarning,
    LostPosteriorError,
    LowerboundError,
    NoFiniteStartError,
    PoorIntegralError,
    ReservedNameError,
    SettingError,
    UncertifiedError,
)
from lowerbound.ladder.costs import expected
from lowerbound.ladder.rungs import GRID, Chosen, chosen
from lowerbound.methods.values import VALUES, is_auto
from lowerbound.model import Model
from lowerbound.result.fitted import Fit
from lowerbound.run.loop import carry_out
from lowerbound.run.problem import Problem
from lowerbound.run.resume import check_abilities, interrupted, start_keeping
from lowerbound.store.checkpoint import Keeper, as_checkpoint
from lowerbound.trust.corrections.cures import trusted, weighed
from lowerbound.trust.judging import with_verdict

RESERVED = ("method", "seed", "progress", "checkpoint", "until")
UNTIL = ("fitted", "trusted")
# Rungs that turn out not to hold.
GIVEN_UP = (
    BoundReachedError,
    CutCountsError,
    InfiniteBoundError,
    LostPosteriorError,
    PoorIntegralError,
    UncertifiedError,
)


def fit(
    model: Callable[..., Any],
    *args: Any,
    method: Any = "auto",
    seed: int = 0,
    progress: bool | None = None,
    checkpoint: Any = None,
    until: str | None = None,
    **kwargs: Any,
) -> Fit:
    """Fit the variational posterior q(z) of a NumPyro model by the plan that `explain` prints.

    Everything but `method`, `seed`, `progress`, `checkpoint` and `until` goes to the model.
    `progress` shows a bar (default: on a terminal). `checkpoint` names a folder that keeps the
    state of the run (or is a `Checkpoint`); `resume` goes on from there. Ctrl-C ends a fit at once;
    within `lb.interruptible()` it returns what there is.

    `fit.verdict` says how far to trust the result. Where it asks for importance weights, an
    automatic fit has draws of q with such weights (`lb.correct(fit, "psis")`); with
    `until="fitted"`, or a method that is named, it stays as it was fitted. With `until="trusted"`,
    one that is not to be trusted goes on to NUTS, within the seconds that its plan prints; one on
    minibatches is fitted again on all rows. Its notes say what was done and gained.

    >>> import numpy as np, numpyro, numpyro.distributions as dist
    >>> import lowerbound as lb
    >>> def coin(y):
    ...     p = numpyro.sample("p", dist.Beta(1.0, 1.0))
    ...     with numpyro.plate("tosses", len(y)):
    ...         numpyro.sample("y", dist.Bernoulli(p), obs=y)
    >>> fit = lb.fit(coin, np.array([1, 0, 1, 1]))
    >>> float(fit.mean("p").round(3)), round(fit.elbo, 3)  # Beta(4, 2), and log(1/20)
    (0.667, -2.996)
    """
    check_reserved(model)
    if until not in (None, *UNTIL):
        known = " or ".join(f'"{name}"' for name in UNTIL)
        raise SettingError("fit", "until", until, f"{known}, or None")
    watch = Stopwatch()
    with heard():
        problem = Problem(model, args, kwargs, seed, current())
        with at_most(AFFORDABLE) if is_auto(method) else nullcontext():
            found = chosen(problem, method)
        check_abilities(found.method, problem, checkpoint is not None)
        kept = as_checkpoint(checkpoint)
        keep = start_keeping(kept, problem, found.method, found.lines)
        fitted = _climbed(found, method, progress, keep, watch)
        took = watch.seconds
        rows = None if problem.streams or fitted.whole else problem.call
        program, weigh = _program(found), until is None and is_auto(method) and rows is None
        quiet = weigh or until == "trusted"
        fitted = with_verdict(fitted, watch.own_seconds, program, rows, quiet)
        fitted = replace(fitted, plan=replace(fitted.plan, took=took))
        if weigh:
            return weighed(fitted, took)
    if until != "trusted":
        return fitted
    if rows is not None and fitted.verdict.trust != "all":  # minibatches: all rows are better
        before = f"Before all rows were taken together: {fitted.verdict}"
        better = fit(model, *args, seed=seed, progress=progress, until=until, **kwargs)
        return replace(better, answer=replace(better.answer, notes=(*better.notes, before)))
    return trusted(fitted, progress=progress)


def _program(found: Chosen) -> Model | None:
    """The program as it was traced, where it is that of the fit."""
    problem = found.problem
    return None if problem.streams or problem.has_parameters else problem.model


def _climbed(
    found: Chosen, method: Any, progress: bool | None, keep: Keeper | None, watch: Stopwatch
) -> Fit:
    """Carry a plan out; where its rung does not hold, that of the next one, with a warning."""
    failed: dict[str, str] = {}
    given_up: list[tuple[str, str, LowerboundError]] = []
    while True:
        try:
            fitted = _carried_out(found, progress, keep, watch)
            break
        except GIVEN_UP as error:
            # A Gaussian needs neither a grid nor a derivation.
            rung = GRID if isinstance(error, LostPosteriorError) else found.taken
            if not found.rungs or rung in failed:
                raise
            failed[rung] = str(error).splitlines()[0]
            given_up.append((found.taken, failed[rung], error))
            found = chosen(found.problem, method, failed)
        except NoFiniteStartError as error:
            # Where nothing is finite, the first to look says more of why.
            unseen = [e for _, _, e in given_up if isinstance(e, UncertifiedError)]
            if not unseen:
                raise
            raise unseen[0] from error
    for tried, reason, _ in given_up:
        warnings.warn(LadderWarning(tried, reason, found.taken), stacklevel=3)
    return fitted


def _carried_out(
    found: Chosen, progress: bool | None, keep: Keeper | None, watch: Stopwatch
) -> Fit:
    """The fit of a plan, with what it was expected to take."""
    # Those that end by themselves do so after sweeps or rows that are all of use.
    limited = _limited(watch) if found.rungs and found.method.limited else nullcontext()
    with limited:
        fitted = carry_out(found.planned, found.method, progress, keep)
    return replace(fitted, plan=replace(found.plan, work=_foreseen(found)))


def _foreseen(found: Chosen) -> Work | None:
    """What the fit was expected to take; afterwards, when most of its counts are known."""
    try:
        return expected(found) if found.rungs else None
    except Exception:  # whatever goes wrong with an estimate, the fit is not lost
        return None


def _limited(watch: Stopwatch) -> AbstractContextManager[None]:
    """What is left of the time, and a third of it at least.

    The choice, and a rung that was given up, have taken their part.
    """
    return at_most(AFFORDABLE, watch, max(watch.own_seconds - 2 / 3 * AFFORDABLE, 0.0))


def resume(
    directory: str | os.PathLike[str],
    model: Callable[..., Any],
    /,
    *args: Any,
    progress: bool | None = None,
    **kwargs: Any,
) -> Fit:
    """Go on with the run whose checkpoints are in `directory`, as if it had never stopped.

    `model`, `args` and `kwargs` are those that the run was started with by `lb.fit(model, ...,
    checkpoint=directory)`; method and seed are in the files. On the same device the result is the
    same, bit for bit, as that of a run without interruption. A finished run gives its result.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> whole = lb.fit(coin, y, method=lb.CAVI(), checkpoint="run")
    >>> lb.resume("run", coin, y).elbo == whole.elbo
    True
    """
    with heard():
        run = interrupted(directory, Problem(model, args, kwargs), VALUES)
        planned = run.method.plan(run.problem)
        watch = Stopwatch()
        fitted = carry_out(planned, run.method, progress, run.keep, run.progress)
        weigh = bool(run.ladder) and fitted.whole
        fitted = with_verdict(fitted, watch.own_seconds, quiet=weigh)
        fitted = replace(fitted, plan=replace(fitted.plan, ladder=run.ladder))
        return weighed(fitted, watch.own_seconds) if weigh else fitted


def check_reserved(
    model: Callable[..., Any], reserved: Collection[str] = RESERVED, caller: str = "fit"
) -> None:
    """A model argument with a name that `fit`, or another caller, keeps for itself is an error."""
    try:
        names = inspect.signature(model).parameters
    except (TypeError, ValueError):
        return
    bound = model.keywords if isinstance(model, functools.partial) else {}
    for name, parameter in names.items():
        variable = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if name in reserved and not variable and name not in bound:
            raise ReservedNameError(name, getattr(model, "__name__", type(model).__name__), caller)
