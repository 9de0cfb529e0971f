"""Data that keep arriving: the posterior becomes the prior (Bayes' rule, eq:marginal)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

from lowerbound.ascent import State
from lowerbound.errors import ArgumentError
from lowerbound.family.meanfield import MeanField
from lowerbound.methods.coordinate.cavi import CAVI
from lowerbound.methods.stochastic.batched import SVI
from lowerbound.methods.stochastic.minibatch import Before
from lowerbound.methods.stochastic.opened import open_rows
from lowerbound.methods.stochastic.svi import run_setting
from lowerbound.result.fitted import Fit


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
    (`lb.SVI(memoized=True)`); `method=lb.SVI(...)` takes minibatches of them. In a conjugate model
    the result is the posterior of old and new rows together; otherwise it is the usual streaming
    approximation, with q in place of the posterior. The `elbo` bounds log p(new rows | old rows).

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> fit = lb.fit(coin, y)  # Beta(4, 2)
    >>> fit = lb.update(fit, np.array([1, 1, 1]))  # Beta(7, 2)
    >>> float(fit.mean("p").round(3))
    0.778
    """
    if not args and not kwargs:
        raise ArgumentError(
            "update got no new rows.\nExpected data arguments of the model after the fit: "
            "lb.update(fit, x_new)."
        )
    default = method is None or method == "auto"
    chosen = SVI(memoized=True) if default else as_method(method)
    if isinstance(chosen, Gaussian | EM):
        raise ArgumentError(
            f"update got method=lb.{type(chosen).__name__}(...).\nExpected lb.SVI(...), or none: "
            "the factors of the fit are the prior of the new rows."
        )
    if isinstance(chosen, CAVI):
        chosen = SVI(memoized=True, tolerance=chosen.tolerance, precision=chosen.precision)
    if isinstance(chosen.monitor, str):
        chosen = replace(chosen, monitor=None)  # rows that arrive in turn are all to be learned
    chosen = replace(chosen, plate=chosen.plate or fit.plate, blocks=fit.blocks)
    fit, note = as_mean_field(fit)
    assert isinstance(fit.family, MeanField)
    before = Before(fit.family, fit.state)
    with jax.enable_x64(True):
        call = fit.call_with(args, kwargs)
        setting = open_rows(fit.program, *call, chosen, seed, before)
        shared = setting.batch.shared.family
        naturals = tuple(before.natural(block) for block in shared.blocks)
        start = State(naturals, shared.means(naturals))
        updated = run_setting(setting, chosen, seed, progress, None, None, start)
    return replace(updated, plan=replace(updated.plan, notes=(*updated.plan.notes, *note)))


def as_mean_field(fit: Fit) -> tuple[Fit, tuple[str, ...]]:
    """The fit, or one of its rows by mean field where its own q cannot be a prior; and a note."""
    if isinstance(fit.family, MeanField):
        return fit, ()
    if fit.args is None:
        raise ArgumentError(
            f"update got a fit by {fit.method}, without its data.\n"
            "Expected a fit by coordinate ascent or SVI, whose factors can be priors: fit with "
            "method=lb.CAVI() or lb.SVI(), or pass the data to lb.load."
        )
    again = fit_cavi(fit.program, fit.args, fit.kwargs, CAVI(), fit.seed, False, None, None)
    line = f"Went on from a mean-field fit of the old rows: q of {fit.method} cannot be a prior."
    return again, (line,)
