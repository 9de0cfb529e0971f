"""`fit` and `resume`: what a user calls, whatever the method."""

from __future__ import annotations

import functools
import inspect
import os
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import jax

from lowerbound.compiled import heard
from lowerbound.cost import AFFORDABLE, at_most
from lowerbound.em import EM
from lowerbound.errors import (
    LadderWarning,
    LostPosteriorError,
    LowerboundError,
    NoFiniteStartError,
    NotConjugateError,
    ParameterSiteError,
    ReservedNameError,
    UncertifiedError,
)
from lowerbound.ladder.costs import work_of
from lowerbound.ladder.rungs import GRID, Route, chosen_route
from lowerbound.methods.coordinate.cavi import fit_cavi
from lowerbound.methods.gaussian_value import Gaussian
from lowerbound.methods.grid.structured import fit_conditioned
from lowerbound.methods.networks.gradients import fit_gradients
from lowerbound.methods.routes.estimated import fit_gaussian
from lowerbound.methods.routes.rewritten import fit_augmented, fit_parameters
from lowerbound.methods.stochastic.augmented_batches import (
    augmentation_of_batches,
    augmented_batches,
)
from lowerbound.methods.stochastic.svi import run_svi
from lowerbound.methods.values import CAVI, SVI, has_columns
from lowerbound.result.fitted import Fit
from lowerbound.run.resume import interrupted, start_keeping
from lowerbound.store.checkpoint import as_checkpoint

RESERVED = ("method", "seed", "progress", "checkpoint")


def fit(
    model: Callable[..., Any],
    *args: Any,
    method: Any = "auto",
    seed: int = 0,
    progress: bool | None = None,
    checkpoint: Any = None,
    **kwargs: Any,
) -> Fit:
    """Fit the variational posterior q(z) of a NumPyro model by the plan that `explain` prints.

    Everything but `method`, `seed`, `progress` and `checkpoint` goes to the model. `progress`
    shows a bar (default: on a terminal). `checkpoint` names a folder that keeps the state of the
    run (or is a `Checkpoint`); `resume` goes on from there. Ctrl-C ends a fit at once; within
    `lb.interruptible()` it returns what there is.

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
    began = time.perf_counter()
    call = (model, args, kwargs)
    with heard():
        found = chosen_route(model, method, args, kwargs, checkpoint is not None)
        keep = start_keeping(as_checkpoint(checkpoint), model, args, kwargs, found.method, seed)
        fitted = _climbed(found, call, method, seed, progress, keep)
    return replace(fitted, plan=replace(fitted.plan, took=time.perf_counter() - began))


def _climbed(
    found: Route, call: Any, method: Any, seed: int, progress: bool | None, keep: Any
) -> Fit:
    """Run a route; where its rung does not hold, the next one that does, with a warning."""
    model, args, kwargs = call
    failed: dict[str, str] = {}
    began = time.perf_counter()
    given_up: list[tuple[str, str, LowerboundError]] = []
    while True:
        try:
            # A rung that was given up has taken its part of what the fit may take.
            spent = time.perf_counter() - began if given_up else 0.0
            left = max(AFFORDABLE - spent, AFFORDABLE / 3)
            fitted = _run(found, call, seed, progress, keep, left)
            break
        except (LostPosteriorError, UncertifiedError) as error:
            # A Gaussian needs neither a grid nor a derivation.
            rung = GRID if isinstance(error, LostPosteriorError) else found.taken
            if not found.rungs or rung in failed:
                raise
            failed[rung] = str(error).splitlines()[0]
            given_up.append((found.taken, failed[rung], error))
            found = chosen_route(model, method, args, kwargs, failed=failed)
        except NoFiniteStartError as error:
            # Where nothing is finite, the first to look says more of why.
            unseen = [e for _, _, e in given_up if isinstance(e, UncertifiedError)]
            if not unseen:
                raise
            raise unseen[0] from error
    for tried, reason, _ in given_up:
        warnings.warn(LadderWarning(tried, reason, found.taken), stacklevel=3)
    return fitted


def _run(
    found: Route, call: Any, seed: int, progress: bool | None, keep: Any, seconds: float
) -> Fit:
    """Run the method of a route, with what it is expected to take in the plan."""
    model, args, kwargs = call
    method, expected = found.method, None
    if found.model is not None:
        with jax.enable_x64(True):
            expected = work_of(found.model, method, args, kwargs)
    # The other methods end by themselves, after sweeps or rows that are all of use.
    estimated = isinstance(method, Gaussian) or (isinstance(method, CAVI) and method.condition)
    with at_most(seconds) if found.rungs and estimated else nullcontext():
        fitted = RUNNERS[type(method)](model, args, kwargs, method, seed, progress, keep, None)
    ladder = found.lines or fitted.plan.ladder
    return replace(fitted, plan=replace(fitted.plan, ladder=ladder, work=expected))


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
        run = interrupted(directory, model, args, kwargs, RUNNERS)
        runner = RUNNERS[type(run.method)]
        return runner(model, args, kwargs, run.method, run.seed, progress, run.keep, run.progress)


def coordinate_ascent(
    model: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: CAVI,
    *rest: Any,
) -> Fit:
    """Run `lb.CAVI(...)`: on the program as it is, augmented, given scalars, or by EM."""
    if method.augment:
        return fit_augmented(model, args, kwargs, method, *rest)
    run = fit_conditioned if method.condition else fit_cavi
    try:
        return run(model, args, kwargs, method, *rest)
    except ParameterSiteError:
        return fit_parameters(model, args, kwargs, method, *rest[:3])


def minibatches(
    model: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: SVI,
    *rest: Any,
) -> Fit:
    """Run `lb.SVI(...)`, on the augmented program where it names augmentations or needs them."""
    if method.augment:
        return augmented_batches(model, args, kwargs, method, *rest)
    try:
        return run_svi(model, args, kwargs, method, *rest)
    except NotConjugateError as error:
        found = augmentation_of_batches(model, args, kwargs, method)
        if found is None:
            raise error.of_batches(has_columns(args, kwargs)) from None
    fitted = augmented_batches(model, args, kwargs, replace(method, augment=found.choices), *rest)
    return replace(fitted, plan=found.noted(fitted.plan))


def check_reserved(model: Callable[..., Any]) -> None:
    """A model argument with a name that `fit` keeps for itself is an error."""
    try:
        names = inspect.signature(model).parameters
    except (TypeError, ValueError):
        return
    bound = model.keywords if isinstance(model, functools.partial) else {}
    for name, parameter in names.items():
        variable = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if name in RESERVED and not variable and name not in bound:
            raise ReservedNameError(name, getattr(model, "__name__", type(model).__name__))


# What runs each method: (model, args, kwargs, method, seed, progress, keep, resumed) -> Fit.
RUNNERS: dict[type, Callable[..., Fit]] = {
    CAVI: coordinate_ascent,
    SVI: minibatches,
    Gaussian: fit_gaussian,
    EM: fit_gradients,
}
