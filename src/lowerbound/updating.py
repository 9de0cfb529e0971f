"""`update`: data that keep arriving, the posterior becomes the prior (Bayes' rule, eq:marginal)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from lowerbound.ascent import State
from lowerbound.compiled import heard
from lowerbound.compute.computing import current
from lowerbound.cost import Stopwatch
from lowerbound.errors import ArgumentError, NotAFitError
from lowerbound.family.meanfield import MeanField
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.methods.rewriting.carried import Carried
from lowerbound.methods.stochastic.batched import SVI, ByRows, Memoized
from lowerbound.methods.stochastic.opened import read_rows
from lowerbound.methods.stochastic.shared_factors import Before
from lowerbound.methods.stochastic.stepping import Stepping
from lowerbound.methods.stochastic.visiting import Visiting
from lowerbound.methods.values import as_method, is_auto
from lowerbound.result.answer import Answer
from lowerbound.result.fitted import Fit
from lowerbound.run.loop import carry_out
from lowerbound.run.planned import Planned
from lowerbound.run.problem import Problem
from lowerbound.trust.judging import with_verdict


def update(
    fit: Fit,
    *args: Any,
    method: Any = None,
    seed: int = 0,
    progress: bool | None = None,
    **kwargs: Any,
) -> Fit:
    """Go on from a fit with new rows: its global factors q(z) are the prior of the new data.

    `args` and `kwargs` are the new rows, arguments of the model; those that are not data (K, ...)
    are kept from the fit. By default all new rows are worked through until the bound settles
    (`lb.Memoized()`); `method=lb.SVI(...)` takes minibatches of them. In a conjugate model the
    result is the posterior of old and new rows together; otherwise it is the usual streaming
    approximation, with q in place of the posterior. The `elbo` bounds log p(new rows | old rows).

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> fit = lb.fit(coin, y)  # Beta(4, 2)
    >>> fit = lb.update(fit, np.array([1, 1, 1]))  # Beta(7, 2)
    >>> float(fit.mean("p").round(3))
    0.778
    """
    if not isinstance(fit, Fit):
        raise NotAFitError("update", fit)
    if not args and not kwargs:
        raise ArgumentError(
            "update got no new rows.\nExpected data arguments of the model after the fit: "
            "lb.update(fit, x_new)."
        )
    chosen = _of_rows(method, fit)
    with heard(), jax.enable_x64(True):
        old, note = as_mean_field(fit)
        call = old.call_with(args, kwargs)
        problem = Problem(fit.call.function, *call, seed, current())
        planned = _planned(problem, old, chosen, note)
        watch = Stopwatch()
        fitted = carry_out(planned, chosen, progress)
        return with_verdict(fitted, watch.own_seconds)


def _of_rows(method: Any, fit: Fit) -> ByRows:
    """The method for new rows: all of them are to be learned, and factors are those of the fit."""
    chosen = Memoized() if method is None or is_auto(method) else as_method(method)
    if isinstance(chosen, CAVI):
        chosen = Memoized(tolerance=chosen.tolerance)
    plate = getattr(chosen, "plate", None) or fit.answer.plate
    if isinstance(chosen, Memoized):
        return replace(chosen, plate=plate, blocks=fit.answer.blocks)
    if not isinstance(chosen, SVI):
        raise ArgumentError(
            f"update got method=lb.{chosen!r}.\nExpected lb.SVI(...), lb.Memoized(...), or none: "
            "the factors of the fit are the prior of the new rows."
        )
    monitor = None if isinstance(chosen.monitor, str) else chosen.monitor
    details = replace(chosen.details, blocks=fit.answer.blocks)
    return replace(chosen, plate=plate, monitor=monitor, details=details)


def _planned(problem: Problem, old: Fit, method: ByRows, note: tuple[str, ...]) -> Planned[Any]:
    """The plan for the new rows, of the program as the fit has it."""
    family, naturals = old.q.family, old.q.parameters
    assert isinstance(family, MeanField)
    program = problem.of(old.program)
    kind: Any = Stepping if isinstance(method, SVI) else Visiting
    before = Before(family, State.of(family, naturals))
    inner = kind(program, read_rows(program, method), method, before)
    plan = replace(inner.plan, notes=(*inner.plan.notes, *note))

    def back(answer: Answer) -> Answer:
        own = old.answer
        return replace(answer, augment=own.augment, parameters=old.parameters, taught=True)

    return Carried(problem, inner, plan, back, old.own_sites(inner.records))


def as_mean_field(fit: Fit) -> tuple[Fit, tuple[str, ...]]:
    """The fit, or one of its rows by mean field where its own q cannot be a prior; and a note."""
    if isinstance(fit.q.family, MeanField):
        return fit, ()
    call = fit.call
    if call.args is None:
        raise ArgumentError(
            f"update got a fit by {fit.method}, without its data.\n"
            "Expected a fit by coordinate ascent or SVI, whose factors can be priors: fit with "
            "method=lb.CAVI() or lb.SVI(), or pass the data to lb.load."
        )
    problem = Problem(fit.program, call.args, call.kwargs, call.seed, current())
    again = carry_out(CAVI().plan(problem), CAVI(), False)
    line = f"Went on from a mean-field fit of the old rows: q of {fit.method} cannot be a prior."
    known = replace(again.answer, augment=fit.answer.augment, parameters=fit.parameters)
    own = replace(again.call, function=call.function)
    return replace(again, answer=known, call=own), (line,)
