"""`lb.check`: the verdict of a fit with all the evidence that some seconds can buy."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lowerbound.compiled import heard
from lowerbound.compute.threads import one_thread
from lowerbound.errors import NoDensityError, NotAFitError, SettingError, UnjudgedError
from lowerbound.result.fitted import Fit
from lowerbound.result.verdicts import Verdict
from lowerbound.trust.further import further
from lowerbound.trust.judging import EXACT, compared, concluded

DRAWS = 4096


def check(fit: Fit, seconds: float = 60.0, rows: Any = None) -> Verdict:
    """How far to trust a fit, as `fit.verdict` does, but with more draws and more time.

    q is compared with the posterior at thousands of draws: by importance weights where they are
    even; by draws of a Student law that is moved to the posterior; by short chains that start at q
    in many dimensions. The verdict says how far the means and sds are off, for the worst element of
    every site, and what to do. `print(verdict.evidence)` shows what it rests on, and
    `verdict.evidence.table()` has it by site: k-hat and effective sizes, the gap between the ELBO
    and the importance-weighted bound, the sds of linear response, the way of short chains, restarts
    that disagree, empty components, bounds, priors at odds with the data, and rows left out.
    Draws that are weighted, or of chains, have no density: theirs is the verdict of `lb.correct`.
    Raises UnjudgedError where q has no density to compare.

    seconds: about what it may take, besides compilation. rows: the arguments of the model with all
    rows, a tuple or a dict, for a fit on minibatches, which keeps only some of them.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> verdict = lb.check(lb.fit(coin, y, method=lb.Gaussian()))
    >>> verdict.trust, [off.site for off in verdict.evidence.off]
    ('all', ['p'])
    """
    if not isinstance(fit, Fit):
        raise NotAFitError("check", fit)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise SettingError("check", "seconds", seconds, "a number above 0")
    given = _given(fit, rows)
    with heard(), np.errstate(all="ignore"), one_thread():
        try:
            judge, drawn, evidence = compared(fit, DRAWS, seconds, given)
        except NoDensityError:
            return fit.verdict
        except UnjudgedError:
            if fit.answer.exact:
                return EXACT
            raise
        points = judge.points_in(seconds / 4)
        verdict = concluded(fit, judge, drawn, further(fit, judge, drawn, evidence, points))
        return replace(EXACT, evidence=verdict.evidence) if fit.answer.exact else verdict


def _given(fit: Fit, rows: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of the fit with all rows put in."""
    if rows is None:
        return None
    if fit.whole:
        raise SettingError("check", "rows", type(rows).__name__, "None: the fit has all its rows")
    args, kwargs = ((), dict(rows)) if isinstance(rows, Mapping) else (rows, {})
    signature = inspect.signature(fit.call.function)
    try:
        signature.bind_partial(*(args if isinstance(args, tuple) else (args,)), **kwargs)
    except TypeError as error:
        names = ", ".join(signature.parameters)
        found = ", ".join(kwargs) if kwargs else f"{len(args)} arguments"
        expected = f"arguments of the model ({names}), by name or in their order"
        raise SettingError("check", "rows", found, expected) from error
    return fit.call_with(args if isinstance(args, tuple) else (args,), kwargs)
