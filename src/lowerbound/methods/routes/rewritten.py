"""Programs that are rewritten before they are fitted: parameters maximised, sites augmented."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax

from lowerbound.bound.augmentation import augmentation_gap
from lowerbound.errors import ArgumentError
from lowerbound.family.meanfield import MeanField
from lowerbound.methods.coordinate.answer import make_fit
from lowerbound.methods.coordinate.cavi import fit_cavi
from lowerbound.methods.coordinate.variational_em import run_em
from lowerbound.methods.grid.structured import fit_conditioned
from lowerbound.methods.values import CAVI
from lowerbound.model import trace_model
from lowerbound.result.fitted import Fit
from lowerbound.result.plan import make_plan
from lowerbound.rewrite.augment import augmented
from lowerbound.store.checkpoint import Keeper


def fit_parameters(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: CAVI,
    seed: int,
    progress: bool | None,
    keep: Keeper | None = None,
) -> Fit:
    """Variational EM: coordinate ascent on q(z), and on the parameters of the program."""
    if keep is not None:
        raise ArgumentError(
            "fit got checkpoint= with a model that has parameters.\nExpected checkpoint= with a "
            "model of latent sites alone. Drop it, or give the parameters priors."
        )
    with jax.enable_x64(True):
        run = run_em(function, args, kwargs, method, seed, progress)
        model = trace_model(run.program, args, kwargs)
        plan = make_plan(model, run.engine.joint, notes=run.notes)
    fitted = make_fit(model, args, kwargs, run.engine, run.outcome, plan, method, seed)
    return replace(fitted, function=function, parameters=run.parameters)


def fit_augmented(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    method: CAVI,
    *rest: Any,
) -> Fit:
    """Coordinate ascent on the augmented program; the plan says what the augmentation costs."""
    choices = dict(method.augment or {})
    program = augmented(function, choices)
    if method.condition:
        given = fit_conditioned(program, args, kwargs, method, *rest)
        return replace(given, function=function, augment=choices)
    fitted = fit_cavi(program, args, kwargs, method, *rest)
    note = "The ELBO is that of the augmented program."
    assert isinstance(fitted.family, MeanField)
    with jax.enable_x64(True):
        try:
            original, rewritten = (trace_model(f, args, kwargs) for f in (function, program))
            gap = augmentation_gap(original, rewritten, fitted.family, fitted.state.naturals)
            note = (
                f"The ELBO is that of the augmented program, {gap.nats:.3g} +- "
                f"{gap.standard_error:.1g} nats below that of the same q(z) in the original one."
            )
        except ArgumentError:  # an auxiliary site shares a factor with others: no estimate
            pass
    plan = replace(fitted.plan, notes=(*fitted.plan.notes, note))
    return replace(fitted, function=function, augment=choices, plan=plan)
