"""`correct`: a fit with better draws, in the shape of a fit."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from lowerbound.compiled import heard
from lowerbound.errors import CorrectionWarning, NotAFitError, SettingError, UnjudgedError
from lowerbound.family.completed.completing import Completed
from lowerbound.family.completed.summed import Summed
from lowerbound.family.q import Q
from lowerbound.model import Model, trace_model
from lowerbound.result.answer import Answer
from lowerbound.result.fitted import Fit
from lowerbound.result.latent_records import finite_values, site_records
from lowerbound.result.plan import Row
from lowerbound.result.verdicts import Verdict
from lowerbound.rewrite.summing.enumerated import enumerated
from lowerbound.run.loop import steadily
from lowerbound.trust.against import Against, against
from lowerbound.trust.corrections.conditionals import by_conditionals
from lowerbound.trust.corrections.hamiltonian import by_trajectories
from lowerbound.trust.corrections.improved import MOST_NUMBERS, Improved, distance
from lowerbound.trust.corrections.linear_response.responding import responded
from lowerbound.trust.corrections.resampled import resampled
from lowerbound.trust.judging import NUTS, judged_within
from lowerbound.trust.optima.summits import Optima

DRAWS, SECONDS = 512, 1.0  # of a verdict by fresh draws


class Asked(NamedTuple):
    """What a correction is asked for: draws, their seed, and whether a bar shows them."""

    draws: int
    seed: int
    progress: bool | None = None


Correction = Callable[[Fit, Model, Asked], Improved]


def _psis(fit: Fit, model: Model, asked: Asked) -> Improved:
    return resampled(_view(fit, model), asked.draws, asked.seed, _optima(fit))


def _nuts(fit: Fit, model: Model, asked: Asked) -> Improved:
    return by_trajectories(_view(fit, model), *asked, optima=_optima(fit))


def _optima(fit: Fit) -> Optima:
    """Where else log p is high, by the starts of the fit and by its verdict."""
    evidence = fit.verdict.evidence
    return (*fit.answer.optima, *(evidence.summits if evidence is not None else ()))


def _response(fit: Fit, model: Model, asked: Asked) -> Improved:
    return responded(fit, _view(fit, model), asked.draws, asked.seed)


def _gibbs(fit: Fit, model: Model, asked: Asked) -> Improved:
    return by_conditionals(fit, model, asked.draws, asked.seed)


CORRECTIONS: dict[str, Correction] = {
    "linear-response": _response,
    "psis": _psis,
    "nuts": _nuts,
    "gibbs": _gibbs,
}


def correct(
    fit: Fit, how: str, *, draws: int = 4000, seed: int = 0, progress: bool | None = None
) -> Fit:
    """A fit whose draws are nearer to the posterior than those of q, in the shape of a `Fit`.

    "linear-response": the covariances of all continuous sites by the response of the optimum of the
    ELBO to a small change of log p (Giordano, Broderick and Jordan 2018); means stay, sds and
    correlations are put right. For mean fields and Gaussians at their optimum.
    "psis": draws of q, or of a Student law that is moved from it to the posterior, resampled by
    Pareto smoothed weights; `elbo` is then the importance-weighted bound. Where k-hat is small.
    "nuts": Hamiltonian trajectories from draws of q, in coordinates where q is standard; the
    largest factor that is exact given the rest is integrated out, and drawn given it.
    "gibbs": draws of the complete conditional of every factor in turn (section 2.4), where each is
    exact.

    `progress` shows a bar of NUTS (default: on a terminal). Ctrl-C ends it at once; within
    `lb.interruptible()` the draws that there are make the fit.
    Discrete sites that can be summed out are drawn given the others. `fit.notes` says what was
    found on the way, and how far q was off. A correction that should not be trusted warns.

    `coin` is the program in the example of `lb.fit`, `y` its data.

    >>> fit = lb.fit(coin, y)
    >>> better = lb.correct(fit, "psis")  # q is exact here: nothing changes
    >>> print(better.notes[0])
    Corrected by psis, from CAVI(): 4,000 draws of q, weighted: Pareto k-hat 0.00 ...
    >>> round(better.elbo, 3) == round(fit.elbo, 3)
    True
    """
    if not isinstance(fit, Fit):
        raise NotAFitError("correct", fit)
    if how not in CORRECTIONS:
        known = ", ".join(repr(name) for name in CORRECTIONS)
        raise SettingError("correct", "how", how, f"one of {known}")
    if not isinstance(draws, int) or draws < 100:
        raise SettingError("correct", "draws", draws, "an integer of at least 100")
    if not fit.has_data:
        raise UnjudgedError("the file of the fit holds no data; pass them to lb.load")
    began = time.perf_counter()
    with heard(), steadily():
        assert fit.call.args is not None
        model = trace_model(fit.original, fit.call.args, fit.call.kwargs, fit.answer.plate)
        improved = CORRECTIONS[how](fit, model, Asked(draws, seed, progress))
        found = _assembled(fit, model, how, improved, seed)
    if improved.flaw:
        warnings.warn(CorrectionWarning(how, improved.flaw, improved.remedy), stacklevel=2)
    return replace(found, plan=replace(found.plan, took=time.perf_counter() - began))


def _view(fit: Fit, model: Model) -> Against:
    return against(fit, model)


def _assembled(fit: Fit, model: Model, how: str, improved: Improved, seed: int) -> Fit:
    """The corrected density with all sites of the program, as a fit."""
    sites = site_records(model)
    family, held = improved.family, improved.sites
    drawn_back = [name for name in model.latent if name not in held]
    back = ("Categorical, given the rest", "exact (summed out)")
    told = dict.fromkeys(drawn_back, back)
    if isinstance(fit.q.family, Completed):
        family = replace(fit.q.family, inner=family)  # type: ignore[type-var]
        told |= {r.site: (r.family, r.update) for r in fit.plan.rows if r.site in drawn_back}
    elif drawn_back:
        family = Summed(family, enumerated(model))
    rows = tuple(
        Row(
            name,
            site.shape,
            sites[name]["scope"],
            *told.get(name, ("draws", f"corrected ({how})")),
            "+".join(model.latent),
            "all functions",
            site.where,
        )
        for name, site in model.latent.items()
    )
    # The bound of draws is not known: that of q, which they come from, stays.
    elbo, error = (
        (fit.elbo, fit.elbo_error) if improved.elbo is None else (improved.elbo, improved.error)
    )
    answer = Answer(
        Q(family, improved.parameters, finite_values(sites)),
        elbo,
        fit.history,
        fit.restarts,
        error=error,
        parameters=fit.parameters,
        notes=(f"Corrected by {how}, from {fit.method}: {improved.text}.",),
        plate=fit.answer.plate,
    )
    method = f"correct({fit.method}, {how!r})"
    plan = replace(
        fit.plan,
        method=f"{fit.plan.method}, corrected by {how}",
        rows=rows,
        work=None,
        cheaper=None,
    )
    call = replace(fit.call, method=method, seed=seed, value=None)
    found = Fit(answer, fit.stop, plan, call, sites)
    supports: dict[str, Any] = {name: site.support for name, site in model.latent.items()}
    compared = [n for n, s in supports.items() if s is None or not s.is_discrete]
    if sum(math.prod(model.latent[n].shape) for n in compared) > MOST_NUMBERS:
        compared = [n for n in compared if sites[n]["scope"] == "global"]
    far = distance(fit, improved.before, found, compared)
    found = replace(found, verdict=_verdict(fit, found, improved))
    if far is None:
        return found
    return replace(found, answer=replace(answer, notes=(*answer.notes, str(far))))


def _verdict(fit: Fit, found: Fit, improved: Improved) -> Verdict:
    """How far to trust a correction: by what it knows of itself, or by fresh draws of it."""
    if improved.flaw:
        return Verdict("nothing", improved.flaw, "" if "nuts" in found.method else NUTS)
    if improved.doubt:
        return Verdict("means", improved.doubt, NUTS)
    if improved.reason:
        return Verdict("all", improved.reason)
    if improved.elbo is not None:  # it has a density
        return judged_within(found, DRAWS, SECONDS)
    if fit.verdict.trust == "nothing" and fit.verdict.evidence is not None:
        return Verdict("nothing", f"means are those of q, and {fit.verdict.reason}", NUTS)
    reason = "sds and correlations are right to first order, and draws cannot tell how nearly"
    return Verdict("means", reason, NUTS)
